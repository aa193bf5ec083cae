"""The common parts of a tiered topic's brokers: the object store with its faults, and the log of the remote metadata.

Segments are objects behind the faults of the tiered plane (`remote_log/store.py`): outages, slow and late requests,
lost responses, short and damaged bodies, stale lists, and rot. Writers of remote metadata may get no answer, whether
their event is applied or not. Leaders that do not know that they are deposed go on copying and deleting.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final, cast

from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.ids import BrokerId
from storage.tiered.bucket.partition_objects import PartitionObjects
from storage.tiered.segment_metadata import TopicIdPartition
from storage.tiered.stores.backoff import Backoff
from tests.simulation.remote_log.store import Weather
from tests.simulation.replication.scenario import CLUSTER_ID
from tests.simulation.world import World
from tests.support.fakes.faulty_object_store import FaultKind
from tests.support.fakes.memory_remote_metadata import Event, RemoteMetadataLog

TIERED: Final = "tiered"
"""The name of the tiered topic."""
SETTINGS: Final = RemoteLogSettings(
    task_interval_ms=300, remover_interval_ms=1_000, grace_ms=1_000, backoff=Backoff(100, 1_000, 0.2)
)
_SLOW_S: Final = (0.05, 1.5)
"""Shortest and longest delay of a slow request."""
_LATE_S: Final = 1.5
"""Longest delay of a PUT whose client gives up."""
_START_MS: Final = 1_700_000_000_000
_LAG_MS: Final = 20.0
"""Mean time until an event is written."""


class Tier:
    """State shared by all brokers."""

    def __init__(self, world: World, random: Random, on_remote_read: Callable[[], None]) -> None:
        self.on_remote_read = on_remote_read
        self._world = world
        self._random = random
        self.weather = Weather(random, self._now_ms, slow_s=_SLOW_S, loses_objects=False)
        self.weather.latest_s = random.choice((0.0, _LATE_S))
        self.weather.memory.call_later = lambda delay_s, land: world.schedule(1_000 * delay_s, land)
        self.metadata = RemoteMetadataLog()
        self.is_disturbed = True
        """Whether the faults last."""
        self.unanswered_share = 0.0
        """Share of events whose writers get no answer."""
        self._publish = self.metadata.publish
        self._due_ms = 0.0
        self.metadata.publish = self._publish_later  # type: ignore[method-assign]

    def _now_ms(self) -> int:
        return _START_MS + int(self._world.now_ms)

    def _publish_later(self, event: Event, done: "asyncio.Future[None]") -> None:
        """Apply an event after all earlier ones, whatever becomes of its publisher."""
        self._due_ms = max(self._due_ms, self._world.now_ms + self._random.expovariate(1.0 / _LAG_MS))
        self._world.schedule(self._due_ms - self._world.now_ms, self._apply, event, done)

    def publish_at_once(self, event: Event) -> None:
        """Apply an event of an operator, without faults."""
        self._publish(event, cast("asyncio.Future[None]", _Unread()))

    def _apply(self, event: Event, done: "asyncio.Future[None]") -> None:
        if self._random.random() < self.unanswered_share:
            self.metadata.fail_next(TimeoutError("no answer"), applies=self._random.random() < 0.5)
        self._publish(event, done)

    # Faults

    def lose_responses(self, requests: int) -> None:
        """Lose the responses of the next writes of objects, which take effect."""
        self.weather.faulty.fail(FaultKind.TIMEOUT_AFTER_SUCCESS, "put", times=requests)

    def end_faults(self) -> None:
        """End all faults; restore rotten objects from their former versions, as an operator does."""
        self.is_disturbed, self.unanswered_share = False, 0.0
        self.weather.latest_s = 0.0
        self.weather.heal()
        self.weather.restore()
        self.weather.find_again()

    # The truth

    def kept_log_start(self, partition: TopicIdPartition) -> int | None:
        """Return the log start offset of the newest leader; None if there is none, or if it is rotten."""
        weather = self.weather
        objects = PartitionObjects(weather.memory, weather.keys, cluster_id=CLUSTER_ID, broker_id=BrokerId(0))
        try:
            return objects.kept(partition)
        except ValueError:
            return None


class _Unread:
    """A future whose result is not read."""

    def done(self) -> bool:
        return True

"""Random deletions of topics, which are created again under the same name with another topic id.

The deletions have a random source of their own: histories without them stay as they are.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from protocol.primitives import ZERO_UUID, Uuid
from tests.simulation.replication.scenario import TopicScenario
from tests.simulation.replication.simulation import ReplicationSimulator

_SHARE: Final = 0.2
"""Share of the histories with deletions."""
_EVERY_MS: Final = 1_500.0
_LOOK_AGAIN_MS: Final = 20.0
_PATIENCE: Final = 50
"""Number of looks after which a request is repeated: a controller that fails loses it."""


class Recreation:
    """The deletions and creations of one history."""

    def __init__(self, simulation: ReplicationSimulator, note: Callable[[str], None]) -> None:
        self._simulation = simulation
        self._random = Random(f"recreation {simulation.seed}")
        self._note = note
        self._is_over = False

    def begin(self) -> None:
        if self._random.random() < _SHARE:
            self._after(self._random.expovariate(1.0 / _EVERY_MS), self._delete_any)

    def end(self) -> None:
        """Delete no more topics; those that are deleted are still created again."""
        self._is_over = True

    def _after(self, delay_ms: float, action: Callable[..., None], *args: object) -> None:
        self._simulation.world.schedule(delay_ms * self._simulation.scenario.pace, action, *args)

    def _delete_any(self) -> None:
        topic = self._random.choice(self._simulation.scenario.topics)
        topic_id = self._simulation.topic_id(topic.name)
        if not self._is_over and topic_id != ZERO_UUID:
            self._note(f"topic {topic.name} is to be deleted")
            self._delete(topic, topic_id)

    def _delete(self, topic: TopicScenario, topic_id: Uuid, looks: int = 0) -> None:
        if self._simulation.topic_id(topic.name) != topic_id:
            pause_ms = self._random.choice((0.0, 50.0, 1_000.0))
            self._after(pause_ms, self._create, topic)
            return
        if looks % _PATIENCE == 0:
            self._simulation.service.command(lambda controller, _now: controller.delete_topics([topic_id]), _nothing)
        self._after(_LOOK_AGAIN_MS, self._delete, topic, topic_id, looks + 1)

    def _create(self, topic: TopicScenario, looks: int = 0) -> None:
        if self._simulation.topic_id(topic.name) != ZERO_UUID:
            self._after(self._random.expovariate(1.0 / _EVERY_MS), self._delete_any)
            return
        if looks % _PATIENCE == 0:
            self._note(f"topic {topic.name} is to be created again")
            self._simulation.create_topic(topic)
        self._after(_LOOK_AGAIN_MS, self._create, topic, looks + 1)


def _nothing(_: object) -> None:
    """Ignore the result."""

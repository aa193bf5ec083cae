"""A shard of share states over a log in memory."""

from typing import TypeVar

from broker.coordination.shard import CoordinatorResult
from broker.coordination.share_partition_key import SharePartitionKey
from broker.share_state.records import ShareStateEvent
from broker.share_state.shard import ShareStateConfig, ShareStateShard, ShareStateWrite
from broker.share_state.state import ShareState, StateBatch
from protocol.messages.share_records import ShareSnapshotKey, ShareUpdateKey
from protocol.primitives import Uuid
from tests.support.fakes.clock import ManualClock

R = TypeVar("R")

TOPIC = Uuid(bytes(15) + b"\x07")
KEY = SharePartitionKey("g", TOPIC, 0)
OTHER = SharePartitionKey("g", TOPIC, 1)
COLD_MS = 300_000
UPDATES = 3


class ShareStateHarness:
    """Runs commands, and keeps their records as (kind, key) in `kinds` beside the log."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.topics: dict[Uuid, int] = {TOPIC: 2}
        self.shard = self._new_shard()
        self.shard.on_loaded()

    def _new_shard(self) -> ShareStateShard:
        return ShareStateShard(ShareStateConfig(UPDATES, COLD_MS), self.clock, self.topics.get)

    def reload(self, start_offset: int = 0) -> None:
        """Load the log again from an offset, as a new coordinator does."""
        self.shard = self._new_shard()
        for offset, (key, value) in enumerate(self.log[start_offset:], start_offset):
            event = self.shard.decode(key, value)
            assert event is not None
            self.shard.replay(event, offset, -1)
        self.shard.on_loaded()

    def carry_out(self, result: CoordinatorResult[ShareStateEvent, R]) -> R:
        for record in result.records:
            self.log.append((record.key, record.value))
            self.shard.replay(record.event, len(self.log) - 1, -1)
        return result.response

    def kinds(self, start_offset: int = 0) -> list[str]:
        """Return the kinds of the records from an offset on."""
        names = {ShareSnapshotKey.API_KEY: "snapshot", ShareUpdateKey.API_KEY: "update"}
        return [
            "tombstone" if value is None else names[int.from_bytes(key[:2], "big")]
            for key, value in self.log[start_offset:]
        ]

    def advance(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        for cause in self.shard.timers.due(self.clock.monotonic_ms()):
            self.carry_out(self.shard.on_timer(cause))

    def initialize(self, state_epoch: int = 1, start_offset: int = 0, key: SharePartitionKey = KEY) -> None:
        self.carry_out(self.shard.initialize(key, state_epoch, start_offset))

    def read(self, leader_epoch: int, key: SharePartitionKey = KEY) -> ShareState:
        return self.carry_out(self.shard.read(key, leader_epoch))

    def write(
        self,
        *batches: StateBatch,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start_offset: int = -1,
        complete_count: int = -1,
        key: SharePartitionKey = KEY,
    ) -> None:
        write = ShareStateWrite(state_epoch, leader_epoch, start_offset, complete_count, batches)
        self.carry_out(self.shard.write(key, write))

    def state(self, key: SharePartitionKey = KEY) -> ShareState | None:
        return self.shard.summary(key)

"""The share groups of a shard over a log in memory, and topics that the test creates."""

from typing import Any, TypeVar

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import TimerQueue
from broker.groups.caller import Caller
from broker.groups.consumer.environment import MemberIntervals
from broker.groups.share.assignor import ShareAssignor, SimpleAssignor
from broker.groups.share.environment import ShareGroupEnvironment
from broker.groups.share.group import ShareGroup
from broker.groups.share.groups import ShareGroups
from broker.groups.share.heartbeat import ShareHeartbeat
from broker.groups.share.initialization import ShareInitialization
from broker.groups.share.records import decode_share_record
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.support.fakes.clock import ManualClock
from tests.support.harnesses.consumer_group_harness import FakeTopics

R = TypeVar("R")

CALLER = Caller("client", "/127.0.0.1", 1)
SESSION_MS = 45_000
RETRY_MS = 30_000


class ShareGroupHarness:
    """Group "g". `pending` is the last initialization, which `initialize` completes."""

    def __init__(self, **topics: int) -> None:
        self.topics = FakeTopics()
        for name, count in topics.items():
            self.topics.put(name, count)
        self.clock = ManualClock()
        self.others: set[str] = set()
        self.max_size = 5
        self.log: list[tuple[bytes, bytes | None]] = []
        self.assignor: ShareAssignor = SimpleAssignor()
        self.pending: ShareInitialization | None = None
        self.queue: TimerQueue[Any] = TimerQueue(self.clock.monotonic_ms)
        self.groups = self._new_groups()

    def _new_groups(self) -> ShareGroups:
        environment = ShareGroupEnvironment(
            self.max_size,
            RETRY_MS,
            lambda: self.topics,
            lambda _: MemberIntervals(SESSION_MS, 5_000),
            self.assignor,
        )
        return ShareGroups(environment, self.queue, self.clock, self.others.__contains__)

    def reload(self) -> None:
        """Load the log again, as a new coordinator does."""
        self.queue.clear()
        self.groups = self._new_groups()
        for key, value in self.log:
            event = decode_share_record(int.from_bytes(key[:2], "big"), key, value)
            assert event is not None
            self.groups.replay(event)
        self.groups.on_loaded()

    def carry_out(self, result: CoordinatorResult[Any, R]) -> R:
        for record in result.records:
            self.log.append((record.key, record.value))
            self.groups.replay(record.event)
        return result.response

    def beat(
        self, member_id: str, epoch: int, *names: str, group_id: str = "g", rack_id: str | None = None
    ) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat; without names it has null topics."""
        request = ShareGroupHeartbeatRequest(group_id, member_id, epoch, rack_id, list(names) or None)
        done: ShareHeartbeat = self.carry_out(self.groups.heartbeat(request, CALLER))
        self.pending = done.initialization or self.pending
        return done.response

    def initialize(self) -> None:
        """Complete the last initialization."""
        assert self.pending is not None
        done, self.pending = self.pending, None
        self.carry_out(self.groups.on_initialized(done.group_id, done.topics))

    def join(self, member_id: str, *names: str) -> ShareGroupHeartbeatResponse:
        """Join, and let the initialization of new share partitions complete."""
        response = self.beat(member_id, 0, *names)
        if self.pending is not None:
            self.initialize()
        return response

    def advance(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        for cause in self.queue.due(self.clock.monotonic_ms()):
            self.carry_out(self.groups.on_timer(cause))

    @property
    def group(self) -> ShareGroup:
        return self.groups.table.get_or_raise("g")


def assigned(response: ShareGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """Return the assignment of a response by topic name; None without any."""
    if response.assignment is None:
        return None
    topics = response.assignment.topic_partitions
    return {each.topic_id.strip(b"-").decode(): each.partitions for each in topics}

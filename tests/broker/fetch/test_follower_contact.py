"""The in-sync followers of an idle partition: their sessions leave the partition out, and still count as contact."""

import pytest

from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from tests.support.harnesses.data_plane import Answer, DataPlane

LAG_MS = 30_000
VERSION = 18


@pytest.fixture
def node() -> DataPlane:
    plane = DataPlane()
    plane.register_broker(2)
    return plane


class Follower:
    """Broker 2, with one fetch session for the partitions of a topic."""

    def __init__(self, node: DataPlane, partitions: int = 1, *, like: "Follower | None" = None) -> None:
        """Open a session; with `like`, another one of the same broker for the same topic."""
        self._node = node
        if like is None:
            self.handler = node.fetch_handler()
            self.topic_id = node.create_topic(replicas=(1, 2), partitions=partitions)
        else:
            self.handler, self.topic_id = like.handler, like.topic_id
        self._session, self._epoch = 0, 0
        self._session = self.fetch(*((index, 0) for index in range(partitions)))

    def skip_a_request(self) -> None:
        """Lose a request on the way."""
        self._epoch += 1

    def fetch(self, *positions: tuple[int, int], wait_ms: int = 0, forget: int | None = None) -> int:
        """Send the next request of the session with these (partition, offset) pairs; return the session's id."""
        partitions = [FetchPartition(index, 0, offset, -1, 0, 1_000) for index, offset in positions]
        request = FetchRequest(
            replica_state=ReplicaState(2, 1),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1_000_000,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=[FetchTopic("", self.topic_id, partitions)] if partitions else [],
            forgotten_topics_data=[] if forget is None else [ForgottenTopic("", self.topic_id, [forget])],
        )
        self._epoch += 1
        answer = Answer(self.handler(request, self._node.context(VERSION)))
        return 0 if wait_ms else answer.value.session_id


def shrunk_isr(node: DataPlane) -> list[list[int]]:
    """Run the timer that removes lagging followers; return the proposed in-sync sets."""
    node.partition().isr_updater.shrink()
    node.loop.run_soon()
    return node.controller.answer() if node.controller.under_way else []


@pytest.mark.parametrize("wait_ms", [0, 500])
def test_follower_that_continues_its_session_stays_in_sync_after_an_idle_hour(node: DataPlane, wait_ms: int) -> None:
    follower = Follower(node)
    node.clock.advance_ms(3_600_000)
    follower.fetch(wait_ms=wait_ms)
    node.clock.advance_ms(400)
    node.produce(b"a")
    assert shrunk_isr(node) == []
    node.clock.advance_ms(LAG_MS - 400)
    assert shrunk_isr(node) == []
    node.clock.advance_ms(1)
    assert shrunk_isr(node) == [[1]]


def test_follower_silent_for_an_hour_leaves_at_the_first_check_after_an_append(node: DataPlane) -> None:
    """Regression: the append counted as contact, and acks=all waited for another 30 s."""
    Follower(node)
    node.clock.advance_ms(3_600_000)
    assert shrunk_isr(node) == []
    node.produce(b"a")
    assert shrunk_isr(node) == [[1]]


def test_partition_that_leaves_a_session_is_not_renewed_by_it(node: DataPlane) -> None:
    follower = Follower(node, partitions=2)
    follower.fetch(forget=0)
    node.clock.advance_ms(3_600_000)
    follower.fetch()
    node.produce(b"a")
    assert shrunk_isr(node) == [[1]]


def test_session_with_an_older_leader_epoch_is_no_contact(node: DataPlane) -> None:
    follower = Follower(node)
    node.elect(follower.topic_id, 1)
    node.clock.advance_ms(3_600_000)
    follower.fetch()
    assert node.partition().leader_epoch == 1
    node.produce(b"a")
    assert shrunk_isr(node) == [[1]]


def test_step_of_the_wall_clock_neither_removes_nor_keeps_followers(node: DataPlane) -> None:
    follower = Follower(node)
    node.clock.set_wall_ms(node.clock.now_ms() + 86_400_000)
    follower.fetch()
    node.produce(b"a")
    assert shrunk_isr(node) == []
    node.clock.set_wall_ms(node.clock.now_ms() - 2 * 86_400_000)
    node.clock.advance_ms(LAG_MS + 1)
    assert shrunk_isr(node) == [[1]]


def test_refused_session_request_is_no_contact(node: DataPlane) -> None:
    follower = Follower(node)
    node.clock.advance_ms(3_600_000)
    follower.skip_a_request()
    assert follower.fetch() == 0
    node.produce(b"a")
    assert shrunk_isr(node) == [[1]]


@pytest.mark.parametrize("wait_ms", [0, 500])
def test_late_fetch_of_an_abandoned_connection_does_not_remove_the_follower(node: DataPlane, wait_ms: int) -> None:
    """Regression: the leader took the old position for the present one, and an idle session never corrected it."""
    follower = Follower(node)
    node.produce(b"a")
    follower.fetch((0, 1))
    follower.fetch()
    node.clock.advance_ms(3_600_000)
    follower.fetch(wait_ms=wait_ms)
    Follower(node, like=follower)
    assert shrunk_isr(node) == []
    node.clock.advance_ms(500)
    follower.fetch()
    node.clock.advance_ms(3_600_000)
    follower.fetch()
    assert shrunk_isr(node) == []

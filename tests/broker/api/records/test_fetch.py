"""Fetch, key 1 (`broker.api.records.fetch`), with reads and sessions (`broker.fetch`)."""

import errno
from collections.abc import Sequence

import pytest

from broker.api.records.fetch import CONSUMER_ERRORS
from broker.build_form import COMPILED, build_form
from broker.fetch.replica_selector import RackAwareReplicaSelector
from broker.fetch.sessions import JUDGED_PER_REQUEST
from protocol.errors import ErrorCode
from protocol.ids import BrokerId
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from protocol.primitives import ZERO_UUID, Uuid
from protocol.records.batch import iter_headers
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import LogConfig
from storage.producer_state import Origin
from tests.support.harnesses.data_plane import Answer, DataPlane, batch, topic_id

BY_NAME = 12
LATEST = 18
PATCHES_THE_LOG = pytest.mark.skipif(build_form() == COMPILED, reason="compiled callers do not see a patched Log.read")


@pytest.fixture
def node() -> DataPlane:
    return DataPlane()


class Reader:
    """Sends fetches without any state; each test states the positions."""

    def __init__(self, node: DataPlane) -> None:
        self.node = node
        self.handler = node.fetch_handler()

    def send(self, request: FetchRequest, version: int = BY_NAME) -> Answer[FetchResponse]:
        self.context = self.node.context(version)
        return Answer(self.handler(request, self.context))

    def fetch(
        self,
        *partitions: FetchPartition,
        topic: str = "t",
        identity: Uuid = ZERO_UUID,
        version: int = BY_NAME,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1_000_000,
        committed: bool = False,
        session: tuple[int, int] = (0, -1),
        forgotten: Sequence[int] = (),
        replica: int = -1,
    ) -> Answer[FetchResponse]:
        request = FetchRequest(
            replica_id=replica if version < 15 else -1,
            replica_state=ReplicaState(replica, 1 if replica >= 0 else -1),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(topic, identity, list(partitions))] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic, identity, list(forgotten))] if forgotten else [],
        )
        return self.send(request, version)


@pytest.fixture
def reader(node: DataPlane) -> Reader:
    return Reader(node)


def at(
    offset: int, index: int = 0, *, epoch: int = -1, last_epoch: int = -1, max_bytes: int = 100_000
) -> FetchPartition:
    return FetchPartition(index, epoch, offset, last_epoch, 0, max_bytes)


def entries(answer: Answer[FetchResponse]) -> list[PartitionData]:
    return [entry for topic in answer.value.responses for entry in topic.partitions]


def only(answer: Answer[FetchResponse]) -> PartitionData:
    (entry,) = entries(answer)
    return entry


def base_offsets(entry: PartitionData) -> list[int]:
    assert entry.records is not None
    return [header.base_offset for _, header in iter_headers(entry.records)]


class TestReading:
    def test_fetch_returns_batches_from_the_one_with_the_offset(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        for _ in range(3):
            node.produce(b"a", b"b")
        entry = only(reader.fetch(at(3)))
        assert base_offsets(entry) == [2, 4]
        assert (entry.error_code, entry.high_watermark, entry.last_stable_offset, entry.log_start_offset) == (
            0,
            6,
            6,
            0,
        )
        assert entry.aborted_transactions is None

    def test_topics_are_read_by_id(self, node: DataPlane, reader: Reader) -> None:
        identity = node.create_topic()
        node.produce(b"a")
        answer = reader.fetch(at(0), topic="", identity=identity, version=LATEST)
        assert base_offsets(only(answer)) == [0]
        assert answer.value.responses[0].topic_id == identity
        unknown = only(reader.fetch(at(0), topic="", identity=topic_id(77), version=LATEST))
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def test_response_is_empty_at_the_log_end(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        node.produce(b"a")
        entry = only(reader.fetch(at(1)))
        assert (entry.error_code, entry.records, entry.high_watermark) == (0, b"", 1)

    @pytest.mark.parametrize("offset", [0, 5])
    def test_offset_outside_of_the_log_is_out_of_range(self, node: DataPlane, reader: Reader, offset: int) -> None:
        node.create_topic()
        node.produce(b"a", b"b")
        node.partition().record_deletion.delete_records(1)
        entry = only(reader.fetch(at(offset)))
        assert (entry.error_code, entry.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)

    def test_consumers_read_committed_records_only(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic(replicas=(1, 2))
        node.produce(b"a")
        entry = only(reader.fetch(at(0)))
        assert (entry.error_code, entry.records, entry.high_watermark) == (0, b"", 0)
        between = only(reader.fetch(at(1)))
        assert between.error_code == 0

    def test_partitions_are_listed_in_request_order_by_topic(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic("t", 3)
        node.create_topic("u")
        topics = [FetchTopic("t", ZERO_UUID, [at(0, 2), at(0, 0)]), FetchTopic("u", ZERO_UUID, [at(0)])]
        response = reader.send(FetchRequest(topics=topics)).value
        assert [(t.topic, [p.partition_index for p in t.partitions]) for t in response.responses] == [
            ("t", [2, 0]),
            ("u", [0]),
        ]

    def test_traffic_is_counted(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic(replicas=(1, 2))
        node.produce(b"a")
        size = len(batch(b"a"))
        reader.fetch(at(0), replica=2)
        reader.fetch(at(1), replica=2)
        reader.fetch(at(0))
        reader.fetch(at(99))
        traffic = node.partitions.traffic.topic("t")
        assert (traffic.total_fetch_requests, traffic.failed_fetch_requests) == (4, 1)
        assert (traffic.bytes_out, traffic.replication_bytes_out) == (size, size)


class TestIsolation:
    def transactional(self, node: DataPlane, *values: bytes) -> None:
        one = batch(*values, producer_id=9, producer_epoch=0, sequence=0, transactional=True)
        node.partition().append(one, 1)

    def test_read_committed_ends_at_the_last_stable_offset(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        node.produce(b"a")
        self.transactional(node, b"b")
        entry = only(reader.fetch(at(0), committed=True))
        assert (base_offsets(entry), entry.last_stable_offset, entry.high_watermark) == ([0], 1, 2)
        assert entry.aborted_transactions == []
        assert base_offsets(only(reader.fetch(at(0)))) == [0, 1]

    def test_aborted_transactions_are_listed_and_not_filtered(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        node.produce(b"a")
        self.transactional(node, b"b")
        marker = end_transaction_marker(ControlType.ABORT, 9, 0, 0, node.clock.now_ms())
        node.partition().append(bytearray(marker), 1, Origin.COORDINATOR)
        entry = only(reader.fetch(at(0), committed=True))
        assert base_offsets(entry) == [0, 1, 2]
        assert entry.aborted_transactions is not None
        assert [(t.producer_id, t.first_offset) for t in entry.aborted_transactions] == [(9, 1)]

    def test_end_of_a_transaction_wakes_a_read_committed_consumer(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        self.transactional(node, b"b")
        answer = reader.fetch(at(0), committed=True, max_wait_ms=500)
        assert answer.is_waiting
        marker = end_transaction_marker(ControlType.COMMIT, 9, 0, 0, node.clock.now_ms())
        node.partition().append(bytearray(marker), 1, Origin.COORDINATOR)
        node.loop.run_soon()
        assert base_offsets(only(answer)) == [0, 1]


class TestLimits:
    def produced(self, node: DataPlane, partitions: int = 2, batches: int = 4) -> int:
        node.create_topic("t", partitions)
        for index in range(partitions):
            for _ in range(batches):
                node.produce(b"x" * 100, index=index)
        return len(batch(b"x" * 100))

    def test_partition_returns_batches_within_its_limit(self, node: DataPlane, reader: Reader) -> None:
        size = self.produced(node)
        entry = only(reader.fetch(at(0, max_bytes=2 * size + 5)))
        assert base_offsets(entry) == [0, 1]

    def test_first_batch_of_a_response_is_whole_beyond_the_limits(self, node: DataPlane, reader: Reader) -> None:
        self.produced(node)
        first, second = entries(reader.fetch(at(0, 0, max_bytes=1), at(0, 1, max_bytes=1), max_bytes=1))
        assert base_offsets(first) == [0]
        assert base_offsets(second) == []

    def test_partitions_share_the_response_limit_in_order(self, node: DataPlane, reader: Reader) -> None:
        size = self.produced(node)
        first, second = entries(reader.fetch(at(0, 0), at(0, 1), max_bytes=5 * size))
        assert (len(base_offsets(first)), len(base_offsets(second))) == (4, 1)

    def test_broker_limits_the_response_size(self, node: DataPlane) -> None:
        size = self.produced(node)
        reader = Reader(node)
        reader.handler = node.fetch_handler(max_bytes=2 * size)
        first, second = entries(reader.fetch(at(0, 0), at(0, 1)))
        assert (len(base_offsets(first)), len(base_offsets(second))) == (2, 0)


class TestWaiting:
    def test_available_records_are_returned_at_once(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        node.produce(b"a")
        assert not reader.fetch(at(0), max_wait_ms=500).is_waiting

    def test_new_records_end_the_wait(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic("t", 2)
        answer = reader.fetch(at(0, 0), at(0, 1), max_wait_ms=500)
        assert answer.is_waiting
        node.produce(b"a", index=1)
        node.loop.run_soon()
        assert [base_offsets(entry) for entry in entries(answer)] == [[], [0]]
        assert len(node.deadlines) == 0

    def test_response_is_empty_after_the_maximum_wait(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        answer = reader.fetch(at(0), max_wait_ms=500)
        node.advance_ms(499)
        assert answer.is_waiting
        node.advance_ms(1)
        assert only(answer).records == b""

    def test_fetch_waits_for_min_bytes(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic("t", 2)
        size = len(batch(b"x"))
        answer = reader.fetch(at(0, 0), at(0, 1), max_wait_ms=500, min_bytes=3 * size)
        for index in (0, 1):
            node.produce(b"x", index=index)
            node.loop.run_soon()
            assert answer.is_waiting
        node.produce(b"x", index=0)
        node.loop.run_soon()
        assert [base_offsets(entry) for entry in entries(answer)] == [[0, 1], [0]]

    def test_fewer_than_min_bytes_are_returned_after_the_wait(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        answer = reader.fetch(at(0), max_wait_ms=500, min_bytes=100_000)
        node.produce(b"a")
        node.advance_ms(500)
        assert base_offsets(only(answer)) == [0]

    def test_errors_are_returned_at_once(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        answer = reader.fetch(at(0, 0), at(0, 9), max_wait_ms=500)
        assert [entry.error_code for entry in entries(answer)] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def test_leader_change_ends_the_wait(self, node: DataPlane, reader: Reader) -> None:
        identity = node.create_topic(replicas=(1, 2))
        answer = reader.fetch(at(0, epoch=0), max_wait_ms=500)
        node.elect(identity, 2)
        assert only(answer).error_code == ErrorCode.FENCED_LEADER_EPOCH

    def test_deletion_ends_the_wait(self, node: DataPlane, reader: Reader) -> None:
        identity = node.create_topic()
        answer = reader.fetch(at(0), max_wait_ms=500)
        node.delete_topic(identity)
        assert only(answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_uncommitted_records_do_not_end_the_wait(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic(replicas=(1, 2))
        answer = reader.fetch(at(0), max_wait_ms=500)
        node.produce(b"a")
        node.loop.run_soon()
        assert answer.is_waiting
        reader.fetch(at(1), replica=2)
        node.loop.run_soon()
        assert base_offsets(only(answer)) == [0]

    def test_end_of_a_segment_is_returned_below_min_bytes(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic(config=LogConfig(segment_bytes=len(batch(b"a")) + 10))
        node.produce(b"a")
        node.produce(b"b")
        answer = reader.fetch(at(0), max_wait_ms=500, min_bytes=100_000)
        assert base_offsets(only(answer)) == [0]

    def test_end_of_input_is_answered_with_available_records(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        node.produce(b"a")
        answer = reader.fetch(at(0), max_wait_ms=2**31 - 1, min_bytes=100_000)
        reader.context.request.on_input_ended()
        assert base_offsets(only(answer)) == [0]
        assert len(node.deadlines) == 0
        assert not node.partition().marks.armed

    def test_disconnected_reader_leaves_no_state(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        answer = reader.fetch(at(0), max_wait_ms=500)
        answer.cancel()
        node.loop.run_soon()
        assert len(node.deadlines) == 0
        assert not node.partition().marks.armed
        node.produce(b"a")
        node.loop.run_soon()
        assert node.loop.failures == []


class TestColdRecords:
    """Records that are not in memory: the IO thread reads them before the response leaves."""

    @pytest.fixture(autouse=True)
    def cold(self, node: DataPlane) -> None:
        node.create_topic()
        node.produce(b"x" * 100_000)
        node.memory.is_cold = True
        node.io.is_held = True

    def test_response_waits_for_the_disk(self, node: DataPlane, reader: Reader) -> None:
        answer = reader.fetch(at(0))
        assert answer.is_waiting
        node.io.release()
        node.loop.run_soon()
        assert base_offsets(only(answer)) == [0]

    def test_disk_failure_during_the_wait_is_reported(self, node: DataPlane, reader: Reader) -> None:
        answer = reader.fetch(at(0))
        node.partition().log.fail(OSError(errno.EIO, "unreadable"))
        node.io.release()
        node.loop.run_soon()
        assert only(answer).error_code == ErrorCode.KAFKA_STORAGE_ERROR


class TestEpochs:
    @pytest.mark.parametrize(("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (1, 0), (2, 75)])
    def test_readers_are_fenced(self, node: DataPlane, reader: Reader, epoch: int, error: int) -> None:
        identity = node.create_topic()
        node.elect(identity, 1)
        assert only(reader.fetch(at(0, epoch=epoch))).error_code == error

    def test_diverging_reader_gets_the_diverging_epoch(self, node: DataPlane, reader: Reader) -> None:
        identity = node.create_topic()
        node.produce(b"a", b"b")
        node.elect(identity, 1)
        node.produce(b"c")
        entry = only(reader.fetch(at(3, last_epoch=0), max_wait_ms=500))
        assert (entry.error_code, entry.records) == (0, b"")
        assert (entry.diverging_epoch.epoch, entry.diverging_epoch.end_offset) == (0, 2)
        assert only(reader.fetch(at(2, last_epoch=0))).diverging_epoch.epoch == -1

    def test_unknown_last_fetched_epoch_is_out_of_range(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        node.produce(b"a")
        assert only(reader.fetch(at(1, last_epoch=7))).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_consumers_of_version_11_may_read_from_a_follower(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic(replicas=(1, 2), leader=2)
        assert only(reader.fetch(at(0), version=11)).error_code == 0
        assert only(reader.fetch(at(0), version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_fenced_reader_gets_the_current_leader(self, node: DataPlane, reader: Reader) -> None:
        """KIP-951, from version 16 on."""
        node.register_broker(2)
        identity = node.create_topic(replicas=(1, 2))
        node.elect(identity, 2)
        answer = reader.fetch(at(0, epoch=0), topic="", identity=identity, version=16)
        assert (only(answer).current_leader.leader_id, only(answer).current_leader.leader_epoch) == (2, 1)
        assert [(n.node_id, n.host, n.port) for n in answer.value.node_endpoints] == [(2, "host-2", 9002)]
        old = reader.fetch(at(0, epoch=0), topic="", identity=identity, version=15)
        assert only(old).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert only(old).current_leader.leader_id == -1
        assert old.value.node_endpoints == []


class FollowerSession:
    """The fetch session of broker 2 for the first partitions of a topic."""

    def __init__(self, reader: Reader, identity: Uuid) -> None:
        self.identity = identity
        self._reader = reader
        self._id = 0
        self._epoch = 0

    def open(self, partitions: int = 1) -> None:
        self._id = self._send(0, *(at(0, index) for index in range(partitions))).value.session_id

    def fetch(self, *, wait_ms: int = 0) -> Answer[FetchResponse]:
        """Send a request that names no partition."""
        return self._send(wait_ms)

    def reads(self, node: DataPlane) -> int:
        """Return the number of partitions that the next request reads."""
        traffic = node.partitions.traffic.topic("t")
        before = traffic.total_fetch_requests
        self.fetch()
        return traffic.total_fetch_requests - before

    def _send(self, wait_ms: int, *partitions: FetchPartition) -> Answer[FetchResponse]:
        session, self._epoch = (self._id, self._epoch), self._epoch + 1
        return self._reader.fetch(
            *partitions,
            topic="",
            identity=self.identity,
            version=LATEST,
            session=session,
            replica=2,
            max_wait_ms=wait_ms,
        )


class TestFollowers:
    def test_follower_fetch_at_the_log_end_commits_records(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic(replicas=(1, 2))
        node.produce(b"a")
        entry = only(reader.fetch(at(0), replica=2))
        assert (base_offsets(entry), entry.high_watermark) == ([0], 0)
        again = only(reader.fetch(at(1), replica=2))
        assert again.error_code == 0
        assert node.partition().log.high_watermark == 1

    def test_follower_waits_at_the_log_end(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic(replicas=(1, 2))
        answer = reader.fetch(at(0), replica=2, max_wait_ms=500)
        node.produce(b"a")
        node.loop.run_soon()
        assert base_offsets(only(answer)) == [0]

    def test_broker_without_a_replica_is_refused(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic(replicas=(1, 2))
        assert only(reader.fetch(at(0, epoch=0), replica=3)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert only(reader.fetch(at(0), replica=3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_fetch_with_an_old_broker_epoch_is_ignored(self, node: DataPlane, reader: Reader) -> None:
        identity = node.create_topic(replicas=(1, 2))
        node.register_broker(2, epoch=50)
        stale = reader.fetch(at(0), topic="", identity=identity, replica=2, version=15)
        assert only(stale).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestRejoiningFollower:
    """Broker 2 lacks nothing of an idle partition and is out of the ISR: a fetch of its session proposes it."""

    @pytest.fixture
    def follower(self, node: DataPlane, reader: Reader) -> FollowerSession:
        node.register_broker(2)
        return FollowerSession(reader, node.create_topic(replicas=(1, 2), isr=(1,)))

    def test_unfenced_follower_is_proposed_with_the_next_fetch(
        self, node: DataPlane, follower: FollowerSession
    ) -> None:
        node.register_broker(2, fenced=True)
        follower.open()
        follower.fetch()
        node.loop.run_soon()
        assert node.controller.under_way == []
        node.register_broker(2)
        follower.fetch()
        assert node.controller.answer() == [[1, 2]]

    def test_unfenced_follower_of_many_partitions_is_proposed_by_several_requests(
        self, node: DataPlane, reader: Reader
    ) -> None:
        """Requests before the last one do not wait."""
        count = JUDGED_PER_REQUEST + 1
        follower = FollowerSession(reader, node.create_topic(partitions=count, replicas=(1, 2), isr=(1,)))
        node.register_broker(2, fenced=True)
        follower.open(count)
        node.register_broker(2)
        before = node.partitions.traffic.topic("t").total_fetch_requests
        assert not follower.fetch(wait_ms=500).value.responses
        assert node.partitions.traffic.topic("t").total_fetch_requests - before == JUDGED_PER_REQUEST
        assert [follower.reads(node) for _ in range(2)] == [1, 0]

    def test_partition_of_a_fenced_follower_is_not_read_again(self, node: DataPlane, follower: FollowerSession) -> None:
        node.register_broker(2, fenced=True)
        follower.open()
        follower.fetch()
        assert follower.reads(node) == 0

    def test_partition_of_a_proposed_follower_is_not_read_again(
        self, node: DataPlane, follower: FollowerSession
    ) -> None:
        follower.open()
        assert follower.reads(node) == 0
        assert node.controller.answer() == [[1, 2]]
        assert follower.reads(node) == 0

    def test_refused_follower_is_proposed_again(self, node: DataPlane, follower: FollowerSession) -> None:
        follower.open()
        assert node.controller.answer(ErrorCode.INELIGIBLE_REPLICA) == [[1, 2]]
        follower.fetch()
        assert node.controller.answer() == [[1, 2]]

    def test_follower_that_is_fenced_for_a_moment_during_the_wait_is_proposed(
        self, node: DataPlane, follower: FollowerSession
    ) -> None:
        """The broker may join the ISR at both requests; a read during the wait, while it is fenced, must not count."""
        follower.open()
        follower.fetch(wait_ms=500)
        node.register_broker(2, fenced=True)
        assert node.controller.answer(ErrorCode.INELIGIBLE_REPLICA) == [[1, 2]]
        node.register_broker(2)
        node.loop.advance(0.5)
        follower.fetch()
        assert node.controller.answer() == [[1, 2]]

    @pytest.mark.parametrize("waits", [False, True])
    def test_follower_that_leaves_the_isr_while_resting_is_proposed(
        self, node: DataPlane, follower: FollowerSession, *, waits: bool
    ) -> None:
        """A re-registered broker is removed from in-sync sets after its fetches have begun."""
        node.change_isr(follower.identity, 1, 2)
        follower.open()
        pending = follower.fetch(wait_ms=500) if waits else None
        node.change_isr(follower.identity, 1)
        node.loop.advance(0.5)
        assert pending is None or not pending.value.responses
        follower.fetch()
        assert node.controller.answer() == [[1, 2]]


class ListedQuota:
    """A LeaderQuota for one topic; the test sets whether it is exceeded."""

    def __init__(self) -> None:
        self.exceeded = False
        self.recorded: list[int] = []

    def is_listed(self, topic: str, partition: int) -> bool:
        return topic == "listed"

    def is_exceeded(self, now_ms: float) -> bool:
        return self.exceeded

    def record(self, size_bytes: int, now_ms: float) -> None:
        self.recorded.append(size_bytes)


class TestThrottle:
    """Throttled replication on the leader (KIP-73)."""

    @pytest.fixture
    def quota(self, node: DataPlane, reader: Reader) -> ListedQuota:
        quota = ListedQuota()
        reader.handler = node.fetch_handler(quota=quota)
        return quota

    def test_out_of_sync_replica_gets_no_records_beyond_the_quota(
        self, node: DataPlane, reader: Reader, quota: ListedQuota
    ) -> None:
        node.create_topic("listed", replicas=(1, 2), isr=(1,))
        node.produce(b"a", topic="listed")
        quota.exceeded = True
        answer = reader.fetch(at(0), topic="listed", replica=2, max_wait_ms=500)
        assert answer.is_waiting
        node.produce(b"b", topic="listed")
        node.loop.run_soon()
        assert answer.is_waiting
        quota.exceeded = False
        node.advance_ms(500)
        assert base_offsets(only(answer)) == [0, 1]

    def test_throttled_response_has_offsets_without_records(
        self, node: DataPlane, reader: Reader, quota: ListedQuota
    ) -> None:
        node.create_topic("listed", replicas=(1, 2), isr=(1,))
        node.produce(b"a", topic="listed")
        quota.exceeded = True
        entry = only(reader.fetch(at(0), topic="listed", replica=2))
        assert (entry.error_code, entry.records, entry.log_start_offset) == (0, b"", 0)
        assert node.partition("listed").leader_role.followers[BrokerId(2)].log_end_offset == 0
        assert quota.recorded == []

    def test_in_sync_and_unlisted_replicas_and_consumers_are_not_throttled(
        self, node: DataPlane, reader: Reader, quota: ListedQuota
    ) -> None:
        node.create_topic("listed", replicas=(1, 2))
        node.create_topic("other", replicas=(1, 2), isr=(1,))
        quota.exceeded = True
        for topic in ("listed", "other"):
            node.produce(b"a", topic=topic)
            assert base_offsets(only(reader.fetch(at(0), topic=topic, replica=2))) == [0]
        reader.fetch(at(1), topic="listed", replica=2)
        assert base_offsets(only(reader.fetch(at(0), topic="listed"))) == [0]

    def test_quota_counts_records_for_all_listed_replicas(
        self, node: DataPlane, reader: Reader, quota: ListedQuota
    ) -> None:
        node.create_topic("listed", replicas=(1, 2, 3), isr=(1, 2))
        node.create_topic("other", replicas=(1, 2))
        node.produce(b"a", topic="listed")
        node.produce(b"a", topic="other")
        reader.fetch(at(0), topic="listed", replica=2)
        reader.fetch(at(0), topic="listed", replica=3)
        reader.fetch(at(0), topic="other", replica=2)
        reader.fetch(at(0), topic="listed")
        assert quota.recorded == [node.partition("listed").log.size_bytes] * 2


class TestNearbyReplica:
    """Redirects to a nearer replica (KIP-392); broker N is in rack-N."""

    @pytest.fixture
    def near(self, node: DataPlane) -> Reader:
        for broker in (2, 3):
            node.register_broker(broker)
        node.create_topic(replicas=(1, 2, 3), isr=(1, 2))
        node.produce(b"a")
        reader = Reader(node)
        for replica in (2, 3):
            reader.fetch(at(1), replica=replica)
        reader.handler = node.fetch_handler(replica_selector=RackAwareReplicaSelector(lambda: node.image, node.clock))
        return reader

    def ask(self, reader: Reader, rack: str, offset: int = 0, version: int = BY_NAME, **more: int) -> PartitionData:
        epoch = more.get("epoch", -1)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1_000_000,
            rack_id=rack,
            replica_id=more.get("replica", -1),
            topics=[FetchTopic("t", ZERO_UUID, [at(offset, epoch=epoch)])],
        )
        return only(reader.send(request, version))

    def test_consumer_is_redirected_to_the_in_sync_replica_in_its_rack(self, near: Reader) -> None:
        entry = self.ask(near, "rack-2")
        assert (entry.error_code, entry.preferred_read_replica, entry.records) == (0, 2, b"")
        assert (entry.high_watermark, entry.last_stable_offset, entry.log_start_offset) == (1, 1, 0)

    def test_consumer_reads_from_the_leader_in_any_other_rack(self, near: Reader) -> None:
        for rack in ("rack-1", "rack-9", ""):
            entry = self.ask(near, rack)
            assert (entry.preferred_read_replica, base_offsets(entry)) == (-1, [0])

    def test_out_of_sync_replica_is_not_selected(self, near: Reader) -> None:
        assert self.ask(near, "rack-3").preferred_read_replica == -1

    def test_replica_without_the_offset_is_not_selected(self, node: DataPlane, near: Reader) -> None:
        node.partition().leader_role.followers[BrokerId(2)].log_start_offset = 1
        assert self.ask(near, "rack-2").preferred_read_replica == -1

    def test_fenced_replica_is_not_selected(self, node: DataPlane, near: Reader) -> None:
        node.register_broker(2, fenced=True)
        assert self.ask(near, "rack-2").preferred_read_replica == -1

    def test_old_consumers_and_followers_are_not_redirected(self, near: Reader) -> None:
        assert base_offsets(self.ask(near, "rack-2", version=10)) == [0]
        assert base_offsets(self.ask(near, "rack-2", replica=2)) == [0]

    def test_fenced_consumer_gets_the_epoch_error_first(self, near: Reader) -> None:
        assert self.ask(near, "rack-2", epoch=7).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    def test_follower_redirects_no_consumer(self, node: DataPlane, near: Reader) -> None:
        node.create_topic("followed", replicas=(1, 2), leader=2)
        request = FetchRequest(rack_id="rack-2", topics=[FetchTopic("followed", ZERO_UUID, [at(0)])])
        assert only(near.send(request)).preferred_read_replica == -1


class TestSessions:
    """Sessions through the API (KIP-227); their rules are tested in test_sessions.py."""

    def open(self, reader: Reader, *partitions: FetchPartition) -> int:
        return reader.fetch(*partitions, session=(0, 0)).value.session_id

    def test_incremental_fetch_lists_only_news(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic("t", 3)
        session = self.open(reader, at(0, 0), at(0, 1), at(0, 2))
        node.produce(b"a", index=1)
        answer = reader.fetch(session=(session, 1))
        assert (answer.value.session_id, only(answer).partition_index) == (session, 1)
        calm = reader.fetch(at(1, 1), session=(session, 2))
        assert entries(calm) == []

    def test_session_waits_for_any_of_its_partitions(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic("t", 3)
        session = self.open(reader, at(0, 0), at(0, 1), at(0, 2))
        answer = reader.fetch(session=(session, 1), max_wait_ms=500)
        node.produce(b"a", index=2)
        node.loop.run_soon()
        assert only(answer).partition_index == 2

    @PATCHES_THE_LOG
    def test_idle_partitions_are_not_read(
        self, node: DataPlane, reader: Reader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node.create_topic("t", 200)
        session = self.open(reader, *(at(0, index) for index in range(200)))
        looks = 0
        read = type(node.partition().log).read

        def counted(*arguments: object, **named: object) -> object:
            nonlocal looks
            looks += 1
            return read(*arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(type(node.partition().log), "read", counted)
        answer = reader.fetch(session=(session, 1), max_wait_ms=500)
        node.produce(b"a", index=77)
        node.loop.run_soon()
        assert only(answer).partition_index == 77
        assert looks == 1

    def test_new_high_watermark_is_listed_but_wakes_no_reader(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic(replicas=(1, 2))
        node.produce(b"a")
        session = reader.fetch(at(1), session=(0, 0), replica=2).value.session_id
        assert node.partition().log.high_watermark == 1
        answer = reader.fetch(session=(session, 1), replica=2, max_wait_ms=500)
        assert answer.is_waiting
        node.advance_ms(500)
        assert (only(answer).high_watermark, only(answer).records) == (1, b"")

    def test_forgotten_partitions_are_removed(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic("t", 2)
        session = self.open(reader, at(0, 0), at(0, 1))
        node.produce(b"a", index=1)
        assert entries(reader.fetch(session=(session, 1), forgotten=[1])) == []

    def test_topic_id_that_becomes_known_is_served(self, node: DataPlane, reader: Reader) -> None:
        first = reader.fetch(at(0), topic="", identity=topic_id(1), version=LATEST, session=(0, 0))
        assert only(first).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        session = first.value.session_id
        assert node.create_topic() == topic_id(1)
        node.produce(b"a")
        again = reader.fetch(version=LATEST, session=(session, 1))
        assert base_offsets(only(again)) == [0]

    def test_session_errors_list_no_partitions(self, node: DataPlane, reader: Reader) -> None:
        response = reader.fetch(at(0), session=(99, 3)).value
        assert (response.error_code, response.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        assert response.responses == []

    def test_recreated_topic_is_watched_again(self, node: DataPlane, reader: Reader) -> None:
        identity = node.create_topic()
        session = self.open(reader, at(0))
        node.delete_topic(identity)
        removed = reader.fetch(session=(session, 1), max_wait_ms=500)
        assert only(removed).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        node.create_topic()
        answer = reader.fetch(session=(session, 2), max_wait_ms=500)
        node.produce(b"a")
        node.loop.run_soon()
        assert base_offsets(only(answer)) == [0]


class TestErrorsForConsumers:
    """The Java consumer stops at any error code outside of a small set."""

    def test_old_versions_get_not_leader_for_storage_errors(self, node: DataPlane, reader: Reader) -> None:
        node.create_topic()
        node.memory.fail("write", path_part="t-0")
        with pytest.raises(Exception, match="KAFKA_STORAGE_ERROR"):
            node.produce(b"a")
        node.loop.run_soon()
        assert only(reader.fetch(at(0))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert only(reader.fetch(at(0), version=5)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    @pytest.mark.parametrize("code", [code for code in ErrorCode if code not in CONSUMER_ERRORS])
    def test_consumers_get_only_known_error_codes(
        self, node: DataPlane, reader: Reader, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
    ) -> None:
        monkeypatch.setattr(node.partitions, "absence_error", lambda topic, index: code)
        assert only(reader.fetch(at(0))).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

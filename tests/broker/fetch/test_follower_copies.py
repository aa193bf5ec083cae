"""Reads from the local logs of followers (`broker.fetch.remote_reads.follower_copies`)."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker.fetch.remote_reads.follower_copies import FollowerCopies
from broker.fetch.remote_reads.replica_copies import ReplicaBatches
from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.net.peer import SocketAddress
from broker.runtime.partitions.offset_lookup import DEBUGGING_REPLICA_ID, EARLIEST_LOCAL
from broker.runtime.partitions.reads import FetchIsolation
from broker.runtime.remote_log.replica_lookups import ReplicaLookup
from broker.runtime.replication.fetch_transport import LeaderConnection, Unanswered
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.records.batch import iter_headers, patch
from storage.segment import FoundTimestamp
from tests.broker.fetch.test_remote_fetch_replicas import batches_at
from tests.support.harnesses.data_plane import batch
from tests.support.harnesses.tiered_plane import TieredPlane


class Follower:
    """A follower whose local log has the batches from `start` on."""

    def __init__(self, start: int, *numbers: int) -> None:
        self.start = start
        self.hint = -1
        """The response to look-ups by time."""
        self.records = batches_at(*numbers)
        self.code = ErrorCode.NONE
        self.is_exact = False
        """Whether a response begins with the batch of the requested offset."""
        self.is_down = False
        self.is_closed = False
        self.fetches: list[FetchRequest] = []

    def list_offsets(self, request: ListOffsetsRequest, done: Callable[[Any], None]) -> None:
        (topic,) = request.topics
        (asked,) = topic.partitions
        assert (request.replica_id, asked.current_leader_epoch) == (DEBUGGING_REPLICA_ID, 0)
        offset = self.start if asked.timestamp == EARLIEST_LOCAL else self.hint
        answer = ListOffsetsPartitionResponse(0, offset=offset)
        done(
            Unanswered("down")
            if self.is_down
            else ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [answer])])
        )

    def fetch(self, request: FetchRequest, done: Callable[[Any], None]) -> None:
        self.fetches.append(request)
        aborted = [AbortedTransaction(7, 0)] if request.isolation_level else None
        offset = request.topics[0].partitions[0].fetch_offset
        records = b"".join(
            self.records[start : start + header.size]
            for start, header in iter_headers(self.records)
            if header.last_offset >= offset or not self.is_exact
        )
        entry = PartitionData(0, self.code, aborted_transactions=aborted, records=records)
        done(FetchResponse(responses=[FetchableTopicResponse(partitions=[entry])]))

    def close(self) -> None:
        self.is_closed = True


class Cluster:
    """Broker 1 leads; 2 and 3 follow, and 3 is not in sync."""

    def __init__(self, second: Follower, third: Follower) -> None:
        self.plane = TieredPlane()
        self.plane.create_topic(replicas=(1, 2, 3), isr=(1, 2))
        self.followers = {2: second, 3: third}
        self.connects: list[SocketAddress] = []
        self.brokers = {
            BrokerId(each): SimpleNamespace(
                fenced=False, endpoints={"INTERNAL": RegisteredEndpoint(f"broker-{each}", 9092, 0)}
            )
            for each in (1, 2, 3)
        }
        image: Any = SimpleNamespace(brokers=self.brokers)
        self.copies = FollowerCopies(lambda: image, self, self.plane.loop, own_id=BrokerId(1), listener="INTERNAL")

    def connect(self, endpoint: SocketAddress, client_id: str) -> LeaderConnection:
        self.connects.append(endpoint)
        connection: Any = self.followers[int(endpoint.host.removeprefix("broker-"))]
        return connection  # type: ignore[no-any-return]

    def read(self, offset: int, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK) -> ReplicaBatches | None:
        work = self.copies.read(self.plane.partition(), offset, 1_000, isolation)
        with pytest.raises(StopIteration) as ended:
            work.send(None)
        found: ReplicaBatches | None = ended.value.value
        return found

    def search(self, timestamp: int, first: int, upper: int) -> ReplicaLookup | None:
        work = self.copies.first_at_or_after(self.plane.partition(), timestamp, first, upper)
        with pytest.raises(StopIteration) as ended:
            work.send(None)
        found: ReplicaLookup | None = ended.value.value
        return found


def timed(start: int, hint: int, *numbers: int) -> Follower:
    """Return a follower whose records have timestamps of 1000 times their offsets."""
    follower = Follower(start)
    follower.hint, follower.is_exact = hint, True
    for offset in numbers:
        each = batch(b"%d" % offset, timestamp=1000 * offset)
        patch(each, 0, offset, LeaderEpoch(3))
        follower.records += each
    return follower


def record(offset: int) -> ReplicaLookup:
    return ReplicaLookup(FoundTimestamp(1000 * offset, offset, LeaderEpoch(3)))


def test_look_up_finds_a_committed_record_of_a_follower() -> None:
    cluster = Cluster(timed(4, 6, 4, 5, 6, 7), Follower(9))
    assert cluster.search(5_500, 4, 8) == record(6)


def test_look_up_begins_at_the_first_offset_of_the_range() -> None:
    assert Cluster(timed(2, 2, 2, 3, 4, 5), Follower(9)).search(0, 4, 6) == record(4)


@pytest.mark.parametrize("hint", [-1, 6])
def test_look_up_of_a_later_time_needs_the_end_of_the_range(hint: int) -> None:
    assert Cluster(timed(2, hint, 2, 3, 4, 5), Follower(9)).search(6_000, 2, 6) == ReplicaLookup(None)
    assert Cluster(timed(2, hint, 2, 3, 4), Follower(9)).search(6_000, 2, 6) is None


def test_look_up_never_finds_an_uncommitted_record() -> None:
    assert Cluster(timed(2, 5, 2, 3, 4), timed(2, 5, 2, 3, 4, 5)).search(4_500, 2, 6) == record(5)


def test_look_up_asks_no_follower_whose_local_log_begins_later() -> None:
    cluster = Cluster(timed(3, 3, 3, 4), timed(4, 4, 4))
    assert cluster.search(0, 2, 4) is None
    assert [len(each.fetches) for each in cluster.followers.values()] == [0, 0]


def test_in_sync_follower_is_preferred() -> None:
    cluster = Cluster(Follower(0, 5, 6), Follower(0, 5, 6))
    assert cluster.read(5) == ReplicaBatches(memoryview(batches_at(5, 6)), None)
    assert [len(each.fetches) for each in cluster.followers.values()] == [1, 0]
    (request,) = cluster.followers[2].fetches
    (wanted,) = request.topics[0].partitions
    assert (wanted.fetch_offset, wanted.current_leader_epoch, wanted.partition_max_bytes) == (5, 0, 1_000)
    assert (request.replica_state.replica_id, request.max_wait_ms, request.isolation_level) == (-1, 0, 0)


def test_follower_whose_local_log_begins_later_is_not_fetched_from() -> None:
    cluster = Cluster(Follower(6, 6), Follower(5, 5, 6))
    assert cluster.read(5) is not None
    assert [len(each.fetches) for each in cluster.followers.values()] == [0, 1]


def test_no_follower_has_the_offset() -> None:
    assert Cluster(Follower(6, 6), Follower(9, 9)).read(5) is None


@pytest.mark.parametrize("fault", ["down", "error", "damaged", "below", "empty"])
def test_another_follower_replaces_a_failing_one(fault: str) -> None:
    failing = Follower(0, *((3, 4) if fault == "below" else (5, 6)))
    match fault:
        case "down":
            failing.is_down = True
        case "error":
            failing.code = ErrorCode.UNKNOWN_LEADER_EPOCH
        case "damaged":
            failing.records[-1] ^= 1
            failing.records[70] ^= 1
        case "empty":
            failing.records.clear()
    found = Cluster(failing, Follower(0, 5)).read(5)
    assert found is not None
    assert found.data == batches_at(5)


def test_damaged_batches_are_left_out() -> None:
    follower = Follower(0, 5, 6)
    follower.records[-1] ^= 1
    found = Cluster(follower, Follower(9)).read(5)
    assert found is not None
    assert found.data == batches_at(5)


def test_aborted_transactions_are_those_of_the_follower() -> None:
    found = Cluster(Follower(0, 5), Follower(9)).read(5, FetchIsolation.LAST_STABLE)
    assert found is not None
    assert found.aborted == [(7, 0)]


def test_fenced_and_unknown_brokers_are_not_queried() -> None:
    cluster = Cluster(Follower(0, 5), Follower(0, 5))
    cluster.brokers[BrokerId(2)].fenced = True
    del cluster.brokers[BrokerId(3)]
    assert cluster.read(5) is None
    assert cluster.connects == []


def test_connections_are_kept_and_closed() -> None:
    cluster = Cluster(Follower(0, 5), Follower(0, 5))
    assert cluster.read(5) is not None
    assert cluster.read(5) is not None
    assert len(cluster.connects) == 1
    cluster.copies.close()
    assert cluster.followers[2].is_closed


def test_only_the_leader_reads_from_followers() -> None:
    cluster = Cluster(Follower(0, 5), Follower(0, 5))
    cluster.plane.create_topic("followed", replicas=(2, 1), leader=2)
    work = cluster.copies.read(cluster.plane.partition("followed"), 5, 1_000, FetchIsolation.HIGH_WATERMARK)
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    assert ended.value.value is None

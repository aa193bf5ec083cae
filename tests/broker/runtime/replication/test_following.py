"""A follower with a real log, fetching through the leader's handlers of Fetch and ListOffsets."""

from collections import deque
from collections.abc import Callable
from typing import Any

from broker.api.records.list_offsets import ListOffsetsHandler
from broker.net.peer import SocketAddress
from broker.replication.fetch_plan import FetcherSettings, Sender
from broker.replication.fetch_state import FetchPhase
from broker.runtime.replication.fetch_transport import EpochEndsDone, FetchDone, OffsetsDone
from broker.runtime.replication.replica_fetcher_manager import ReplicaFetcherManager
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.primitives import Uuid
from storage.config import LogConfig
from tests.support.fakes.runtimes import make_runtime
from tests.support.harnesses.data_plane import BROKER_ID, LISTENER, Answer, DataPlane

FOLLOWER = 2  # the follower's id in the leader's metadata; in its own plane, each broker has id 1


class DirectConnection:
    """A connection that queues requests until the pair serves them."""

    def __init__(self, pair: "Pair") -> None:
        self._pair = pair

    def fetch(self, request: FetchRequest, done: FetchDone) -> None:
        self._pair.requests.append((request, done))

    def list_offsets(self, request: ListOffsetsRequest, done: OffsetsDone) -> None:
        self._pair.requests.append((request, done))

    def epoch_ends(self, request: OffsetForLeaderEpochRequest, done: EpochEndsDone) -> None:
        self._pair.requests.append((request, done))

    def close(self) -> None:
        """Drop the queue without answers: no test here needs them."""


class Pair:
    """Two brokers that host a partition; either may lead."""

    def __init__(self) -> None:
        self.requests: deque[tuple[Any, Callable[[Any], None]]] = deque()
        self.leader, self.follower = DataPlane(), DataPlane()
        self.identity = self._host(self.leader, leads=True)
        self._host(self.follower, leads=False)
        self.fetch = self.leader.fetch_handler(max_bytes=10_000_000)
        self.list_offsets = ListOffsetsHandler(self.leader.partitions)
        self.fetchers = ReplicaFetcherManager(
            make_runtime(self.follower.loop, deadlines=self.follower.deadlines),
            self,
            self.follower.metadata,
            lambda: Sender(BrokerId(FOLLOWER), BrokerEpoch(1)),
            listener=LISTENER,
            settings=FetcherSettings(),
            fetcher_count=lambda: 1,
        )
        self.fetchers.begin()

    def _host(self, plane: DataPlane, *, leads: bool) -> Uuid:
        plane.register_broker(FOLLOWER)
        return plane.create_topic(replicas=(BROKER_ID, FOLLOWER), leader=BROKER_ID if leads else FOLLOWER)

    def connect(self, endpoint: SocketAddress, client_id: str) -> DirectConnection:
        return DirectConnection(self)

    def begin_epoch(self, *, leads: bool = True) -> None:
        """Begin the next leader epoch, led by `leader` or by `follower`."""
        self.leader.elect(self.identity, BROKER_ID if leads else FOLLOWER)
        self.follower.elect(self.identity, FOLLOWER if leads else BROKER_ID)

    def follow(self) -> None:
        self.fetchers.follow(self.follower.partition().follower)
        self.serve()

    def serve(self, rounds: int = 12) -> None:
        """Let the leader answer this many requests at once."""
        self.follower.loop.run_soon()
        for _ in range(rounds):
            if not self.requests:
                break
            request, done = self.requests.popleft()
            done(self._answer(request))
            self.follower.loop.run_soon()

    def _answer(self, request: Any) -> Any:
        if isinstance(request, FetchRequest):
            request.max_wait_ms = 0
            answer: Answer[Any] = Answer(self.fetch(request, self.leader.context(17)))
        else:
            answer = Answer(self.list_offsets(request, self.leader.context(9)))
        self.leader.loop.run_soon()
        return answer.value

    def log_of(self, plane: DataPlane) -> bytes:
        log = plane.partition().log
        return bytes(log.read(log.log_start_offset, 10_000_000, log.log_end_offset).data)

    @property
    def agrees(self) -> bool:
        ours, theirs = self.leader.partition().log, self.follower.partition().log
        same_bounds = (ours.log_start_offset, ours.log_end_offset) == (theirs.log_start_offset, theirs.log_end_offset)
        return same_bounds and self.log_of(self.leader) == self.log_of(self.follower)

    @property
    def phase(self) -> FetchPhase:
        ((followed,),) = (fetcher.core.replicas.all() for fetcher in self.fetchers.fetchers())
        return followed.phase


def test_follower_gets_records_and_high_watermark_and_commits() -> None:
    pair = Pair()
    for value in (b"a", b"b", b"c"):
        pair.leader.produce(value)
    assert pair.leader.partition().log.high_watermark == 0
    pair.follow()
    assert pair.agrees
    assert pair.leader.partition().log.high_watermark == 3
    assert pair.follower.partition().log.high_watermark == 3
    assert pair.follower.partition().traffic.replication_bytes_in == len(pair.log_of(pair.leader))


def test_records_unflushed_on_a_follower_are_not_committed() -> None:
    """A crash of all replicas at once loses no acknowledged record with `flush.messages`."""
    pair = Pair()
    pair.follow()
    pair.follower.partition().configure(LogConfig(flush_messages=1))
    pair.follower.io.is_held = True
    pair.leader.produce(b"a")
    pair.serve()
    assert pair.agrees
    assert pair.leader.partition().log.high_watermark == 0
    pair.follower.io.release()
    pair.serve()
    assert pair.leader.partition().log.high_watermark == 1


def test_later_records_arrive_through_the_session() -> None:
    pair = Pair()
    pair.follow()
    for number in range(5):
        pair.leader.produce(b"%d" % number)
        pair.serve(4)
    assert pair.agrees
    assert len(pair.leader.sessions) == 1


def test_former_leader_truncates_its_uncommitted_records() -> None:
    pair = Pair()
    pair.leader.produce(b"common")
    pair.follow()
    pair.fetchers.unfollow(pair.follower.partition().follower)
    pair.serve()
    pair.begin_epoch(leads=False)
    pair.follower.produce(b"lost", b"too")
    pair.follower.produce(b"as well")
    pair.begin_epoch()
    pair.leader.produce(b"kept")
    pair.follow()
    assert pair.agrees
    assert pair.follower.partition().log.epochs.entries == pair.leader.partition().log.epochs.entries


def test_follower_several_epochs_behind_truncates_in_steps() -> None:
    pair = Pair()
    pair.leader.produce(b"common")
    pair.follow()
    pair.fetchers.unfollow(pair.follower.partition().follower)
    pair.serve()
    for number in range(4):
        pair.begin_epoch(leads=False)
        pair.follower.produce(*[b"f%d" % number] * (number + 1))
        pair.begin_epoch()
        pair.leader.produce(*[b"l%d" % number] * (4 - number))
    pair.follow()
    pair.serve(40)
    assert pair.agrees


def test_log_start_follows_the_leaders() -> None:
    pair = Pair()
    for value in (b"a", b"b", b"c"):
        pair.leader.produce(value)
    pair.follow()
    pair.leader.partition().record_deletion.delete_records(2)
    pair.serve()
    assert pair.follower.partition().log.log_start_offset == 2
    assert pair.leader.partition().low_watermark() == 2


def test_replica_below_the_leaders_log_start_restarts_there() -> None:
    pair = Pair()
    pair.leader.produce(b"a")
    pair.follow()
    pair.fetchers.unfollow(pair.follower.partition().follower)
    pair.serve()
    for value in (b"b", b"c", b"d"):
        pair.leader.produce(value)
    pair.leader.partition().log.advance_high_watermark(4)  # as after the follower left the ISR
    pair.leader.partition().record_deletion.delete_records(3)
    pair.follow()
    assert pair.phase is FetchPhase.FETCHING
    assert pair.agrees
    assert pair.follower.partition().log.log_start_offset == 3


def test_divergence_below_the_leaders_log_start_is_repaired() -> None:
    """The leader's log start is within a batch, and the leader has forgotten the epoch of the batch's first part. A
    replica at that very offset gets no diverging epoch."""
    pair = Pair()
    pair.leader.produce(b"common")
    pair.follow()
    pair.fetchers.unfollow(pair.follower.partition().follower)
    pair.serve()
    pair.begin_epoch(leads=False)
    pair.follower.produce(b"lost")
    pair.begin_epoch()
    pair.leader.produce(b"one", b"two", b"three")
    pair.leader.partition().log.advance_high_watermark(4)  # as after the follower left the ISR
    pair.leader.partition().record_deletion.delete_records(2)
    pair.follow()
    assert pair.phase is FetchPhase.FETCHING
    assert pair.agrees
    assert pair.follower.partition().log.log_start_offset == 2

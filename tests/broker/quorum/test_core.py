"""The quorum core alone: its Readys, commits, fetches and snapshots."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.quorum.appends import BatchTooLarge, NotLeader
from broker.quorum.core import QuorumCore
from broker.quorum.following import MAX_BATCHES
from broker.quorum.identity import ListenerEndpoint, SnapshotId, SocketAddress
from broker.quorum.messages import (
    ANY_HIGH_WATERMARK,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    SendFailure,
    VoteRequest,
    VoteResponse,
)
from broker.quorum.ready import (
    Append,
    ReadRecords,
    ReadSnapshotPage,
    Ready,
    SendRequest,
    StartAt,
    Trim,
    TruncateTo,
)
from broker.quorum.settings import QuorumSettings, Recovered, StoredSnapshot
from broker.quorum.state import LeaderState
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.messages.common_records import VotersRecord, VotersRecordVoter
from protocol.records.batch import parse_header
from protocol.records.builder import Record, build_batch
from protocol.records.compression import Codec
from protocol.records.control import ControlType, control_batch
from tests.scenarios.quorum.scenario import QuorumScenario
from tests.support.harnesses.quorum_harness import CLUSTER, Disk, FixedRandom, QuorumHarness, directory, listeners
from tests.support.quorum_values import (
    leader_and_epoch,
    log_position,
    make_begin_request,
    make_control_record,
    make_election_state,
    make_end_request,
    make_epoch_entry,
    make_fetch_request,
    make_fetch_response,
    make_fetch_snapshot_request,
    make_leader_hint,
    make_recovered,
    make_snapshot_id,
    make_vote_request,
    replica_key,
)

EMPTY = make_recovered(None, 0, 0, (), (), ())


class Driven:
    """The core of node 1 of three static voters, driven manually; times are in ms."""

    def __init__(
        self,
        recovered: Recovered = EMPTY,
        change: Callable[[QuorumSettings], QuorumSettings] = lambda settings: settings,
    ) -> None:
        self.harness = QuorumHarness()
        self.harness.static([1, 2, 3])
        self.settings = change(self.harness.nodes[1].settings)
        self.disk = Disk(directory(1))
        self.core = QuorumCore(self.settings, recovered, FixedRandom(0), self.harness.now)
        self.tokens = 0

    def at(self, ms: float) -> "Driven":
        self.harness._go_to(ms)
        return self

    def ask(self, request: Request) -> int:
        self.tokens += 1
        self.core.on_request(self.tokens, request, self.harness.now)
        return self.tokens

    def tick(self) -> None:
        self.core.tick(self.harness.now)

    def take(self) -> Ready:
        ready = self.core.take_ready()
        assert ready is not None, "no Ready is pending"
        return ready

    def persist(self, ready: Ready) -> None:
        self.core.persisted(ready, self.harness.now)

    def do(self) -> Ready:
        ready = self.take()
        self.persist(ready)
        return ready

    def settle(self) -> None:
        while (ready := self.core.take_ready()) is not None:
            self.persist(ready)

    def lead(self) -> "Driven":
        """Win epoch 1 with the vote of node 2. The first record is appended and not committed."""
        self.at(1000).tick()
        self.vote_of(2, self.do())
        self.vote_of(2, self.do())
        self.settle()
        assert self.core.facts.role == "leader"
        return self

    def vote_of(self, node_id: int, ready: Ready) -> None:
        sent = next(send for send in ready.requests if send.to_id == node_id)
        epoch = self.core.facts.epoch
        response = VoteResponse(ErrorCode.NONE, make_leader_hint(-1, epoch), granted=True)
        self.core.on_response(sent.serial, response, self.harness.now)

    def fetch_of(self, node_id: int, offset: int, last: int = 1, high_watermark: int = ANY_HIGH_WATERMARK) -> int:
        key = replica_key(node_id, directory(node_id))
        request = make_fetch_request(
            CLUSTER, key, self.core.facts.epoch, offset, last, 500, high_watermark=high_watermark
        )
        return self.ask(request)

    def follow(self, epoch: int = 1) -> "Driven":
        """Follow node 2."""
        self.ask(make_begin_request(CLUSTER, 2, epoch, None, listeners(2)))
        return self

    def answered_fetch(self, response: FetchResponse) -> None:
        """Complete the fetch in flight to node 2."""
        sent = next(send for send in self.do().requests if isinstance(send.request, FetchRequest))
        self.core.on_response(sent.serial, response, self.harness.now)


def answers(ready: Ready) -> dict[int, FetchResponse]:
    return {each.token: each.response for each in ready.responses if isinstance(each.response, FetchResponse)}


def reads(ready: Ready) -> dict[int, ReadRecords]:
    return {each.token: each for each in ready.responses if isinstance(each, ReadRecords)}


def data(offset: int, epoch: int, *values: bytes) -> bytes:
    return build_batch(
        [Record(0, None, value) for value in values or (b"x",)], base_offset=offset, leader_epoch=LeaderEpoch(epoch)
    )


def from_leader(records: bytes, committed: int = -1, epoch: int = 1) -> FetchResponse:
    return make_fetch_response(ErrorCode.NONE, make_leader_hint(2, epoch, listeners(2)), committed, 0, records=records)


# Readys and commits


def test_one_ready_is_in_progress_at_a_time() -> None:
    driven = Driven().at(1000)
    driven.tick()
    ready = driven.take()
    driven.ask(make_vote_request(CLUSTER, 9, replica_key(2), None, log_position(0, 0)))
    assert driven.core.take_ready() is None
    driven.persist(ready)
    assert driven.take().responses


def test_vote_is_written_in_the_same_ready_as_its_response() -> None:
    driven = Driven()
    driven.settle()
    token = driven.ask(make_vote_request(CLUSTER, 5, replica_key(2, directory(2)), None, log_position(0, 0)))
    ready = driven.take()
    assert ready.state == make_election_state(5, -1, 2, version=0)
    assert [each.token for each in ready.responses] == [token]


def granted(driven: Driven, epoch: int, *, pre_vote: bool = False, disk: int = 1) -> bool:
    """Return whether node 3 gets a vote or pre-vote."""
    driven.settle()
    key = replica_key(3, directory(3, disk))
    token = driven.ask(make_vote_request(CLUSTER, epoch, key, None, log_position(0, 0), pre_vote))
    (answer,) = [each for each in driven.do().responses if each.token == token]
    assert isinstance(answer.response, VoteResponse)
    assert answer.response.error is ErrorCode.NONE
    return answer.response.granted


def test_follower_grants_no_vote_in_the_leaders_epoch() -> None:
    """The follower has not voted, but the leader was elected by a majority."""
    assert not granted(Driven().follow(epoch=2), epoch=2)
    assert granted(Driven().follow(epoch=2), epoch=3)


def test_vote_is_bound_to_the_candidates_directory_id() -> None:
    """A candidate with a new disk has lost its state and is another replica (KIP-853)."""
    driven = Driven()
    assert granted(driven, epoch=2, disk=1)
    assert granted(driven, epoch=2, disk=1)
    assert not granted(driven, epoch=2, disk=2)


def test_vote_requests_of_losing_candidates_do_not_restart_the_election_timer() -> None:
    """Each candidate raises the epoch; the election timer keeps running."""
    driven = Driven(make_recovered(None, 0, 5, (make_epoch_entry(1, 0),), (), ()))
    for moment in (300, 600, 900):
        assert not granted(driven.at(moment), epoch=moment)
    driven.at(1000).tick()
    assert (driven.core.facts.role, driven.core.facts.epoch) == ("prospective", 900)


def test_repeated_end_quorum_epoch_does_not_postpone_the_election() -> None:
    driven = Driven().follow()
    successors = (replica_key(3, directory(3)), replica_key(1, directory(1)))
    for moment in (0, 400):
        driven.at(moment)
        driven.ask(make_end_request(CLUSTER, 2, 1, successors, listeners(2)))
        driven.settle()
    driven.at(499).tick()
    assert driven.core.facts.role == "follower"
    driven.at(500).tick()
    assert driven.core.facts.role == "prospective"


def observer(settings: QuorumSettings) -> QuorumSettings:
    return replace(settings, static_voters=settings.static_voters[1:])


def test_observer_hears_its_leader_until_the_fetch_timeout() -> None:
    driven = Driven(change=observer).follow()
    assert driven.core.facts.hears_leader(driven.harness.now)
    driven.at(driven.harness.now.monotonic_ms + 60_000).tick()
    assert driven.core.facts.leader.leader_id is not None
    assert not driven.core.facts.hears_leader(driven.harness.now)


def test_unattached_node_hears_no_leader_and_a_leader_hears_itself() -> None:
    assert not Driven().core.facts.hears_leader(Driven().harness.now)
    driven = Driven().lead()
    assert driven.core.facts.hears_leader(driven.harness.now)


@pytest.mark.parametrize("change", [lambda settings: settings, observer])
def test_follower_with_a_responding_leader_refuses_pre_votes(
    change: Callable[[QuorumSettings], QuorumSettings],
) -> None:
    """KIP-996; a controller that does not know that it is a voter handles requests like a voter."""
    driven = Driven(change=change).follow()
    driven.settle()
    assert granted(driven, epoch=1, pre_vote=True)
    driven = Driven(change=change).follow()
    driven.answered_fetch(from_leader(b""))
    assert not granted(driven, epoch=1, pre_vote=True)
    assert not granted(driven.at(1_999), epoch=1, pre_vote=True)
    assert granted(driven.at(2_000), epoch=1, pre_vote=True)


def test_responses_of_the_leader_keep_an_observer_from_granting_pre_votes() -> None:
    driven = Driven(change=observer).follow()
    for moment in (0, 1_500, 3_000):
        driven.at(moment)
        driven.answered_fetch(from_leader(b""))
    assert not granted(driven.at(4_999), epoch=1, pre_vote=True)
    assert granted(driven.at(5_000), epoch=1, pre_vote=True)


@pytest.mark.parametrize("change", [lambda settings: settings, observer])
def test_pre_votes_are_granted_after_end_quorum_epoch(change: Callable[[QuorumSettings], QuorumSettings]) -> None:
    driven = Driven(change=change).follow()
    driven.answered_fetch(from_leader(b""))
    driven.ask(make_end_request(CLUSTER, 2, 1, (), listeners(2)))
    assert granted(driven, epoch=1, pre_vote=True)


def test_another_address_of_the_leader_is_no_contact() -> None:
    """Nodes that name different addresses in turns must not keep an observer from granting pre-votes."""
    driven = Driven(change=observer).follow()
    driven.answered_fetch(from_leader(b""))
    driven.at(1_000)
    driven.ask(make_begin_request(CLUSTER, 2, 1, None, listeners(3)))
    assert granted(driven, epoch=1, pre_vote=True)


def test_observer_controller_grants_votes_and_a_broker_does_not() -> None:
    """The voters of the candidate's longer log may include this controller (KIP-853), but never a broker."""
    assert granted(Driven(change=observer), epoch=2)
    broker = Driven(change=lambda settings: replace(observer(settings), can_vote=False))
    assert not granted(broker, epoch=2)
    assert not granted(broker, epoch=2, pre_vote=True)


@pytest.mark.parametrize("sender", [-1, 1])
def test_requests_from_the_own_node_id_are_invalid(sender: int) -> None:
    driven = Driven()
    driven.settle()
    for request in (
        make_vote_request(CLUSTER, 5, replica_key(sender), None, log_position(0, 0)),
        make_begin_request(CLUSTER, sender, 5, None, listeners(2)),
        make_end_request(CLUSTER, sender, 5, ()),
    ):
        token = driven.ask(request)
        (answer,) = [each for each in driven.do().responses if each.token == token]
        assert (answer.response.error, driven.core.facts.epoch) == (ErrorCode.INVALID_REQUEST, 0)


@pytest.mark.parametrize(
    "request_",
    [
        make_vote_request("other", 5, replica_key(2), None, log_position(0, 0)),
        make_begin_request("other", 2, 5, None, listeners(2)),
        make_end_request("other", 2, 5, ()),
    ],
)
def test_requests_of_another_cluster_change_nothing(
    request_: VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest,
) -> None:
    driven = Driven()
    driven.settle()
    token = driven.ask(request_)
    (answer,) = [each for each in driven.do().responses if each.token == token]
    assert (answer.response.error, driven.core.facts.epoch) == (ErrorCode.INCONSISTENT_CLUSTER_ID, 0)


def test_leader_counts_its_records_after_the_sync() -> None:
    driven = Driven().lead()
    driven.fetch_of(2, 1)
    driven.settle()
    assert driven.core.facts.high_watermark == 1
    driven.core.append(LeaderEpoch(1), [b"a"], driven.harness.now)
    ready = driven.take()
    assert ready.must_sync
    driven.fetch_of(2, 2)  # node 2 has the record before the leader's own disk: one replica, not two
    assert driven.core.facts.high_watermark == 1
    driven.persist(ready)
    assert driven.core.facts.high_watermark == 2


def test_followers_receive_records_after_the_sync() -> None:
    driven = Driven().lead()
    driven.fetch_of(2, 1)
    driven.settle()
    token = driven.fetch_of(3, 1)
    driven.settle()
    driven.core.append(LeaderEpoch(1), [b"a"], driven.harness.now)
    ready = driven.take()
    assert [type(each) for each in ready.log] == [Append]
    assert reads(ready)[token].offset == 1  # responses leave after the sync of the same Ready


def test_own_leadership_is_announced_after_the_first_commit() -> None:
    driven = Driven().lead()
    driven.fetch_of(2, 1)
    ready = driven.do()
    assert (ready.high_watermark, ready.leader) == (1, leader_and_epoch(1, 1))


def test_commit_requires_a_record_of_the_own_epoch() -> None:
    """A longer log can replace a record of an older epoch on a majority (the Raft paper's figure 8)."""
    driven = Driven(make_recovered(make_election_state(4), 0, 7, (make_epoch_entry(4, 0),), (), ())).lead()
    driven.fetch_of(2, 7, last=4)
    assert driven.core.facts.high_watermark is None
    driven.fetch_of(2, 8, last=5)
    assert driven.core.facts.high_watermark == 8


# Appending


def test_appends_within_the_linger_time_share_a_write() -> None:
    driven = Driven().lead()
    driven.at(2000).core.append(LeaderEpoch(1), [b"a"], driven.harness.now)
    assert len(driven.do().log) == 1
    driven.at(2010).core.append(LeaderEpoch(1), [b"b", b"c"], driven.harness.now)
    appended = driven.core.append(LeaderEpoch(1), [b"d"], driven.harness.now)
    assert (appended.base_offset, driven.core.facts.log_end_offset) == (4, 5)
    driven.settle()
    assert driven.core.next_deadline_ms == 2025
    driven.at(2025).tick()
    (operation,) = driven.do().log
    assert isinstance(operation, Append)
    assert operation.end_offset == 5
    first = parse_header(operation.batches)
    assert (first.base_offset, first.last_offset) == (2, 3)
    assert parse_header(operation.batches, first.size).base_offset == 4


def test_only_voter_does_not_linger() -> None:
    """Lingering saves fetch responses, and the only voter sends none."""
    driven = Driven(change=lambda settings: replace(settings, static_voters=settings.static_voters[:1]))
    driven.settle()
    assert driven.core.facts.role == "leader"
    for value in (b"a", b"b"):
        driven.core.append(LeaderEpoch(1), [value], driven.harness.now)
        assert any(isinstance(each, Append) for each in driven.do().log)


def test_append_requires_the_leader_of_the_epoch() -> None:
    driven = Driven()
    with pytest.raises(NotLeader):
        driven.core.append(LeaderEpoch(0), [b"a"], driven.harness.now)
    driven.lead()
    with pytest.raises(NotLeader):
        driven.core.append(LeaderEpoch(2), [b"a"], driven.harness.now)


def test_append_refuses_a_batch_above_the_limit() -> None:
    driven = Driven().lead()
    with pytest.raises(BatchTooLarge):
        driven.core.append(LeaderEpoch(1), [bytes(8 * 1024 * 1024)], driven.harness.now)
    assert driven.core.facts.log_end_offset == 1


def test_accumulated_appends_are_lost_with_the_leadership() -> None:
    driven = Driven().lead()
    driven.core.append(LeaderEpoch(1), [b"written"], driven.harness.now)
    driven.at(1001).core.append(LeaderEpoch(1), [b"gathered"], driven.harness.now)
    assert driven.core.facts.log_end_offset == 3
    driven.follow(epoch=2)
    assert driven.core.facts.log_end_offset == 2
    with pytest.raises(NotLeader):
        driven.core.append(LeaderEpoch(1), [b"b"], driven.harness.now)


# Serving


def test_fetch_at_the_log_end_waits_until_its_timeout() -> None:
    driven = Driven().lead()
    driven.fetch_of(2, 1)
    driven.settle()
    token = driven.fetch_of(2, 1, high_watermark=1)
    assert token not in answers(driven.core.take_ready() or Ready())
    driven.at(1499).tick()
    driven.settle()
    driven.at(1500).tick()
    ready = driven.do()
    response = answers(ready)[token]
    assert (response.error, response.high_watermark) == (ErrorCode.NONE, 1)
    assert not reads(ready)


def test_newer_high_watermark_completes_a_delayed_fetch() -> None:
    driven = Driven().lead()
    token = driven.fetch_of(3, 1, high_watermark=-1)
    assert answers(driven.do())[token].high_watermark == 1


def test_delayed_fetches_fail_when_the_leadership_ends() -> None:
    driven = Driven().lead()
    driven.fetch_of(2, 1)
    driven.settle()
    token = driven.fetch_of(2, 1, high_watermark=1)
    driven.follow(epoch=2)
    assert answers(driven.do())[token].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_pending_read_fails_when_the_leadership_ends() -> None:
    """The same Ready may truncate the log, and the read would return other records."""
    driven = Driven().lead()
    ready = driven.core.take_ready()
    token = driven.fetch_of(2, 0, last=0)
    driven.follow(epoch=2)
    if ready is not None:
        driven.persist(ready)
    assert answers(driven.do())[token].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_snapshot_returns_pages() -> None:
    stored = StoredSnapshot(make_snapshot_id(5, 4), 250, 0)
    recovered = make_recovered(make_election_state(4), 5, 7, (make_epoch_entry(4, 5),), (stored,), ())
    driven = Driven(recovered).lead()
    key = replica_key(2, directory(2))

    def page(
        position: int, snapshot_id: SnapshotId = stored.id, max_bytes: int = 100
    ) -> tuple[FetchSnapshotResponse, int]:
        request = make_fetch_snapshot_request(CLUSTER, key, driven.core.facts.epoch, snapshot_id, position, max_bytes)
        token = driven.ask(request)
        pending = next(each for each in driven.do().responses if each.token == token)
        assert isinstance(pending.response, FetchSnapshotResponse)
        return pending.response, pending.max_bytes if isinstance(pending, ReadSnapshotPage) else 0

    assert (page(0)[0].size, page(0)[1], page(200)[1]) == (250, 100, 50)
    assert [(page(0, max_bytes=most)[0].size, page(0, max_bytes=most)[1]) for most in (0, -1)] == [(250, 0)] * 2
    assert page(250)[0].error is page(-1)[0].error is ErrorCode.POSITION_OUT_OF_RANGE
    assert page(0, make_snapshot_id(5, 3))[0].error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert page(0, make_snapshot_id(0, 0))[0].error is ErrorCode.SNAPSHOT_NOT_FOUND


def page_error(driven: Driven, cluster: str | None, epoch: int, sender: int = 2) -> ErrorCode:
    key = replica_key(sender, directory(sender))
    token = driven.ask(make_fetch_snapshot_request(cluster, key, epoch, make_snapshot_id(5, 4), 0))
    ready = driven.core.take_ready()
    while ready is not None and token not in [each.token for each in ready.responses]:
        driven.persist(ready)
        ready = driven.core.take_ready()
    assert ready is not None
    driven.persist(ready)
    (response,) = [each.response for each in ready.responses if each.token == token]
    assert isinstance(response, FetchSnapshotResponse)
    return response.error


def test_fetch_snapshot_requires_the_leader_of_the_epoch() -> None:
    recovered = make_recovered(
        make_election_state(4), 5, 7, (make_epoch_entry(4, 5),), (StoredSnapshot(make_snapshot_id(5, 4), 250, 0),), ()
    )
    follower = Driven(recovered).follow(epoch=5)
    assert page_error(follower, CLUSTER, 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = Driven(recovered).lead()
    epoch = leader.core.facts.epoch
    assert page_error(leader, CLUSTER, epoch) is page_error(leader, None, epoch) is ErrorCode.NONE
    assert page_error(leader, "other", epoch) is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert page_error(leader, CLUSTER, epoch - 1) is ErrorCode.FENCED_LEADER_EPOCH
    assert page_error(leader, CLUSTER, epoch + 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert page_error(leader, CLUSTER, epoch, sender=1) is ErrorCode.INVALID_REQUEST
    assert page_error(leader, CLUSTER, -1, sender=2) is ErrorCode.FENCED_LEADER_EPOCH


def test_fetch_without_an_epoch_is_fenced_except_for_consumers() -> None:
    """A voter that has not learned the leader's epoch may hold other records at the same offsets."""
    driven = Driven().lead()
    fenced = driven.ask(make_fetch_request(CLUSTER, replica_key(2, directory(2)), -1, 1, 1))
    read = driven.ask(make_fetch_request(CLUSTER, replica_key(-1), -1, 1, 1))
    responses = answers(driven.do())
    assert responses[fenced].error is ErrorCode.FENCED_LEADER_EPOCH
    assert responses[read].error is ErrorCode.NONE
    assert driven.core.facts.high_watermark is None


def snapshots_at(*ends: int) -> Recovered:
    """Return a log to offset 30 of epoch 4 that starts at the first of the snapshots."""
    stored = tuple(StoredSnapshot(make_snapshot_id(end, 4), 100, 0) for end in ends)
    return make_recovered(make_election_state(4), ends[0], 30, (make_epoch_entry(4, ends[0]),), stored, ())


def test_fetch_snapshot_counts_as_contact() -> None:
    """A voter that fetches a snapshot for a long time does not cost the leader its majority."""
    recovered = make_recovered(
        make_election_state(4), 5, 7, (make_epoch_entry(4, 5),), (StoredSnapshot(make_snapshot_id(5, 4), 250, 0),), ()
    )
    leader = Driven(recovered).lead()
    for second in range(2, 9):
        leader.at(second * 1000).tick()
        assert page_error(leader, CLUSTER, leader.core.facts.epoch) is ErrorCode.NONE
    assert leader.core.facts.role == "leader"


def test_log_is_not_trimmed_below_a_replica_that_fetches_a_snapshot() -> None:
    """A trim would delete the snapshot during its fetch. A new observer keeps the log start offset too."""
    stored = (StoredSnapshot(make_snapshot_id(5, 4), 250, 0),)
    recovered = make_recovered(make_election_state(4), 5, 7, (make_epoch_entry(4, 5),), stored, (), 1000)

    def trims(observer: int | None, silent_ms: int = 0) -> bool:
        leader = Driven(
            recovered, lambda settings: replace(settings, retention_bytes=0, observer_session_timeout_ms=500)
        ).lead()
        for voter in (2, 3):
            leader.fetch_of(voter, 8, last=5)
        leader.settle()
        leader.at(1200)
        if observer is not None:
            page_error(leader, CLUSTER, leader.core.facts.epoch, sender=observer)
        leader.at(1200 + silent_ms)
        newer = StoredSnapshot(make_snapshot_id(7, 4), 250, leader.harness.now.wall_ms)
        leader.core.on_snapshot_generated(newer, leader.harness.now)
        ready = leader.core.take_ready()
        return ready is not None and Trim(newer.id) in ready.log

    assert trims(observer=None)
    assert not trims(observer=9)
    assert not trims(observer=9, silent_ms=500)
    assert trims(observer=9, silent_ms=501)


def test_trim_revises_responses_for_deleted_data() -> None:
    """Pending responses are executed after the trim has deleted their data."""
    old = StoredSnapshot(make_snapshot_id(4, 4), 250, 0)
    recovered = make_recovered(make_election_state(4), 4, 9, (make_epoch_entry(4, 4),), (old,), (), 1000)
    leader = Driven(recovered, lambda each: replace(each, retention_bytes=0, start_offset_lag_time_max_ms=0)).lead()
    leader.fetch_of(2, 10, last=5)
    leader.settle()
    leader.core.append(LeaderEpoch(5), [b"x"], leader.harness.now)
    under_way = leader.take()
    log_token = leader.fetch_of(3, 6, last=4)
    key = replica_key(3, directory(3))
    page_token = leader.ask(make_fetch_snapshot_request(CLUSTER, key, 5, old.id, 0))
    newer = StoredSnapshot(make_snapshot_id(8, 4), 250, 0)
    leader.core.on_snapshot_generated(newer, leader.harness.now)
    leader.persist(under_way)
    ready = leader.take()
    assert Trim(newer.id) in ready.log
    page_response = answers(ready)[log_token]
    assert (page_response.snapshot_id, page_response.log_start_offset) == (newer.id, 8)
    assert log_token not in reads(ready)
    (page,) = [each.response for each in ready.responses if each.token == page_token]
    assert page.error is ErrorCode.SNAPSHOT_NOT_FOUND


def test_follower_trims_after_the_leader() -> None:
    stored = StoredSnapshot(make_snapshot_id(4, 1), 250, 0)
    recovered = make_recovered(make_election_state(1), 0, 9, (make_epoch_entry(1, 0),), (stored,), (), 1000)
    follower = Driven(recovered).follow()
    follower.answered_fetch(replace(from_leader(b""), log_start_offset=Offset(3)))
    assert not follower.do().log
    follower = Driven(recovered).follow()
    follower.answered_fetch(replace(from_leader(b""), log_start_offset=Offset(3)))
    follower.answered_fetch(replace(from_leader(b""), log_start_offset=Offset(4)))
    assert follower.do().log == (Trim(stored.id),)


def test_generated_snapshot_below_the_log_start_is_deleted() -> None:
    """The log moved beyond the snapshot while it was generated."""
    driven = Driven(snapshots_at(10))
    driven.settle()
    driven.core.on_snapshot_generated(StoredSnapshot(make_snapshot_id(7, 4), 100, 0), driven.harness.now)
    ready = driven.do()
    assert (ready.log, ready.must_sync) == ((Trim(make_snapshot_id(10, 4)),), True)
    assert driven.core.facts.log_start_offset == 10


def test_can_snapshot_at_refuses_offsets_below_the_newest_snapshot() -> None:
    """The voters of that offset may no longer be known."""
    driven = Driven(snapshots_at(10, 20)).follow(epoch=4)
    driven.answered_fetch(from_leader(b"", committed=25, epoch=4))
    assert [driven.core.can_snapshot_at(Offset(end)) for end in (0, 10, 15, 20, 26)] == [None] * 5
    assert driven.core.can_snapshot_at(Offset(25)) == make_snapshot_id(25, 4)


def test_wrong_page_is_fetched_again() -> None:
    """Earlier pages are kept, unless the snapshot is shorter than they are."""
    driven = Driven().follow()
    snapshot_id = make_snapshot_id(10, 1)
    driven.answered_fetch(replace(from_leader(b""), snapshot_id=snapshot_id))

    positions: list[int] = []
    pages = [(snapshot_id, *page) for page in ((0, b"abc", 9), (0, b"abc", 9), (3, b"", 9), (3, b"def", 4))]
    for of, position, content, size in [(make_snapshot_id(11, 1), 0, b"abc", 9), *pages]:
        sent = next(send for send in driven.do().requests if send.to_id == 2)
        assert isinstance(sent.request, FetchSnapshotRequest)
        positions.append(sent.request.position)
        page = FetchSnapshotResponse(ErrorCode.NONE, make_leader_hint(2, 1), of, size, position, content)
        driven.core.on_response(sent.serial, page, driven.harness.now)
        driven.at(driven.harness.now.monotonic_ms + 200).tick()
    assert (positions, driven.core.facts.protocol_violations) == ([0, 0, 3, 3, 3], 4)
    assert isinstance(next(send.request for send in driven.do().requests if send.to_id == 2), FetchRequest)


def test_describe_requires_the_leader() -> None:
    driven = Driven()
    assert driven.core.describe(driven.harness.now).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    driven.lead()
    driven.fetch_of(2, 1)
    driven.fetch_of(9, 0, last=0)
    description = driven.core.describe(driven.harness.now)
    assert (description.leader_id, description.epoch, description.high_watermark) == (1, 1, 1)
    assert [(each.key.id, each.log_end_offset) for each in description.voters] == [(1, 1), (2, 1), (3, -1)]
    assert [(each.key.id, each.log_end_offset) for each in description.observers] == [(9, 0)]
    assert [node.id for node in description.nodes] == [1, 2, 3]


def test_removed_leader_describes_itself_as_an_observer() -> None:
    stage = QuorumScenario()
    for command in ("quorum 1 2 3", "start 1 2 3", "advance 1200", "remove 1.1"):
        stage.run(command)
    leader = stage.harness.leader()
    description = leader.up.describe(stage.harness.now)
    assert ([each.key.id for each in description.voters], [each.key.id for each in description.observers]) == (
        [2, 3],
        [1],
    )


def test_leader_in_shutdown_waits_for_a_successor_only_if_reachable() -> None:
    driven = Driven().lead()
    driven.core.shut_down(driven.harness.now)
    end_requests = {
        send.to_id: send.serial for send in driven.do().requests if isinstance(send.request, EndQuorumEpochRequest)
    }
    failure = SendFailure(ErrorCode.BROKER_NOT_AVAILABLE)
    driven.core.on_response(end_requests[BrokerId(2)], failure, driven.harness.now)
    assert not driven.core.is_shut_down
    driven.core.on_response(end_requests[BrokerId(3)], failure, driven.harness.now)
    assert driven.core.is_shut_down


def test_static_voters_apply_until_a_voters_record() -> None:
    harness = QuorumHarness()
    harness.static([1, 2, 3])
    for node in harness.nodes.values():
        node.start()
    harness.advance(9000)
    leader = harness.leader()
    assert (leader.up.facts.ignores_static_voters, leader.up.facts.is_changing_voters) == (False, False)
    harness.expect(0, lambda token: leader.up.upgrade_kraft_version(token, 1, harness.now))
    leader.work()
    assert (leader.up.facts.ignores_static_voters, leader.up.facts.is_changing_voters) == (True, True)
    harness.advance(50)
    assert not leader.up.facts.is_changing_voters
    assert all(node.up.facts.ignores_static_voters for node in harness.nodes.values())
    assert leader.up.facts.log_end_epoch == leader.up.facts.epoch


def test_upgrade_of_kraft_version_writes_quorum_state_with_the_next_election_alone() -> None:
    """A leader that wrote quorum-state would answer nobody until a slow disk is done."""
    harness = QuorumHarness()
    harness.static([1, 2, 3])
    for node in harness.nodes.values():
        node.start()
    harness.advance(9000)
    leader = harness.leader()
    before = leader.disk.election
    harness.expect(0, lambda token: leader.up.upgrade_kraft_version(token, 1, harness.now))
    leader.work()
    harness.advance(50)
    assert leader.up.facts.kraft_version == 1
    assert before is not None
    assert before.version == 0
    assert leader.disk.election is before
    leader.up.resign(leader.up.facts.epoch, harness.now)
    harness.advance(9000)
    assert leader.disk.election is not None
    assert leader.disk.election.version == 1


def test_observer_is_removed_after_its_session_timeout() -> None:
    driven = Driven(change=lambda settings: replace(settings, observer_session_timeout_ms=1000)).lead()
    driven.fetch_of(9, 0, last=0)
    driven.at(1999).fetch_of(2, 1)
    assert driven.core.describe(driven.harness.now).observers
    driven.at(2002)
    assert not driven.core.describe(driven.harness.now).observers


def test_observers_expire_without_a_describe_request() -> None:
    """Observers without expiry would accumulate during a long leadership."""
    driven = Driven(change=lambda settings: replace(settings, observer_session_timeout_ms=1000)).lead()
    driven.fetch_of(9, 0, last=0)
    for moment in range(2000, 5000, 500):
        driven.at(moment).fetch_of(2, 1)
    role = driven.core._replica.role
    assert isinstance(role, LeaderState)
    assert not list(role.progress.observers())


# Following


def test_voter_syncs_fetched_records_before_the_next_fetch() -> None:
    driven = Driven().follow()
    driven.answered_fetch(from_leader(data(0, 1)))
    ready = driven.do()
    assert ready.must_sync
    (fetch,) = [send.request for send in ready.requests if isinstance(send.request, FetchRequest)]
    assert (fetch.fetch_offset, fetch.last_fetched_epoch) == (1, 1)


def test_broker_observer_does_not_sync() -> None:
    driven = Driven(
        change=lambda settings: replace(settings, key=replica_key(9, directory(9)), can_vote=False)
    ).follow()
    driven.answered_fetch(from_leader(data(0, 1)))
    assert not driven.do().must_sync


def bad_crc() -> bytes:
    batch = bytearray(data(0, 1))
    batch[-1] ^= 1
    return bytes(batch)


def compressed() -> bytes:
    """No reader of the metadata log accepts a batch of this size."""
    return build_batch([Record(0, None, b"x" * 100)], base_offset=0, leader_epoch=LeaderEpoch(1), codec=Codec.GZIP)


def unreadable_control() -> bytes:
    return control_batch([(ControlType.KRAFT_VOTERS, b"\x00")], 0, base_offset=0, leader_epoch=LeaderEpoch(1))


@pytest.mark.parametrize(
    "records",
    [
        bad_crc(),
        data(1, 1),
        data(0, 2),
        data(0, -1),
        data(0, 1)[:-3],
        compressed(),
        unreadable_control(),
        b"rubbish" * 20,
    ],
    ids=["checksum", "gap", "later epoch", "no epoch", "truncated", "compressed", "control", "rubbish"],
)
def test_invalid_batches_are_not_appended(records: bytes) -> None:
    driven = Driven().follow()
    driven.answered_fetch(from_leader(records))
    assert driven.core.facts.log_end_offset == 0
    assert driven.core.facts.protocol_violations == 1
    assert driven.core.facts.role == "follower"


def test_valid_batches_before_an_invalid_one_are_appended() -> None:
    driven = Driven().follow()
    driven.answered_fetch(from_leader(data(0, 1, b"a", b"b") + data(2, 1) + data(4, 1), committed=9))
    assert driven.core.facts.log_end_offset == 3
    assert driven.core.facts.high_watermark == 3


def test_follower_appends_a_limited_number_of_batches_per_response() -> None:
    """The event loop must not block; the next fetch gets the rest."""
    driven = Driven().follow()
    driven.answered_fetch(from_leader(b"".join(data(at, 1) for at in range(MAX_BATCHES + 10)), committed=5000))
    ready = driven.do()
    (append,) = ready.log
    assert isinstance(append, Append)
    assert append.end_offset == ready.high_watermark == driven.core.facts.log_end_offset == MAX_BATCHES
    (fetch,) = [send.request for send in ready.requests if isinstance(send.request, FetchRequest)]
    assert (fetch.fetch_offset, driven.core.facts.protocol_violations) == (MAX_BATCHES, 0)


def test_batches_of_each_epoch_are_appended_separately() -> None:
    driven = Driven(make_recovered(make_election_state(3), 0, 0, (), (), ())).follow(epoch=4)
    driven.answered_fetch(from_leader(data(0, 1) + data(1, 1) + data(2, 3) + data(3, 4), epoch=4))
    appends = [each for each in driven.do().log if isinstance(each, Append)]
    assert [(each.epoch, each.end_offset) for each in appends] == [(1, 2), (3, 3), (4, 4)]


def test_late_fetch_response_is_ignored() -> None:
    driven = Driven().follow()
    sent = next(send for send in driven.do().requests if isinstance(send.request, FetchRequest))
    driven.core.on_response(sent.serial, from_leader(data(0, 1)), driven.harness.now)
    driven.core.on_response(sent.serial, from_leader(data(0, 1)), driven.harness.now)
    assert driven.core.facts.log_end_offset == 1


def diverging(epoch: int, offset: int) -> FetchResponse:
    return replace(from_leader(b""), diverging=log_position(epoch, offset))


def test_committed_records_are_not_truncated() -> None:
    driven = Driven().follow()
    driven.answered_fetch(from_leader(data(0, 1, b"a", b"b"), committed=2))
    driven.answered_fetch(diverging(1, 1))
    assert (driven.core.facts.log_end_offset, driven.core.facts.protocol_violations) == (2, 1)
    assert not driven.do().log


def test_records_covered_by_an_own_snapshot_are_not_truncated() -> None:
    """The snapshot was committed, although this node knows no high watermark since its start."""
    stored = StoredSnapshot(make_snapshot_id(7, 1), 250, 0)
    driven = Driven(make_recovered(make_election_state(1), 0, 9, (make_epoch_entry(1, 0),), (stored,), ())).follow(2)
    driven.answered_fetch(replace(from_leader(b"", epoch=2), diverging=log_position(1, 6)))
    assert (driven.core.facts.log_end_offset, driven.core.facts.protocol_violations) == (9, 1)


def test_follower_truncates_diverging_records() -> None:
    driven = Driven().follow()
    driven.answered_fetch(from_leader(data(0, 1) + data(1, 1), committed=1))
    driven.answered_fetch(diverging(1, 1))
    assert TruncateTo(Offset(1)) in driven.do().log
    assert driven.core.facts.log_end_offset == 1


@pytest.mark.parametrize(
    "snapshot_id", [make_snapshot_id(-1, 1), make_snapshot_id(5, -2), make_snapshot_id(1, 1), make_snapshot_id(0, 0)]
)
def test_snapshot_that_is_not_needed_is_refused(snapshot_id: SnapshotId) -> None:
    driven = Driven().follow()
    driven.answered_fetch(from_leader(data(0, 1, b"a", b"b"), committed=2))
    driven.answered_fetch(replace(from_leader(b""), snapshot_id=snapshot_id))
    assert driven.core.facts.protocol_violations == 1


def test_fetched_snapshot_replaces_the_log() -> None:
    driven = Driven().follow()
    snapshot_id = make_snapshot_id(10, 1)
    driven.answered_fetch(replace(from_leader(b""), snapshot_id=snapshot_id))
    sent = next(send for send in driven.do().requests if isinstance(send.request, FetchSnapshotRequest))
    page = FetchSnapshotResponse(ErrorCode.NONE, make_leader_hint(2, 1), snapshot_id, 3, 0, b"abc")
    driven.core.on_response(sent.serial, page, driven.harness.now)
    assert not driven.do().requests  # no fetch is sent while the file is checked
    driven.core.on_snapshot_fetched(snapshot_id, StoredSnapshot(snapshot_id, 3, 0), (), driven.harness.now)
    ready = driven.do()
    assert (ready.log, ready.high_watermark) == ((StartAt(snapshot_id),), 10)
    (fetch,) = [send.request for send in ready.requests if isinstance(send.request, FetchRequest)]
    assert (fetch.fetch_offset, fetch.last_fetched_epoch) == (10, 1)


def fetching(driven: Driven, snapshot_id: SnapshotId) -> SendRequest:
    """Answer a fetch with a snapshot id, and return the request for its first page."""
    driven.answered_fetch(replace(from_leader(b""), snapshot_id=snapshot_id))
    return next(send for send in driven.do().requests if isinstance(send.request, FetchSnapshotRequest))


def page_of(snapshot_id: SnapshotId, position: int, size: int, content: bytes) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(ErrorCode.NONE, make_leader_hint(2, 1), snapshot_id, size, position, content)


def test_snapshot_pages_restart_the_fetch_timer() -> None:
    driven = Driven().follow()
    sent = fetching(driven, make_snapshot_id(10, 1))
    for position in range(8):
        driven.at(700.0 * position).tick()
        driven.core.on_response(sent.serial, page_of(make_snapshot_id(10, 1), position, 9, b"x"), driven.harness.now)
        sent = next(send for send in driven.do().requests if isinstance(send.request, FetchSnapshotRequest))
    assert driven.core.facts.role == "follower"


def test_fetch_timer_pauses_while_a_snapshot_is_checked() -> None:
    driven = Driven().follow()
    snapshot_id = make_snapshot_id(10, 1)
    sent = fetching(driven, snapshot_id)
    driven.core.on_response(sent.serial, page_of(snapshot_id, 0, 3, b"abc"), driven.harness.now)
    driven.do()
    driven.at(20_000).tick()
    driven.core.on_snapshot_fetched(snapshot_id, StoredSnapshot(snapshot_id, 3, 0), (), driven.harness.now)
    assert (driven.core.facts.role, driven.core.facts.log_end_offset) == ("follower", 10)


@pytest.mark.parametrize("epoch", [1, 2])
def test_checked_snapshot_is_no_contact_with_the_leader(epoch: int) -> None:
    """The leader of this or a later epoch may have died during the check, so pre-votes are granted."""
    driven = Driven().follow()
    snapshot_id = make_snapshot_id(10, 1)
    sent = fetching(driven, snapshot_id)
    driven.core.on_response(sent.serial, page_of(snapshot_id, 0, 3, b"abc"), driven.harness.now)
    driven.do()
    driven.at(1_000)
    if epoch == 2:
        driven.ask(make_begin_request(CLUSTER, 3, 2, None, listeners(3)))
    driven.core.on_snapshot_fetched(snapshot_id, StoredSnapshot(snapshot_id, 3, 0), (), driven.harness.now)
    driven.settle()
    token = driven.ask(make_vote_request(CLUSTER, epoch, replica_key(3), None, log_position(1, 10), pre_vote=True))
    (answer,) = [each.response for each in driven.do().responses if each.token == token]
    assert isinstance(answer, VoteResponse)
    assert answer.granted


def test_leader_ignores_a_fetched_snapshot() -> None:
    """The leader was elected with its own log, which has all committed records."""
    driven = Driven().follow()
    snapshot_id = make_snapshot_id(10, 1)
    sent = fetching(driven, snapshot_id)
    driven.core.on_response(sent.serial, page_of(snapshot_id, 0, 3, b"abc"), driven.harness.now)
    driven.do()
    driven.ask(make_vote_request(CLUSTER, 2, replica_key(2, directory(2)), None, log_position(0, 0)))
    driven.settle()
    driven.at(20_000).tick()
    driven.vote_of(2, driven.do())
    driven.vote_of(2, driven.do())
    driven.settle()
    assert driven.core.facts.role == "leader"
    driven.core.on_snapshot_fetched(snapshot_id, StoredSnapshot(snapshot_id, 3, 0), (), driven.harness.now)
    assert driven.core.facts.log_end_offset == 1


def test_snapshot_of_an_earlier_epoch_replaces_uncommitted_records() -> None:
    """Apache Kafka's leader names the snapshot at once; this implementation truncates the records first."""
    recovered = make_recovered(make_election_state(2), 0, 5, (make_epoch_entry(1, 0), make_epoch_entry(2, 4)), (), ())
    driven = Driven(recovered).follow(3)
    snapshot_id = make_snapshot_id(7, 1)
    driven.answered_fetch(replace(from_leader(b"", epoch=3), snapshot_id=snapshot_id))
    sent = next(send for send in driven.do().requests if isinstance(send.request, FetchSnapshotRequest))
    page = FetchSnapshotResponse(ErrorCode.NONE, make_leader_hint(2, 3), snapshot_id, 3, 0, b"abc")
    driven.core.on_response(sent.serial, page, driven.harness.now)
    driven.do()
    driven.core.on_snapshot_fetched(snapshot_id, StoredSnapshot(snapshot_id, 3, 0), (), driven.harness.now)
    assert driven.do().log == (StartAt(snapshot_id),)
    assert driven.core.facts.log_end_offset == 7


def test_response_that_names_this_node_as_leader_is_ignored() -> None:
    """The sender does not know that the leadership has ended."""
    driven = Driven()
    driven.at(0).tick()
    sent = next(send for send in driven.do().requests)
    response = make_fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, make_leader_hint(1, 0))
    driven.core.on_response(sent.serial, response, driven.harness.now)
    assert (driven.core.facts.role, driven.core.facts.leader) == ("unattached", leader_and_epoch(None, 0))


@pytest.mark.parametrize("is_parsed", [False, True], ids=["file", "voters"])
def test_invalid_fetched_snapshot_is_not_used(is_parsed: bool) -> None:
    """The file is corrupt, or its voters contain a duplicate id. Fetches pause afterwards."""
    driven = Driven().follow()
    snapshot_id = make_snapshot_id(10, 1)
    driven.answered_fetch(replace(from_leader(b""), snapshot_id=snapshot_id))
    sent = next(send for send in driven.do().requests if isinstance(send.request, FetchSnapshotRequest))
    page = FetchSnapshotResponse(ErrorCode.NONE, make_leader_hint(2, 1), snapshot_id, 3, 0, b"abc")
    driven.core.on_response(sent.serial, page, driven.harness.now)
    driven.do()
    stored = StoredSnapshot(snapshot_id, 3, 0) if is_parsed else None
    twice = VotersRecord(voters=[VotersRecordVoter(voter_id=2), VotersRecordVoter(voter_id=2)])
    driven.core.on_snapshot_fetched(snapshot_id, stored, (make_control_record(9, None, twice),), driven.harness.now)
    assert driven.core.take_ready() is None
    assert (driven.core.facts.log_end_offset, driven.core.facts.protocol_violations) == (0, 1)
    resume_at = driven.core.next_deadline_ms
    assert resume_at == driven.settings.fetch_timeout_ms / 4
    driven.at(resume_at).tick()
    assert [send.to_id for send in driven.do().requests] == [2]


ELSEWHERE = (ListenerEndpoint("CONTROLLER", "elsewhere", 1),)


def fetch_target(driven: Driven) -> tuple[int, SendRequest]:
    sent = next(send for send in driven.do().requests if isinstance(send.request, FetchRequest))
    return sent.to.port, sent


def test_address_from_the_leader_applies_at_once() -> None:
    """The new address applies even while a request to the former address is in flight."""
    driven = Driven().follow()
    _, lost = fetch_target(driven)
    driven.ask(make_begin_request(CLUSTER, 2, 1, None, ELSEWHERE))
    port, _ = fetch_target(driven)
    assert port == 1
    driven.core.on_response(lost.serial, from_leader(data(0, 1)), driven.harness.now)
    assert driven.core.facts.log_end_offset == 0


def test_address_from_other_nodes_applies_when_the_leader_does_not_respond() -> None:
    driven = Driven().follow()
    port, sent = fetch_target(driven)
    hint = make_leader_hint(2, 1, ELSEWHERE)
    driven.core.on_response(sent.serial, SendFailure(ErrorCode.BROKER_NOT_AVAILABLE), driven.harness.now)
    search = next(send for send in driven.do().requests if send.to_id == 3)
    driven.core.on_response(
        search.serial, make_fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint), driven.harness.now
    )
    assert driven.core.facts.leader_hint.listeners == ELSEWHERE
    driven.at(20).tick()
    assert (port, fetch_target(driven)[0]) == (9002, 1)


def test_address_from_other_nodes_is_ignored_while_the_leader_responds() -> None:
    """A late response of another node does not replace the leader's address."""
    driven = Driven().follow()
    driven.answered_fetch(make_fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, make_leader_hint(2, 1)))
    search = next(send for send in driven.do().requests if send.to_id == 3)
    driven.at(20).tick()
    driven.answered_fetch(from_leader(b""))
    hint = make_leader_hint(2, 1, ELSEWHERE)
    driven.core.on_response(
        search.serial, make_fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint), driven.harness.now
    )
    assert driven.core.facts.leader_hint.listeners == listeners(2)


def test_repeated_snapshot_id_does_not_restart_the_fetch() -> None:
    """The leader has two addresses, and a fetch response from one arrives after the first page from the other."""
    driven = Driven().follow()
    snapshot_id = make_snapshot_id(10, 1)
    named = replace(from_leader(b""), snapshot_id=snapshot_id)
    driven.answered_fetch(named)
    first = next(send for send in driven.do().requests)
    driven.core.on_response(first.serial, SendFailure(ErrorCode.BROKER_NOT_AVAILABLE), driven.harness.now)
    at_alternate = next(send for send in driven.do().requests if send.to_id == 3)
    driven.at(20).tick()
    retried = next(send for send in driven.do().requests if send.to_id == 2)
    page = FetchSnapshotResponse(ErrorCode.NONE, make_leader_hint(2, 1), snapshot_id, 9, 0, b"abc")
    driven.core.on_response(retried.serial, page, driven.harness.now)
    driven.core.on_response(at_alternate.serial, named, driven.harness.now)
    (following,) = [send.request for send in driven.do().requests if isinstance(send.request, FetchSnapshotRequest)]
    assert following.position == 3


def test_observer_keeps_fetching_from_a_silent_leader() -> None:
    """The observer knows no voters, and the responding node is not the leader."""

    def observer(settings: QuorumSettings) -> QuorumSettings:
        return replace(settings, can_vote=False, static_voters=(), bootstrap=(SocketAddress("host3", 9003),))

    driven = Driven(change=observer)
    hint = make_leader_hint(2, 1, listeners(2))
    requested_at = set[int]()
    for ms in range(0, 8_000, 20):
        driven.at(ms).tick()
        while (ready := driven.core.take_ready()) is not None:
            driven.persist(ready)
            for send in ready.requests:
                at_leader = send.to.port == 9002
                requested_at |= {ms} if at_leader else set()
                answer = make_fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint)
                outcome = SendFailure(ErrorCode.BROKER_NOT_AVAILABLE) if at_leader else answer
                driven.core.on_response(send.serial, outcome, driven.harness.now)
    assert len([ms for ms in requested_at if ms > 5_000]) >= 10


def test_leader_without_an_address_does_not_prevent_an_election() -> None:
    """The leader removed itself and lost its disk: other nodes know only its id."""
    driven = Driven(make_recovered(make_election_state(4, leader_id=9), 0, 2, (make_epoch_entry(4, 0),), (), ()))
    answer = make_fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, make_leader_hint(9, 4))
    deadline = driven.core.next_deadline_ms
    assert deadline is not None
    request_count = 0
    for ms in range(int(deadline)):
        driven.at(ms).tick()
        while (ready := driven.core.take_ready()) is not None:
            driven.persist(ready)
            request_count += len(ready.requests)
            for send in ready.requests:
                driven.core.on_response(send.serial, answer, driven.harness.now)
    assert 2 <= request_count <= 2 * deadline / 20
    assert driven.core.facts.role == "unattached"
    driven.at(deadline).tick()
    assert driven.core.facts.role == "prospective"


REFUSED = SendFailure(ErrorCode.BROKER_NOT_AVAILABLE, is_refusal=True)


def test_refused_connection_to_the_leader_shortens_the_fetch_timeout() -> None:
    driven = Driven().follow()
    driven.answered_fetch(from_leader(b""))
    driven.core.on_response(fetch_target(driven)[1].serial, REFUSED, driven.harness.now)
    deadline = driven.core.next_deadline_ms
    assert deadline is not None
    driven.at(250).tick()
    assert driven.core.facts.role == "prospective"


def test_refused_connection_to_an_unconfirmed_address_is_ignored() -> None:
    driven = Driven().follow()
    driven.core.on_response(fetch_target(driven)[1].serial, REFUSED, driven.harness.now)
    driven.at(250).tick()
    assert driven.core.facts.role == "follower"

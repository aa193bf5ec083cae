"""The rules of the fetcher core one by one; complete scenarios are in tests/scenarios/replication."""

from dataclasses import dataclass, field

import pytest

from broker.replication.epochs import EpochEnd
from broker.replication.fetch_actions import AuxStateBuild, FetchActions, LogBound, Truncation
from broker.replication.fetch_plan import FetcherSettings, Sender
from broker.replication.fetch_state import FetchPhase, FetchPosition, PartitionFetchState
from broker.replication.fetcher import FetcherCore
from broker.replication.followed_replicas import FIRST_BACKOFF_MS
from broker.replication.replication_quota import ReplicationQuota
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.primitives import Uuid

SENDER = Sender(BrokerId(9), BrokerEpoch(90))
T = Uuid(b"t" * 16)
U = Uuid(b"u" * 16)


def at(offset: int, last_epoch: int = 1, log_start_offset: int = 0) -> FetchPosition:
    return FetchPosition(offset, LeaderEpoch(last_epoch), log_start_offset)


FIRST_EPOCH = LeaderEpoch(1)


@dataclass(eq=False)
class FakeReplica:
    topic: str
    topic_id: Uuid
    index: int
    leader_epoch: LeaderEpoch = FIRST_EPOCH
    where: FetchPosition = field(default_factory=lambda: at(5))
    ends: dict[int, EpochEnd] = field(default_factory=dict)
    local_start_offset: int = 0

    def fetch_position(self) -> FetchPosition:
        return self.where

    def end_for_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        return self.ends[epoch]


class Fetcher:
    """A core with replicas t-0 … of topic T."""

    def __init__(self, count: int = 1, quota: ReplicationQuota | None = None, new_replicas_max: int = 200) -> None:
        settings = FetcherSettings(new_replicas_max=new_replicas_max)
        self.core: FetcherCore[FakeReplica] = FetcherCore(settings, quota)
        self.replicas = [FakeReplica("t", T, index) for index in range(count)]
        self.now_ms = 0
        for replica in self.replicas:
            self.core.add(replica)

    def ask(self) -> FetchRequest:
        request = self.core.next_request(SENDER, self.now_ms)
        assert request is not None
        return request

    def asks_nothing(self) -> bool:
        return self.core.next_request(SENDER, self.now_ms) is None

    def answer(self, *data: PartitionData, session_id: int = 7, error: int = 0) -> FetchActions[FakeReplica]:
        response = FetchResponse(error_code=error, session_id=session_id)
        if data:
            response.responses.append(FetchableTopicResponse(topic_id=T, partitions=list(data)))
        return self.core.on_response(response, self.now_ms)

    def open(self) -> None:
        """Open a session without news for any replica."""
        self.ask()
        work = self.answer(*(PartitionData(replica.index, high_watermark=5) for replica in self.replicas))
        for fetched in work.appends:
            self.core.on_appended(fetched, self.now_ms)

    def followed(self, index: int = 0) -> PartitionFetchState[FakeReplica]:
        return self.core.replicas.all()[index]


def named(request: FetchRequest) -> list[int]:
    return [each.partition for topic in request.topics for each in topic.partitions]


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def records(index: int, size: int = 100, high_watermark: int = 6) -> PartitionData:
    return PartitionData(index, high_watermark=high_watermark, records=bytes(size))


# ---- requests


def test_request_has_the_broker_epoch_and_size_limits() -> None:
    request = Fetcher().ask()
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (9, 90)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_485_760)
    (topic,) = request.topics
    (requested,) = topic.partitions
    assert topic.topic_id == T
    assert (
        requested.partition,
        requested.current_leader_epoch,
        requested.fetch_offset,
        requested.last_fetched_epoch,
    ) == (0, 1, 5, 1)
    assert (requested.log_start_offset, requested.partition_max_bytes) == (0, 1_048_576)


def test_at_most_one_session_request_is_under_way() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    assert fetcher.asks_nothing()


def test_fetcher_without_replicas_sends_no_request() -> None:
    assert Fetcher(0).asks_nothing()


def test_session_request_names_only_moved_replicas() -> None:
    fetcher = Fetcher(3)
    fetcher.open()
    fetcher.ask()
    (fetched,) = fetcher.answer(records(1)).appends
    fetcher.replicas[1].where = at(6)
    fetcher.core.on_appended(fetched, 0)
    assert named(fetcher.ask()) == [1]


def test_consecutive_partitions_of_a_topic_share_its_entry() -> None:
    fetcher = Fetcher(2)
    fetcher.core.add(FakeReplica("u", U, 0))
    fetcher.core.add(FakeReplica("t", T, 5))
    assert [topic.topic_id for topic in fetcher.ask().topics] == [T, U, T]


def test_changed_log_start_alone_is_reported() -> None:
    fetcher = Fetcher()
    fetcher.open()
    fetcher.ask()
    (fetched,) = fetcher.answer(PartitionData(0, high_watermark=5, log_start_offset=3)).appends
    fetcher.replicas[0].where = at(5, 1, 3)
    fetcher.core.on_appended(fetched, 0)
    assert fetcher.ask().topics[0].partitions[0].log_start_offset == 3


def test_removed_replica_is_forgotten_once() -> None:
    fetcher = Fetcher(2)
    fetcher.open()
    fetcher.core.remove((T, 0))
    assert forgotten(fetcher.ask()) == [0]
    fetcher.answer()
    assert forgotten(fetcher.ask()) == []


def test_replica_that_returns_before_the_next_request_is_named_and_not_forgotten() -> None:
    fetcher = Fetcher(2)
    fetcher.open()
    fetcher.core.remove((T, 0))
    fetcher.core.add(fetcher.replicas[0])
    request = fetcher.ask()
    assert (named(request), forgotten(request)) == ([0], [])


def test_replica_added_and_removed_between_requests_is_not_named() -> None:
    fetcher = Fetcher(1)
    fetcher.open()
    fetcher.core.add(FakeReplica("t", T, 4))
    fetcher.core.remove((T, 4))
    request = fetcher.ask()
    assert (named(request), forgotten(request)) == ([], [])


def test_last_removal_empties_the_session_and_ends_requests() -> None:
    fetcher = Fetcher(1)
    fetcher.open()
    fetcher.core.remove((T, 0))
    assert forgotten(fetcher.ask()) == [0]
    fetcher.answer(session_id=0)
    assert fetcher.asks_nothing()


# ---- many replicas


def shape(request: FetchRequest) -> tuple[int, int, int, list[int]]:
    return request.session_id, request.session_epoch, request.max_wait_ms, named(request)


def empty(*indexes: int) -> list[PartitionData]:
    return [PartitionData(index, high_watermark=5) for index in indexes]


def test_many_replicas_join_the_session_in_several_requests() -> None:
    fetcher = Fetcher(5, new_replicas_max=2)
    assert shape(fetcher.ask()) == (0, 0, 0, [0, 1])
    fetcher.answer(*empty(0, 1))
    assert shape(fetcher.ask()) == (7, 1, 0, [2, 3])
    fetcher.answer(*empty(2, 3))
    assert shape(fetcher.ask()) == (7, 2, 500, [4])


def test_progress_of_members_is_reported_while_others_join() -> None:
    fetcher = Fetcher(5, new_replicas_max=2)
    fetcher.ask()
    fetched, _ = fetcher.answer(records(0), *empty(1)).appends
    fetcher.replicas[0].where = at(6)
    fetcher.core.on_appended(fetched, 0)
    assert named(fetcher.ask()) == [0, 2, 3]


def test_replica_that_awaits_its_turn_may_be_removed() -> None:
    fetcher = Fetcher(4, new_replicas_max=2)
    fetcher.ask()
    fetcher.core.remove((T, 2))
    fetcher.answer(*empty(0, 1))
    request = fetcher.ask()
    assert (named(request), forgotten(request)) == ([3], [])


def test_leader_without_room_for_the_session_gets_all_replicas() -> None:
    fetcher = Fetcher(5, new_replicas_max=2)
    fetcher.ask()
    fetcher.answer(*empty(0, 1), session_id=0)
    assert shape(fetcher.ask()) == (0, 0, 500, [0, 1, 2, 3, 4])
    fetcher.answer(*empty(*range(5)), session_id=7)
    assert shape(fetcher.ask()) == (7, 1, 500, [])


def test_lost_session_is_opened_again_in_several_requests() -> None:
    fetcher = Fetcher(3, new_replicas_max=2)
    fetcher.ask()
    fetcher.answer(*empty(0, 1))
    fetcher.ask()
    fetcher.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert shape(fetcher.ask()) == (0, 0, 0, [0, 1])
    fetcher.answer(*empty(0, 1), session_id=8)
    assert shape(fetcher.ask()) == (8, 1, 500, [2])


# ---- membership and leader epochs


def test_adding_a_replica_again_in_its_epoch_changes_nothing() -> None:
    fetcher = Fetcher()
    fetcher.open()
    fetcher.core.add(fetcher.replicas[0])
    assert named(fetcher.ask()) == []


def test_new_leader_epoch_voids_the_answer_under_way() -> None:
    fetcher = Fetcher()
    fetcher.open()
    fetcher.ask()
    fetcher.replicas[0].leader_epoch = LeaderEpoch(2)
    fetcher.core.add(fetcher.replicas[0])
    assert fetcher.answer(records(0)).appends == []
    request = fetcher.ask()
    assert request.topics[0].partitions[0].current_leader_epoch == 2
    assert forgotten(request) == []


def test_fenced_epoch_error_of_the_former_epoch_is_void() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    fetcher.replicas[0].leader_epoch = LeaderEpoch(2)
    fetcher.core.add(fetcher.replicas[0])
    fetcher.answer(PartitionData(0, ErrorCode.FENCED_LEADER_EPOCH))
    assert fetcher.followed().phase is FetchPhase.FETCHING


def test_answer_about_a_removed_replica_is_valid() -> None:
    fetcher = Fetcher(2)
    fetcher.open()
    fetcher.ask()
    fetcher.core.remove((T, 0))
    (fetched,) = fetcher.answer(records(0), records(1)).appends
    assert fetched.followed.partition.index == 1


def test_answer_about_an_unrequested_partition_is_dropped() -> None:
    fetcher = Fetcher(1)
    fetcher.open()
    fetcher.ask()
    assert fetcher.answer(records(0), records(8)).appends == []
    request = fetcher.ask()
    assert (request.session_id, request.session_epoch, named(request)) == (7, 0, [0])


def test_full_answer_must_list_all_requested_partitions() -> None:
    fetcher = Fetcher(2)
    fetcher.ask()
    assert fetcher.answer(records(0)).appends == []
    assert named(fetcher.ask()) == [0, 1]


def test_throttled_leader_may_answer_without_partitions() -> None:
    fetcher = Fetcher(2)
    fetcher.ask()
    assert fetcher.answer(session_id=0).complaint == ""
    assert named(fetcher.ask()) == [0, 1]


# ---- failures


def test_unanswered_requests_back_off_exponentially_up_to_the_limit() -> None:
    fetcher = Fetcher(1)
    pauses = []
    for _ in range(9):
        fetcher.ask()
        fetcher.core.on_failure(fetcher.now_ms)
        assert fetcher.asks_nothing()
        deadline = fetcher.core.next_deadline_ms(fetcher.now_ms)
        assert deadline is not None
        pauses.append(deadline - fetcher.now_ms)
        fetcher.now_ms = deadline
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1000, 1000]
    fetcher.open()
    fetcher.ask()
    fetcher.core.on_failure(fetcher.now_ms)
    assert fetcher.core.next_deadline_ms(fetcher.now_ms) == fetcher.now_ms + FIRST_BACKOFF_MS


def test_adding_a_replica_ends_the_back_off() -> None:
    fetcher = Fetcher(1)
    fetcher.ask()
    fetcher.core.on_failure(0)
    fetcher.core.add(FakeReplica("t", T, 1))
    assert named(fetcher.ask()) == [0, 1]


def test_top_level_error_is_reported_and_backs_off() -> None:
    fetcher = Fetcher(1)
    fetcher.ask()
    assert fetcher.answer(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED).complaint == "CLUSTER_AUTHORIZATION_FAILED"
    assert fetcher.asks_nothing()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        9999,
    ],
)
def test_partition_error_is_retried_after_a_back_off(code: int) -> None:
    fetcher = Fetcher(2)
    fetcher.open()
    fetcher.ask()
    work = fetcher.answer(PartitionData(0, code))
    assert [(trouble.followed.key, trouble.code) for trouble in work.failures] == [((T, 0), code)]
    assert forgotten(fetcher.ask()) == [0]
    assert fetcher.core.next_deadline_ms(0) == FIRST_BACKOFF_MS
    fetcher.answer()
    fetcher.now_ms = FIRST_BACKOFF_MS
    assert named(fetcher.ask()) == [0]
    assert fetcher.answer(PartitionData(0, code)).failures == []


def test_success_resets_the_back_off() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    fetcher.answer(PartitionData(0, ErrorCode.UNKNOWN_LEADER_EPOCH))
    fetcher.now_ms = FIRST_BACKOFF_MS
    fetcher.open()
    assert fetcher.followed().failures == 0


def test_fenced_replica_waits_for_the_next_leader_epoch() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    fetcher.answer(PartitionData(0, ErrorCode.FENCED_LEADER_EPOCH))
    assert (fetcher.followed().phase, fetcher.core.replicas.failed_count) == (FetchPhase.FAILED, 1)
    fetcher.now_ms = 10**9
    assert forgotten(fetcher.ask()) == [0]
    fetcher.answer(session_id=0)
    assert fetcher.asks_nothing()
    fetcher.replicas[0].leader_epoch = LeaderEpoch(2)
    fetcher.core.add(fetcher.replicas[0])
    assert fetcher.core.replicas.failed_count == 0
    assert named(fetcher.ask()) == [0]


def test_adding_a_failed_replica_again_retries() -> None:
    fetcher = Fetcher()
    fetcher.core.on_broken(fetcher.followed())
    fetcher.core.add(fetcher.replicas[0])
    assert named(fetcher.ask()) == [0]


def test_records_that_were_not_appended_are_fetched_after_a_back_off() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    (fetched,) = fetcher.answer(records(0)).appends
    fetcher.core.on_appended(fetched, 0)
    assert fetcher.followed().phase is FetchPhase.DELAYED


def test_refused_append_is_retried_from_the_present_position() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    (fetched,) = fetcher.answer(records(0)).appends
    fetcher.replicas[0].where = at(3)
    fetcher.core.on_not_appended(fetched.followed, 0)
    fetcher.now_ms = FIRST_BACKOFF_MS
    fetcher.answer() if fetcher.core.is_waiting else None
    assert fetcher.ask().topics[0].partitions[0].fetch_offset == 3


# ---- divergence and out of range


def diverging(fetcher: Fetcher, epoch: int, end: int, own: EpochEnd) -> FetchActions[FakeReplica]:
    fetcher.replicas[0].ends[epoch] = own
    fetcher.ask()
    return fetcher.answer(PartitionData(0, diverging_epoch=EpochEndOffset(epoch, end), records=bytes(10)))


def test_follower_truncates_to_the_leaders_epoch_end() -> None:
    fetcher = Fetcher()
    work = diverging(fetcher, 1, 3, EpochEnd(LeaderEpoch(1), 5))
    assert [(cut.offset, cut.is_full) for cut in work.truncations] == [(3, False)]
    assert (work.appends, fetcher.followed().phase) == ([], FetchPhase.TRUNCATING)


def test_follower_without_the_leaders_epoch_truncates_to_its_older_epoch_end() -> None:
    fetcher = Fetcher()
    work = diverging(fetcher, 3, 4, EpochEnd(LeaderEpoch(2), 2))
    assert [cut.offset for cut in work.truncations] == [2]


@pytest.mark.parametrize(
    ("leader_start", "end", "own", "cut"),
    [
        (3, 3, EpochEnd(LeaderEpoch(1), 5), (3, True)),
        (4, 4, EpochEnd(LeaderEpoch(0), 2), (4, True)),
        (9, 9, EpochEnd(LeaderEpoch(0), 2), (9, True)),
        (2, 3, EpochEnd(LeaderEpoch(1), 5), (3, False)),
        (0, 0, EpochEnd(LeaderEpoch(1), 5), (0, True)),
    ],
)
def test_log_without_common_records_restarts_at_the_leaders_log_start(
    leader_start: int, end: int, own: EpochEnd, cut: tuple[int, bool]
) -> None:
    """The leader has deleted its earlier records and forgotten their epochs."""
    fetcher = Fetcher()
    fetcher.replicas[0].ends[1] = own
    fetcher.ask()
    answer = PartitionData(0, log_start_offset=leader_start, diverging_epoch=EpochEndOffset(1, end))
    assert fetcher.answer(answer).truncations == [Truncation(fetcher.followed(), *cut)]
    assert fetcher.followed().phase is FetchPhase.TRUNCATING


def test_truncated_log_is_fetched_with_its_older_epoch() -> None:
    fetcher = Fetcher()
    diverging(fetcher, 1, 3, EpochEnd(LeaderEpoch(1), 5))
    fetcher.replicas[0].where = at(3, 0)
    fetcher.core.on_truncated(fetcher.followed(), 0, is_done=True)
    partition = fetcher.ask().topics[0].partitions[0]
    assert (partition.fetch_offset, partition.last_fetched_epoch) == (3, 0)


def test_truncation_without_effect_backs_off() -> None:
    fetcher = Fetcher()
    diverging(fetcher, 1, 5, EpochEnd(LeaderEpoch(1), 5))
    fetcher.core.on_truncated(fetcher.followed(), 0, is_done=True)
    assert fetcher.followed().phase is FetchPhase.DELAYED


def test_truncation_that_ends_after_its_epoch_is_ignored() -> None:
    fetcher = Fetcher()
    diverging(fetcher, 1, 3, EpochEnd(LeaderEpoch(1), 5))
    former = fetcher.followed()
    fetcher.replicas[0].leader_epoch = LeaderEpoch(2)
    fetcher.core.add(fetcher.replicas[0])
    fetcher.core.on_truncated(former, 0, is_done=True)
    fetcher.core.on_broken(former)
    assert (former.phase, fetcher.followed().phase, fetcher.core.replicas.failed_count) == (
        FetchPhase.GONE,
        FetchPhase.FETCHING,
        0,
    )


def out_of_range(fetcher: Fetcher) -> PartitionFetchState[FakeReplica]:
    fetcher.ask()
    (followed,) = fetcher.answer(PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE)).out_of_range
    return followed


@pytest.mark.parametrize(
    ("start", "end", "cut"),
    [(0, 3, (3, False)), (8, 12, (8, True)), (0, 5, None), (5, 9, None), (0, 9, None)],
)
def test_leaders_bounds_decide_the_truncation(start: int, end: int, cut: tuple[int, bool] | None) -> None:
    """The replica's own log ends at 5."""
    fetcher = Fetcher()
    followed = out_of_range(fetcher)
    found = fetcher.core.on_bounds(followed, LogBound(0, start), LogBound(0, end), 0)
    assert found == (None if cut is None else Truncation(followed, *cut))
    assert followed.phase is (FetchPhase.FETCHING if cut is None else FetchPhase.TRUNCATING)


def test_unknown_bounds_are_looked_up_after_a_back_off() -> None:
    fetcher = Fetcher()
    followed = out_of_range(fetcher)
    assert fetcher.core.on_bounds(followed, LogBound(0, 0), LogBound(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), 0) is None
    assert followed.phase is FetchPhase.DELAYED


def test_fenced_epoch_during_the_bounds_lookup_fails_the_replica() -> None:
    fetcher = Fetcher()
    followed = out_of_range(fetcher)
    fetcher.core.on_bounds(followed, LogBound(0, 0), LogBound(ErrorCode.FENCED_LEADER_EPOCH, -1), 0)
    assert followed.phase is FetchPhase.FAILED


# ---- quota


def throttled() -> tuple[Fetcher, ReplicationQuota]:
    quota = ReplicationQuota()
    quota.rate = 100
    quota.list_topic("t", [0])
    return Fetcher(2, quota), quota


def test_lagging_replica_waits_while_the_quota_is_exceeded() -> None:
    fetcher, quota = throttled()
    quota.record(1000, 0)
    assert named(fetcher.ask()) == [1]
    assert fetcher.followed(0).phase is FetchPhase.THROTTLED
    fetcher.answer(PartitionData(1))
    assert fetcher.core.next_deadline_ms(0) == 200
    fetcher.now_ms = 20_000
    assert named(fetcher.ask()) == [0]


def test_replica_without_lag_is_not_throttled() -> None:
    fetcher, quota = throttled()
    fetcher.open()
    quota.record(1000, 0)
    fetcher.ask()
    assert fetcher.followed(0).phase is FetchPhase.FETCHING


def test_traffic_of_listed_replicas_counts_in_sync_or_not() -> None:
    fetcher, quota = throttled()
    fetcher.ask()
    for fetched in fetcher.answer(records(0, 300), records(1, 5000)).appends:
        fetcher.replicas[fetched.followed.partition.index].where = at(6)
        fetcher.core.on_appended(fetched, 0)
    assert quota.observed(0) == 300


def test_replica_removed_from_the_quota_list_resumes() -> None:
    fetcher, quota = throttled()
    fetcher.open()
    fetcher.followed(0).lag = 7
    quota.list_topic("t", [])
    fetcher.core.replicas.on_quota_changed()
    quota.record(1000, 0)
    fetcher.ask()
    assert fetcher.followed(0).phase is FetchPhase.FETCHING


# ---- sessionless fetches


def sessionless(fetcher: Fetcher) -> tuple[int, FetchRequest] | None:
    return fetcher.core.sessionless_request(SENDER, fetcher.now_ms)


def waiting(count: int = 1, new_replicas_max: int = 200) -> Fetcher:
    """Return a fetcher with an idle request at the leader."""
    fetcher = Fetcher(count, new_replicas_max=new_replicas_max)
    fetcher.open()
    fetcher.ask()
    fetcher.now_ms = 100
    return fetcher


def test_sessionless_fetch_overtakes_an_idle_request() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    found = sessionless(fetcher)
    assert found is not None
    _, request = found
    assert (request.session_id, request.session_epoch, named(request)) == (0, -1, [3])
    assert request.max_wait_ms == 500 - 100 - 20


def test_sessionless_fetch_needs_a_new_replica() -> None:
    assert sessionless(waiting()) is None


def test_fresh_session_request_is_not_overtaken() -> None:
    fetcher = waiting()
    fetcher.now_ms = 5
    fetcher.core.add(FakeReplica("t", T, 3))
    assert sessionless(fetcher) is None
    assert fetcher.core.next_deadline_ms(5) == 10


def test_new_replica_waits_for_a_session_request_that_returns_soon() -> None:
    fetcher = waiting()
    fetcher.now_ms = 485
    fetcher.core.add(FakeReplica("t", T, 3))
    assert sessionless(fetcher) is None
    fetcher.answer()
    assert named(fetcher.ask()) == [3]


def test_replica_in_a_sessionless_fetch_is_not_fetched_twice() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    sessionless(fetcher)
    fetcher.answer()
    request = fetcher.ask()
    assert named(request) == []
    assert request.max_wait_ms == 50


def test_replicas_join_the_session_after_a_sessionless_fetch() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    found = sessionless(fetcher)
    assert found is not None
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[PartitionData(3)])])
    (fetched,) = fetcher.core.on_sessionless_response(found[0], response, 110).appends
    fetcher.core.on_appended(fetched, 110)
    fetcher.answer()
    assert named(fetcher.ask()) == [3]


@pytest.mark.parametrize("response", [None, FetchResponse(error_code=-1)])
def test_unanswered_sessionless_fetch_delays_only_its_replicas(response: FetchResponse | None) -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    found = sessionless(fetcher)
    assert found is not None
    fetcher.core.on_sessionless_response(found[0], response, 110)
    assert [each.phase for each in fetcher.core.replicas.all()] == [FetchPhase.FETCHING, FetchPhase.DELAYED]


def test_sessionless_fetches_are_limited_by_their_connections() -> None:
    fetcher = waiting()
    lanes = []
    for index in range(3, 9):
        fetcher.core.add(FakeReplica("t", T, index))
        found = sessionless(fetcher)
        lanes.append(None if found is None else found[0])
    assert lanes == [0, 1, 2, 3, None, None]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[PartitionData(4)])])
    fetcher.core.on_sessionless_response(1, response, 110)
    found = sessionless(fetcher)
    assert found is not None
    assert (found[0], sorted(named(found[1]))) == (1, [4, 7, 8])


def test_many_new_replicas_are_spread_over_sessionless_fetches() -> None:
    fetcher = waiting(new_replicas_max=2)
    for index in range(3, 12):
        fetcher.core.add(FakeReplica("t", T, index))
    found = []
    while (each := sessionless(fetcher)) is not None:
        found.append((each[0], named(each[1])))
    assert found == [(0, [3, 4, 5]), (1, [6, 7]), (2, [8, 9]), (3, [10, 11])]


def test_sessionless_answer_about_a_removed_replica_is_ignored() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    found = sessionless(fetcher)
    assert found is not None
    fetcher.core.remove((T, 3))
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[records(3)])])
    work = fetcher.core.on_sessionless_response(found[0], response, 110)
    assert work.appends == []
    fetcher.answer()
    assert named(fetcher.ask()) == []


def test_sessionless_answer_serves_the_remaining_replicas() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    fetcher.core.add(FakeReplica("t", T, 4))
    found = sessionless(fetcher)
    assert found is not None
    fetcher.core.remove((T, 3))
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[records(3), records(4)])])
    work = fetcher.core.on_sessionless_response(found[0], response, 110)
    assert [each.followed.key for each in work.appends] == [(T, 4)]
    assert fetcher.followed(1).phase is FetchPhase.FETCHING


def test_sessionless_answer_about_unrequested_partitions_is_dropped() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    found = sessionless(fetcher)
    assert found is not None
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[records(0), records(3)])])
    assert fetcher.core.on_sessionless_response(found[0], response, 110).appends == []
    assert fetcher.followed(1).phase is FetchPhase.DELAYED


def test_sessionless_answer_of_the_former_epoch_is_void() -> None:
    fetcher = waiting()
    replica = FakeReplica("t", T, 3)
    fetcher.core.add(replica)
    found = sessionless(fetcher)
    assert found is not None
    replica.leader_epoch = LeaderEpoch(replica.leader_epoch + 1)
    fetcher.core.add(replica)
    fetcher.answer()
    assert named(fetcher.ask()) == [3]
    late = PartitionData(3, ErrorCode.FENCED_LEADER_EPOCH)
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[late])])
    assert fetcher.core.on_sessionless_response(found[0], response, 110).failures == []
    assert fetcher.followed(1).phase is FetchPhase.FETCHING


# ---- lag


def test_lag_is_relative_to_the_leaders_high_watermark() -> None:
    fetcher = Fetcher(2)
    fetcher.ask()
    for fetched in fetcher.answer(records(0, 10, 60), PartitionData(1, high_watermark=2)).appends:
        if fetched.followed.partition.index == 0:
            fetcher.replicas[0].where = at(20)
        fetcher.core.on_appended(fetched, 0)
    assert [each.lag for each in fetcher.core.replicas.all()] == [40, 0]
    assert fetcher.core.replicas.max_lag == 40


# ---- remote records


def moved(fetcher: Fetcher, log_start_offset: int = 2) -> AuxStateBuild[FakeReplica]:
    """The leader has replica 0's next records in remote storage only."""
    fetcher.ask()
    data = PartitionData(0, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, log_start_offset=log_start_offset)
    (build,) = fetcher.answer(data).builds
    return build


def test_building_replica_is_not_fetched_while_others_are() -> None:
    fetcher = Fetcher(2)
    fetcher.open()
    build = moved(fetcher)
    assert (build.followed, build.leader_log_start) == (fetcher.followed(), 2)
    assert build.followed.phase is FetchPhase.BUILDING
    request = fetcher.ask()
    assert (named(request), forgotten(request)) == ([], [0])
    (fetched,) = fetcher.answer(records(1)).appends
    assert fetched.followed is fetcher.followed(1)


def test_build_uses_the_replicas_log_start_if_the_leader_names_none() -> None:
    fetcher = Fetcher()
    fetcher.replicas[0].where = at(5, 1, 3)
    fetcher.core.add(fetcher.replicas[0])
    fetcher.followed().refresh()
    assert moved(fetcher, log_start_offset=-1).leader_log_start == 3


def test_built_replica_is_fetched_at_once() -> None:
    fetcher = Fetcher()
    fetcher.open()
    followed = moved(fetcher).followed
    fetcher.replicas[0].where = at(40, 7, 2)
    fetcher.core.on_built(followed, 0, is_done=True)
    partition = fetcher.ask().topics[0].partitions[0]
    assert (partition.fetch_offset, partition.last_fetched_epoch, partition.log_start_offset) == (40, 7, 2)
    assert followed.lag == -1


def test_failed_build_is_retried_after_a_back_off() -> None:
    fetcher = Fetcher()
    fetcher.open()
    followed = moved(fetcher).followed
    for attempt in range(3):
        fetcher.core.on_build_failed(followed, fetcher.now_ms)
        assert followed.phase is FetchPhase.DELAYED
        assert followed.due_ms - fetcher.now_ms == FIRST_BACKOFF_MS << attempt
        fetcher.ask()
        fetcher.answer()
        fetcher.now_ms = followed.due_ms
        followed = moved(fetcher).followed
    fetcher.replicas[0].where = at(40)
    fetcher.core.on_built(followed, fetcher.now_ms, is_done=True)
    assert (followed.phase, followed.failures) == (FetchPhase.FETCHING, 0)


@pytest.mark.parametrize(("where", "is_done"), [(at(40), False), (at(5), True)])
def test_build_without_effect_backs_off(where: FetchPosition, is_done: bool) -> None:
    fetcher = Fetcher()
    fetcher.open()
    followed = moved(fetcher).followed
    fetcher.replicas[0].where = where
    fetcher.core.on_built(followed, 0, is_done=is_done)
    assert followed.phase is FetchPhase.DELAYED


def test_repeated_builds_back_off_until_the_leader_serves_the_replica() -> None:
    fetcher = Fetcher()
    fetcher.open()
    for attempt, phase in enumerate([FetchPhase.FETCHING, FetchPhase.DELAYED, FetchPhase.DELAYED]):
        followed = moved(fetcher).followed
        fetcher.replicas[0].where = at(40 + attempt)
        fetcher.core.on_built(followed, fetcher.now_ms, is_done=True)
        assert followed.phase is phase
        if phase is FetchPhase.DELAYED:
            fetcher.ask()
            fetcher.answer()
            fetcher.now_ms = followed.due_ms
    fetcher.ask()
    (fetched,) = fetcher.answer(PartitionData(0, high_watermark=50)).appends
    fetcher.core.on_appended(fetched, fetcher.now_ms)
    assert (fetched.followed.builds, fetched.followed.failures) == (0, 0)


def test_log_without_remote_records_restarts() -> None:
    fetcher = Fetcher()
    fetcher.open()
    followed = moved(fetcher).followed
    assert fetcher.core.on_nothing_remote(followed, 9) == Truncation(followed, 9, is_full=True)
    assert followed.phase is FetchPhase.TRUNCATING


def test_new_leader_epoch_voids_a_build() -> None:
    fetcher = Fetcher()
    fetcher.open()
    former = moved(fetcher).followed
    fetcher.replicas[0].leader_epoch = LeaderEpoch(2)
    fetcher.core.add(fetcher.replicas[0])
    fetcher.core.on_built(former, 0, is_done=True)
    fetcher.core.on_build_failed(former, 0)
    assert fetcher.core.on_nothing_remote(former, 9) is None
    assert (former.phase, fetcher.followed().phase) == (FetchPhase.GONE, FetchPhase.FETCHING)


def parted(fetcher: Fetcher, end: int) -> FetchActions[FakeReplica]:
    """The leader's epoch 1 ends at `end`; the replica's log is from 0 to 5, local from 3 on."""
    replica = fetcher.replicas[0]
    replica.local_start_offset = 3
    replica.ends[1] = EpochEnd(LeaderEpoch(1), 5)
    fetcher.ask()
    return fetcher.answer(PartitionData(0, log_start_offset=1, diverging_epoch=EpochEndOffset(1, end)))


def test_divergence_within_the_local_log_truncates() -> None:
    fetcher = Fetcher()
    assert parted(fetcher, 3).truncations == [Truncation(fetcher.followed(), 3)]


def test_divergence_below_the_local_log_builds_auxiliary_state() -> None:
    fetcher = Fetcher()
    work = parted(fetcher, 2)
    assert (work.truncations, work.builds) == ([], [AuxStateBuild(fetcher.followed(), 1)])


def test_log_without_remote_records_truncates_below_its_start() -> None:
    fetcher = Fetcher()
    fetcher.replicas[0].where = at(5, 1, 3)
    fetcher.followed().refresh()
    assert parted(fetcher, 2).truncations == [Truncation(fetcher.followed(), 2)]


def test_leader_log_that_ends_below_the_local_log_builds_auxiliary_state() -> None:
    fetcher = Fetcher()
    fetcher.replicas[0].local_start_offset = 3
    followed = out_of_range(fetcher)
    assert fetcher.core.on_bounds(followed, LogBound(0, 1), LogBound(0, 2), 0) == AuxStateBuild(followed, 1)
    assert followed.phase is FetchPhase.BUILDING

"""The fetcher's rules one by one; whole conversations are in tests/scenarios/replication."""

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
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.primitives import Uuid

SENDER = Sender(9, 90)
T = Uuid(b"t" * 16)
U = Uuid(b"u" * 16)


def at(offset: int, last_epoch: int = 1, log_start_offset: int = 0) -> FetchPosition:
    return FetchPosition(offset, last_epoch, log_start_offset)


@dataclass(eq=False)
class FakeReplica:
    topic: str
    topic_id: Uuid
    index: int
    leader_epoch: int = 1
    where: FetchPosition = field(default_factory=lambda: at(5))
    ends: dict[int, EpochEnd] = field(default_factory=dict)
    local_start_offset: int = 0

    def fetch_position(self) -> FetchPosition:
        return self.where

    def end_for_epoch(self, epoch: int) -> EpochEnd:
        return self.ends[epoch]


class Fetcher:
    """A core with replicas t-0 … of topic T."""

    def __init__(self, count: int = 1, quota: ReplicationQuota | None = None) -> None:
        self.core: FetcherCore[FakeReplica] = FetcherCore(FetcherSettings(), quota)
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
        """Open a session, in which nobody has anything to say."""
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


def test_a_request_says_who_asks_and_for_how_much() -> None:
    request = Fetcher().ask()
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (9, 90)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_485_760)
    (topic,) = request.topics
    (asked,) = topic.partitions
    assert topic.topic_id == T
    assert (asked.partition, asked.current_leader_epoch, asked.fetch_offset, asked.last_fetched_epoch) == (0, 1, 5, 1)
    assert (asked.log_start_offset, asked.partition_max_bytes) == (0, 1_048_576)


def test_one_request_is_on_its_way_at_a_time() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    assert fetcher.asks_nothing()


def test_nobody_to_ask_for_is_nothing_to_ask() -> None:
    assert Fetcher(0).asks_nothing()


def test_only_what_moved_is_named_within_a_session() -> None:
    fetcher = Fetcher(3)
    fetcher.open()
    fetcher.ask()
    (fetched,) = fetcher.answer(records(1)).appends
    fetcher.replicas[1].where = at(6)
    fetcher.core.on_appended(fetched, 0)
    assert named(fetcher.ask()) == [1]


def test_partitions_of_a_topic_that_follow_each_other_share_its_entry() -> None:
    fetcher = Fetcher(2)
    fetcher.core.add(FakeReplica("u", U, 0))
    fetcher.core.add(FakeReplica("t", T, 5))
    assert [topic.topic_id for topic in fetcher.ask().topics] == [T, U, T]


def test_a_moved_log_start_alone_is_told() -> None:
    fetcher = Fetcher()
    fetcher.open()
    fetcher.ask()
    (fetched,) = fetcher.answer(PartitionData(0, high_watermark=5, log_start_offset=3)).appends
    fetcher.replicas[0].where = at(5, 1, 3)
    fetcher.core.on_appended(fetched, 0)
    assert fetcher.ask().topics[0].partitions[0].log_start_offset == 3


def test_who_leaves_is_forgotten_once() -> None:
    fetcher = Fetcher(2)
    fetcher.open()
    fetcher.core.remove((T, 0))
    assert forgotten(fetcher.ask()) == [0]
    fetcher.answer()
    assert forgotten(fetcher.ask()) == []


def test_who_leaves_and_comes_back_before_the_leader_hears_of_it_is_named_and_not_forgotten() -> None:
    fetcher = Fetcher(2)
    fetcher.open()
    fetcher.core.remove((T, 0))
    fetcher.core.add(fetcher.replicas[0])
    request = fetcher.ask()
    assert (named(request), forgotten(request)) == ([0], [])


def test_who_came_and_left_unnoticed_is_no_news() -> None:
    fetcher = Fetcher(1)
    fetcher.open()
    fetcher.core.add(FakeReplica("t", T, 4))
    fetcher.core.remove((T, 4))
    request = fetcher.ask()
    assert (named(request), forgotten(request)) == ([], [])


def test_after_the_last_member_left_the_session_is_emptied_and_then_nothing_is_said() -> None:
    fetcher = Fetcher(1)
    fetcher.open()
    fetcher.core.remove((T, 0))
    assert forgotten(fetcher.ask()) == [0]
    fetcher.answer(session_id=0)
    assert fetcher.asks_nothing()


# ---- who is told what


def test_the_same_reign_again_changes_nothing() -> None:
    fetcher = Fetcher()
    fetcher.open()
    fetcher.core.add(fetcher.replicas[0])
    assert named(fetcher.ask()) == []


def test_a_new_reign_voids_the_answer_that_is_under_way() -> None:
    fetcher = Fetcher()
    fetcher.open()
    fetcher.ask()
    fetcher.replicas[0].leader_epoch = 2
    fetcher.core.add(fetcher.replicas[0])
    assert fetcher.answer(records(0)).appends == []
    request = fetcher.ask()
    assert request.topics[0].partitions[0].current_leader_epoch == 2
    assert forgotten(request) == []


def test_even_a_fence_of_the_former_reign_is_void() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    fetcher.replicas[0].leader_epoch = 2
    fetcher.core.add(fetcher.replicas[0])
    fetcher.answer(PartitionData(0, ErrorCode.FENCED_LEADER_EPOCH))
    assert fetcher.followed().phase is FetchPhase.FETCHING


def test_an_answer_about_who_left_meanwhile_fits_all_the_same() -> None:
    fetcher = Fetcher(2)
    fetcher.open()
    fetcher.ask()
    fetcher.core.remove((T, 0))
    (fetched,) = fetcher.answer(records(0), records(1)).appends
    assert fetched.followed.partition.index == 1


def test_an_answer_about_a_stranger_is_dropped_whole() -> None:
    fetcher = Fetcher(1)
    fetcher.open()
    fetcher.ask()
    assert fetcher.answer(records(0), records(8)).appends == []
    request = fetcher.ask()
    assert (request.session_id, request.session_epoch, named(request)) == (7, 0, [0])


def test_a_full_answer_must_list_all_that_was_asked() -> None:
    fetcher = Fetcher(2)
    fetcher.ask()
    assert fetcher.answer(records(0)).appends == []
    assert named(fetcher.ask()) == [0, 1]


def test_a_throttled_leader_may_answer_with_nothing() -> None:
    fetcher = Fetcher(2)
    fetcher.ask()
    assert fetcher.answer(session_id=0).complaint == ""
    assert named(fetcher.ask()) == [0, 1]


# ---- failures


def test_a_request_without_answer_pauses_the_fetcher_longer_each_time_up_to_the_limit() -> None:
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


def test_news_of_a_leader_end_a_pause() -> None:
    fetcher = Fetcher(1)
    fetcher.ask()
    fetcher.core.on_failure(0)
    fetcher.core.add(FakeReplica("t", T, 1))
    assert named(fetcher.ask()) == [0, 1]


def test_an_error_as_a_whole_is_told_and_pauses() -> None:
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
def test_a_leader_that_does_not_serve_is_asked_again_in_a_while(code: int) -> None:
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


def test_success_forgives_former_failures() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    fetcher.answer(PartitionData(0, ErrorCode.UNKNOWN_LEADER_EPOCH))
    fetcher.now_ms = FIRST_BACKOFF_MS
    fetcher.open()
    assert fetcher.followed().failures == 0


def test_a_fenced_replica_waits_for_the_next_reign() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    fetcher.answer(PartitionData(0, ErrorCode.FENCED_LEADER_EPOCH))
    assert (fetcher.followed().phase, fetcher.core.replicas.failed_count) == (FetchPhase.FAILED, 1)
    fetcher.now_ms = 10**9
    assert forgotten(fetcher.ask()) == [0]
    fetcher.answer(session_id=0)
    assert fetcher.asks_nothing()
    fetcher.replicas[0].leader_epoch = 2
    fetcher.core.add(fetcher.replicas[0])
    assert fetcher.core.replicas.failed_count == 0
    assert named(fetcher.ask()) == [0]


def test_to_be_told_of_a_failed_replica_again_is_reason_enough_to_try() -> None:
    fetcher = Fetcher()
    fetcher.core.on_broken(fetcher.followed())
    fetcher.core.add(fetcher.replicas[0])
    assert named(fetcher.ask()) == [0]


def test_records_that_are_not_taken_are_not_asked_for_at_once() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    (fetched,) = fetcher.answer(records(0)).appends
    fetcher.core.on_appended(fetched, 0)
    assert fetcher.followed().phase is FetchPhase.DELAYED


def test_an_append_that_was_refused_is_tried_again_from_where_the_replica_stands() -> None:
    fetcher = Fetcher()
    fetcher.ask()
    (fetched,) = fetcher.answer(records(0)).appends
    fetcher.replicas[0].where = at(3)
    fetcher.core.on_not_appended(fetched.followed, 0)
    fetcher.now_ms = FIRST_BACKOFF_MS
    fetcher.answer() if fetcher.core.is_waiting else None
    assert fetcher.ask().topics[0].partitions[0].fetch_offset == 3


# ---- divergence and range


def diverging(fetcher: Fetcher, epoch: int, end: int, own: EpochEnd) -> FetchActions[FakeReplica]:
    fetcher.replicas[0].ends[epoch] = own
    fetcher.ask()
    return fetcher.answer(PartitionData(0, diverging_epoch=EpochEndOffset(epoch, end), records=bytes(10)))


def test_a_log_is_cut_where_the_leader_ended_the_epoch() -> None:
    fetcher = Fetcher()
    work = diverging(fetcher, 1, 3, EpochEnd(1, 5))
    assert [(cut.offset, cut.is_full) for cut in work.truncations] == [(3, False)]
    assert (work.appends, fetcher.followed().phase) == ([], FetchPhase.TRUNCATING)


def test_a_log_without_the_leaders_epoch_is_cut_at_the_end_of_its_own_older_one() -> None:
    fetcher = Fetcher()
    work = diverging(fetcher, 3, 4, EpochEnd(2, 2))
    assert [cut.offset for cut in work.truncations] == [2]


@pytest.mark.parametrize(
    ("leader_start", "end", "own", "cut"),
    [
        (3, 3, EpochEnd(1, 5), (3, True)),
        (4, 4, EpochEnd(0, 2), (4, True)),
        (9, 9, EpochEnd(0, 2), (9, True)),
        (2, 3, EpochEnd(1, 5), (3, False)),
        (0, 0, EpochEnd(1, 5), (0, True)),
    ],
)
def test_a_log_of_which_the_leader_has_nothing_starts_anew_at_the_leaders_start(
    leader_start: int, end: int, own: EpochEnd, cut: tuple[int, bool]
) -> None:
    """The leader deleted what was before, and knows no longer of which epochs that was."""
    fetcher = Fetcher()
    fetcher.replicas[0].ends[1] = own
    fetcher.ask()
    answer = PartitionData(0, log_start_offset=leader_start, diverging_epoch=EpochEndOffset(1, end))
    assert fetcher.answer(answer).truncations == [Truncation(fetcher.followed(), *cut)]
    assert fetcher.followed().phase is FetchPhase.TRUNCATING


def test_a_cut_log_is_asked_for_again_with_its_older_epoch() -> None:
    fetcher = Fetcher()
    diverging(fetcher, 1, 3, EpochEnd(1, 5))
    fetcher.replicas[0].where = at(3, 0)
    fetcher.core.on_truncated(fetcher.followed(), 0, is_done=True)
    asked = fetcher.ask().topics[0].partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (3, 0)


def test_a_cut_that_changes_nothing_is_not_repeated_at_once() -> None:
    fetcher = Fetcher()
    diverging(fetcher, 1, 5, EpochEnd(1, 5))
    fetcher.core.on_truncated(fetcher.followed(), 0, is_done=True)
    assert fetcher.followed().phase is FetchPhase.DELAYED


def test_a_cut_that_ends_after_the_reign_is_nobodys() -> None:
    fetcher = Fetcher()
    diverging(fetcher, 1, 3, EpochEnd(1, 5))
    former = fetcher.followed()
    fetcher.replicas[0].leader_epoch = 2
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
def test_the_leaders_bounds_decide_what_is_left(start: int, end: int, cut: tuple[int, bool] | None) -> None:
    """The replica's own log ends at 5."""
    fetcher = Fetcher()
    followed = out_of_range(fetcher)
    found = fetcher.core.on_bounds(followed, LogBound(0, start), LogBound(0, end), 0)
    assert found == (None if cut is None else Truncation(followed, *cut))
    assert followed.phase is (FetchPhase.FETCHING if cut is None else FetchPhase.TRUNCATING)


def test_bounds_that_are_not_known_are_asked_for_later() -> None:
    fetcher = Fetcher()
    followed = out_of_range(fetcher)
    assert fetcher.core.on_bounds(followed, LogBound(0, 0), LogBound(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), 0) is None
    assert followed.phase is FetchPhase.DELAYED


def test_a_fence_while_the_bounds_are_asked_for_counts_as_one() -> None:
    fetcher = Fetcher()
    followed = out_of_range(fetcher)
    fetcher.core.on_bounds(followed, LogBound(0, 0), LogBound(ErrorCode.FENCED_LEADER_EPOCH, -1), 0)
    assert followed.phase is FetchPhase.FAILED


# ---- the quota


def throttled() -> tuple[Fetcher, ReplicationQuota]:
    quota = ReplicationQuota()
    quota.rate = 100
    quota.list_topic("t", [0])
    return Fetcher(2, quota), quota


def test_who_lags_waits_while_the_quota_is_exceeded() -> None:
    fetcher, quota = throttled()
    quota.record(1000, 0)
    assert named(fetcher.ask()) == [1]
    assert fetcher.followed(0).phase is FetchPhase.THROTTLED
    fetcher.answer(PartitionData(1))
    assert fetcher.core.next_deadline_ms(0) == 200
    fetcher.now_ms = 20_000
    assert named(fetcher.ask()) == [0]


def test_who_is_in_sync_does_not_wait() -> None:
    fetcher, quota = throttled()
    fetcher.open()
    quota.record(1000, 0)
    fetcher.ask()
    assert fetcher.followed(0).phase is FetchPhase.FETCHING


def test_listed_traffic_counts_in_sync_or_not() -> None:
    fetcher, quota = throttled()
    fetcher.ask()
    for fetched in fetcher.answer(records(0, 300), records(1, 5000)).appends:
        fetcher.replicas[fetched.followed.partition.index].where = at(6)
        fetcher.core.on_appended(fetched, 0)
    assert quota.observed(0) == 300


def test_who_is_listed_no_more_goes_on() -> None:
    fetcher, quota = throttled()
    fetcher.open()
    fetcher.followed(0).lag = 7
    quota.list_topic("t", [])
    fetcher.core.replicas.on_quota_changed()
    quota.record(1000, 0)
    fetcher.ask()
    assert fetcher.followed(0).phase is FetchPhase.FETCHING


# ---- the express


def express(fetcher: Fetcher) -> tuple[int, FetchRequest] | None:
    return fetcher.core.sessionless_request(SENDER, fetcher.now_ms)


def waiting(count: int = 1) -> Fetcher:
    """With an idle request at the leader."""
    fetcher = Fetcher(count)
    fetcher.open()
    fetcher.ask()
    fetcher.now_ms = 100
    return fetcher


def test_a_newcomer_goes_ahead_of_an_idle_request_and_comes_back_before_it() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    found = express(fetcher)
    assert found is not None
    _, request = found
    assert (request.session_id, request.session_epoch, named(request)) == (0, -1, [3])
    assert request.max_wait_ms == 500 - 100 - 20


def test_without_newcomers_there_is_no_express() -> None:
    assert express(waiting()) is None


def test_a_fresh_request_is_given_a_moment() -> None:
    fetcher = waiting()
    fetcher.now_ms = 5
    fetcher.core.add(FakeReplica("t", T, 3))
    assert express(fetcher) is None
    assert fetcher.core.next_deadline_ms(5) == 10


def test_shortly_before_the_request_returns_a_newcomer_waits_for_it() -> None:
    fetcher = waiting()
    fetcher.now_ms = 485
    fetcher.core.add(FakeReplica("t", T, 3))
    assert express(fetcher) is None
    fetcher.answer()
    assert named(fetcher.ask()) == [3]


def test_who_is_under_way_is_not_asked_for_twice() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    express(fetcher)
    fetcher.answer()
    request = fetcher.ask()
    assert named(request) == []
    assert request.max_wait_ms == 50


def test_passengers_join_the_session_when_they_are_back() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    found = express(fetcher)
    assert found is not None
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[PartitionData(3)])])
    (fetched,) = fetcher.core.on_sessionless_response(found[0], response, 110).appends
    fetcher.core.on_appended(fetched, 110)
    fetcher.answer()
    assert named(fetcher.ask()) == [3]


@pytest.mark.parametrize("response", [None, FetchResponse(error_code=-1)])
def test_an_express_without_answer_delays_its_passengers_only(response: FetchResponse | None) -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    found = express(fetcher)
    assert found is not None
    fetcher.core.on_sessionless_response(found[0], response, 110)
    assert [each.phase for each in fetcher.core.replicas.all()] == [FetchPhase.FETCHING, FetchPhase.DELAYED]


def test_lanes_are_used_one_after_the_other_until_there_is_none() -> None:
    fetcher = waiting()
    lanes = []
    for index in range(3, 9):
        fetcher.core.add(FakeReplica("t", T, index))
        found = express(fetcher)
        lanes.append(None if found is None else found[0])
    assert lanes == [0, 1, 2, 3, None, None]
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[PartitionData(4)])])
    fetcher.core.on_sessionless_response(1, response, 110)
    found = express(fetcher)
    assert found is not None
    assert (found[0], sorted(named(found[1]))) == (1, [4, 7, 8])


def test_a_passenger_that_left_meanwhile_is_gone() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    found = express(fetcher)
    assert found is not None
    fetcher.core.remove((T, 3))
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[records(3)])])
    work = fetcher.core.on_sessionless_response(found[0], response, 110)
    assert work.appends == []
    fetcher.answer()
    assert named(fetcher.ask()) == []


def test_a_passenger_that_left_takes_nothing_from_the_others() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    fetcher.core.add(FakeReplica("t", T, 4))
    found = express(fetcher)
    assert found is not None
    fetcher.core.remove((T, 3))
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[records(3), records(4)])])
    work = fetcher.core.on_sessionless_response(found[0], response, 110)
    assert [each.followed.key for each in work.appends] == [(T, 4)]
    assert fetcher.followed(1).phase is FetchPhase.FETCHING


def test_an_express_that_speaks_of_others_says_nothing() -> None:
    fetcher = waiting()
    fetcher.core.add(FakeReplica("t", T, 3))
    found = express(fetcher)
    assert found is not None
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[records(0), records(3)])])
    assert fetcher.core.on_sessionless_response(found[0], response, 110).appends == []
    assert fetcher.followed(1).phase is FetchPhase.DELAYED


def test_an_express_of_the_last_reign_says_nothing_of_this_one() -> None:
    fetcher = waiting()
    replica = FakeReplica("t", T, 3)
    fetcher.core.add(replica)
    found = express(fetcher)
    assert found is not None
    replica.leader_epoch += 1
    fetcher.core.add(replica)
    fetcher.answer()
    assert named(fetcher.ask()) == [3]
    late = PartitionData(3, ErrorCode.FENCED_LEADER_EPOCH)
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=T, partitions=[late])])
    assert fetcher.core.on_sessionless_response(found[0], response, 110).failures == []
    assert fetcher.followed(1).phase is FetchPhase.FETCHING


# ---- lag


def test_lag_is_counted_to_the_leaders_high_watermark() -> None:
    fetcher = Fetcher(2)
    fetcher.ask()
    for fetched in fetcher.answer(records(0, 10, 60), PartitionData(1, high_watermark=2)).appends:
        if fetched.followed.partition.index == 0:
            fetcher.replicas[0].where = at(20)
        fetcher.core.on_appended(fetched, 0)
    assert [each.lag for each in fetcher.core.replicas.all()] == [40, 0]
    assert fetcher.core.replicas.max_lag == 40


# ---- what is remote


def moved(fetcher: Fetcher, log_start_offset: int = 2) -> AuxStateBuild[FakeReplica]:
    """The leader has what replica 0 needs in remote storage alone."""
    fetcher.ask()
    data = PartitionData(0, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, log_start_offset=log_start_offset)
    (build,) = fetcher.answer(data).builds
    return build


def test_a_replica_that_must_begin_behind_what_is_remote_is_not_asked_for_meanwhile_and_others_are() -> None:
    fetcher = Fetcher(2)
    fetcher.open()
    build = moved(fetcher)
    assert (build.followed, build.leader_log_start) == (fetcher.followed(), 2)
    assert build.followed.phase is FetchPhase.BUILDING
    request = fetcher.ask()
    assert (named(request), forgotten(request)) == ([], [0])
    (fetched,) = fetcher.answer(records(1)).appends
    assert fetched.followed is fetcher.followed(1)


def test_a_leader_that_does_not_say_where_its_log_starts_leaves_the_replica_its_own_start() -> None:
    fetcher = Fetcher()
    fetcher.replicas[0].where = at(5, 1, 3)
    fetcher.core.add(fetcher.replicas[0])
    fetcher.followed().refresh()
    assert moved(fetcher, log_start_offset=-1).leader_log_start == 3


def test_once_it_begins_there_it_is_asked_for_at_once() -> None:
    fetcher = Fetcher()
    fetcher.open()
    followed = moved(fetcher).followed
    fetcher.replicas[0].where = at(40, 7, 2)
    fetcher.core.on_built(followed, 0, is_done=True)
    asked = fetcher.ask().topics[0].partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (40, 7, 2)
    assert followed.lag == -1


def test_what_is_not_there_yet_is_asked_for_again_after_a_back_off() -> None:
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
def test_a_log_that_was_not_touched_or_is_as_it_was_waits(where: FetchPosition, is_done: bool) -> None:
    fetcher = Fetcher()
    fetcher.open()
    followed = moved(fetcher).followed
    fetcher.replicas[0].where = where
    fetcher.core.on_built(followed, 0, is_done=is_done)
    assert followed.phase is FetchPhase.DELAYED


def test_who_is_sent_to_remote_storage_again_and_again_is_held_back_until_the_leader_serves_it() -> None:
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


def test_a_log_with_nothing_remote_begins_anew() -> None:
    fetcher = Fetcher()
    fetcher.open()
    followed = moved(fetcher).followed
    assert fetcher.core.on_nothing_remote(followed, 9) == Truncation(followed, 9, is_full=True)
    assert followed.phase is FetchPhase.TRUNCATING


def test_a_new_reign_voids_what_is_being_built() -> None:
    fetcher = Fetcher()
    fetcher.open()
    former = moved(fetcher).followed
    fetcher.replicas[0].leader_epoch = 2
    fetcher.core.add(fetcher.replicas[0])
    fetcher.core.on_built(former, 0, is_done=True)
    fetcher.core.on_build_failed(former, 0)
    assert fetcher.core.on_nothing_remote(former, 9) is None
    assert (former.phase, fetcher.followed().phase) == (FetchPhase.GONE, FetchPhase.FETCHING)


def parted(fetcher: Fetcher, end: int) -> FetchActions[FakeReplica]:
    """The leader's epoch 1 ends at `end`; the replica's log is from 0 to 5, from 3 on its own disk."""
    replica = fetcher.replicas[0]
    replica.local_start_offset = 3
    replica.ends[1] = EpochEnd(1, 5)
    fetcher.ask()
    return fetcher.answer(PartitionData(0, log_start_offset=1, diverging_epoch=EpochEndOffset(1, end)))


def test_a_cut_on_the_own_disk_is_a_cut() -> None:
    fetcher = Fetcher()
    assert parted(fetcher, 3).truncations == [Truncation(fetcher.followed(), 3)]


def test_logs_that_part_below_the_own_disk_begin_behind_what_is_remote() -> None:
    fetcher = Fetcher()
    work = parted(fetcher, 2)
    assert (work.truncations, work.builds) == ([], [AuxStateBuild(fetcher.followed(), 1)])


def test_a_log_that_has_nothing_remote_is_cut_below_its_start_as_ever() -> None:
    fetcher = Fetcher()
    fetcher.replicas[0].where = at(5, 1, 3)
    fetcher.followed().refresh()
    assert parted(fetcher, 2).truncations == [Truncation(fetcher.followed(), 2)]


def test_a_leader_that_ends_below_the_own_disk_has_the_replica_begin_behind_what_is_remote() -> None:
    fetcher = Fetcher()
    fetcher.replicas[0].local_start_offset = 3
    followed = out_of_range(fetcher)
    assert fetcher.core.on_bounds(followed, LogBound(0, 1), LogBound(0, 2), 0) == AuxStateBuild(followed, 1)
    assert followed.phase is FetchPhase.BUILDING

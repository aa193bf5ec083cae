"""OffsetCommit, OffsetFetch, pending offsets of transactions."""

import pytest

from broker.groups.commit import check_commit
from broker.groups.config import GroupConfig
from broker.groups.metrics import GroupMetrics
from broker.groups.offsets import OffsetStore
from broker.groups.records import CommittedOffset, OffsetKey
from broker.groups.state import GroupState
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.primitives import ZERO_UUID, Uuid
from tests.support.harnesses.group_harness import START_MS, GroupHarness, fetch_request

KEY = OffsetKey("g", "t", 0)


def stored(b: GroupHarness, partition: int = 0) -> CommittedOffset | None:
    return b.shard.offsets.get(OffsetKey("g", "t", partition))


# OffsetCommit


def test_member_commits_offsets() -> None:
    b = GroupHarness()
    b.stable_group("a")
    response = b.commit("a", {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}, metadata="note")
    assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("t", 2), ("u", 1)]
    value = stored(b)
    assert value is not None
    assert (value.offset, value.leader_epoch, value.metadata, value.expire_ms) == (5, 3, "note", -1)
    assert value.commit_ms == START_MS + 6_000
    assert b.fetch() == {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}


def test_response_waits_for_the_commit_of_the_record() -> None:
    b = GroupHarness()
    b.stable_group("a")
    b.log.holds_commits = True
    answer = b.start_later(lambda shard: shard.commit_offsets(b.commit_request("a", {("t", 0): 5}), 9), soft=True)
    fetched = b.start_later(lambda shard: shard.fetch_offsets(fetch_request("g", [("t", 0)]), False))
    assert not answer.done()
    assert not fetched.done()
    b.log.commit()
    assert fetched.result().topics[0].partitions[0].committed_offset == 5
    assert answer.done()


def test_null_metadata_is_empty_metadata() -> None:
    b = GroupHarness()
    b.commit(None, {("t", 0): 5}, metadata=None)
    value = stored(b)
    assert value is not None
    assert value.metadata == ""


def test_metadata_is_measured_in_utf_16_units() -> None:
    b = GroupHarness(GroupConfig(group_coordinator_append_linger_ms=0, offset_metadata_max_bytes=4))
    for metadata, error in [("abcd", 0), ("abcde", 12), ("üüüü", 0), ("😀😀", 0), ("😀😀a", 12)]:
        response = b.commit(None, {("t", 0): 5}, metadata=metadata)
        assert response.topics[0].partitions[0].error_code == error, metadata


def test_retention_time_of_the_client_is_stored() -> None:
    b = GroupHarness()
    b.commit(None, {("t", 0): 5}, retention_ms=1_000, version=4)
    value = stored(b)
    assert value is not None
    assert value.expire_ms == START_MS + 1_000
    replayed = b.replayed_shard().offsets.get(KEY)
    assert replayed is not None
    assert replayed.expire_ms == START_MS + 1_000


def test_commit_without_generation_creates_a_simple_group() -> None:
    b = GroupHarness()
    b.commit(None, {("t", 0): 5})
    assert b.group.protocol_type is None
    assert len(b.log.records) == 1


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_commit_with_generation_into_a_missing_group_is_refused(version: int, error: ErrorCode) -> None:
    b = GroupHarness()
    with pytest.raises(KafkaError) as caught:
        b.commit(None, {("t", 0): 5}, generation=1, version=version)
    assert caught.value.code is error


def refusal(b: GroupHarness, name: str | None, generation: int | None = None) -> ErrorCode:
    try:
        b.commit(name, {("t", 0): 5}, generation=generation)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_commits_into_a_group_with_members_are_checked() -> None:
    b = GroupHarness()
    b.stable_group("a")
    assert refusal(b, "a") is ErrorCode.NONE
    assert refusal(b, "a", generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert refusal(b, "unknown", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(b, None) is ErrorCode.UNKNOWN_MEMBER_ID
    b.client("s", instance_id="i", member_id="x")
    assert refusal(b, "s") is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_are_accepted_while_members_join_but_not_while_assignments_are_awaited() -> None:
    b = GroupHarness()
    b.stable_group("a", "b")
    b.join("a")
    assert refusal(b, "b") is ErrorCode.NONE
    b.join("b")
    assert b.state() is GroupState.COMPLETING_REBALANCE
    assert refusal(b, "b") is ErrorCode.REBALANCE_IN_PROGRESS


def test_empty_group_accepts_only_commits_without_generation() -> None:
    b = GroupHarness()
    b.stable_group("a")
    b.leave("a")
    assert refusal(b, None) is ErrorCode.NONE
    assert refusal(b, "a", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_transactional_commits_of_old_clients_need_no_member() -> None:
    b = GroupHarness()
    b.stable_group("a", "b")
    check_commit(b.group, "", None, -1, is_transactional=True)
    b.join("a")
    b.join("b")
    check_commit(b.group, "a-1", None, 2, is_transactional=True)
    with pytest.raises(KafkaError) as caught:
        check_commit(b.group, "a-1", None, 1, is_transactional=True)
    assert caught.value.code is ErrorCode.ILLEGAL_GENERATION


# OffsetFetch


def test_partition_without_commit_has_no_offset() -> None:
    b = GroupHarness()
    assert b.fetch([("t", 0)], group="unknown") == {("t", 0): -1}
    assert b.fetch(None, group="unknown") == {}
    b.commit(None, {("t", 0): 5})
    assert b.fetch([("t", 0), ("t", 1), ("u", 0)]) == {("t", 0): 5, ("t", 1): -1, ("u", 0): -1}


def test_offset_of_a_deleted_topic_with_the_same_name_is_not_returned() -> None:
    b = GroupHarness()
    b.commit(None, {("t", 0): 5}, topic_id=Uuid(b"1" * 16))
    request = fetch_request("g", [("t", 0)])
    assert request.topics is not None
    for topic_id, offset in [(ZERO_UUID, 5), (Uuid(b"1" * 16), 5), (Uuid(b"2" * 16), -1)]:
        request.topics[0].topic_id = topic_id
        fetched = b.execute(lambda shard: shard.fetch_offsets(request, False))
        assert fetched.topics[0].partitions[0].committed_offset == offset


# Transactions


def store() -> OffsetStore:
    return OffsetStore(GroupMetrics(), lambda _: None)


def value(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, LeaderEpoch(-1), "", 0)


def offset_in(offsets: OffsetStore, key: OffsetKey = KEY) -> int | None:
    found = offsets.get(key)
    return None if found is None else found.offset


def test_pending_offsets_are_invisible() -> None:
    offsets = store()
    offsets.replay_commit(KEY, value(5), 10, producer_id=7)
    assert offset_in(offsets) is None
    assert offsets.is_pending(KEY)
    assert offsets.has_open_transaction("g")


@pytest.mark.parametrize(("committed", "offset"), [(True, 5), (False, None)])
def test_transaction_marker_commits_or_drops_pending_offsets(committed: bool, offset: int | None) -> None:
    offsets = store()
    offsets.replay_commit(KEY, value(5), 10, producer_id=7)
    offsets.end_transaction(7, committed)
    assert offset_in(offsets) == offset
    assert not offsets.is_pending(KEY)
    assert not offsets.has_open_transaction("g")


def test_later_plain_commit_takes_precedence_over_a_transactional_one() -> None:
    """Also when compaction removed records in between: the offset of the record decides."""
    offsets = store()
    offsets.replay_commit(KEY, value(5), 10, producer_id=7)
    offsets.replay_commit(KEY, value(6), 11, producer_id=-1)
    offsets.end_transaction(7, True)
    assert offset_in(offsets) == 6


def test_transactional_commit_takes_precedence_over_an_earlier_plain_one() -> None:
    offsets = store()
    offsets.replay_commit(KEY, value(6), 9, producer_id=-1)
    offsets.replay_commit(KEY, value(5), 10, producer_id=7)
    offsets.end_transaction(7, True)
    assert offset_in(offsets) == 5


def test_later_record_of_two_transactions_takes_precedence() -> None:
    offsets = store()
    offsets.replay_commit(KEY, value(1), 10, producer_id=7)
    offsets.replay_commit(KEY, value(2), 11, producer_id=8)
    offsets.end_transaction(8, True)
    offsets.end_transaction(7, True)
    assert offset_in(offsets) == 2


def test_tombstone_removes_pending_offsets_but_not_the_open_transaction() -> None:
    """KAFKA-19164: without the link, the group's transaction would never end, or end too early."""
    offsets = store()
    offsets.replay_commit(KEY, value(5), 10, producer_id=7)
    offsets.replay_removal(KEY)
    assert not offsets.is_pending(KEY)
    assert offsets.has_open_transaction("g")
    offsets.end_transaction(7, True)
    assert not offsets.has_open_transaction("g")
    assert offset_in(offsets) is None


def test_marker_without_offsets_changes_nothing() -> None:
    offsets = store()
    offsets.end_transaction(7, True)
    assert offsets.keys_of_group("g") == []


def test_offset_keys_are_listed_by_topic() -> None:
    offsets = store()
    other = OffsetKey("h", "t", 1)
    for key in (KEY, other, OffsetKey("h", "u", 0)):
        offsets.replay_commit(key, value(1), 1, producer_id=-1)
    pending = OffsetKey("p", "t", 2)
    offsets.replay_commit(pending, value(1), 2, producer_id=7)
    assert offsets.keys_of_topics({"t"}) == [KEY, other, pending]
    offsets.replay_removal(other)
    assert offsets.keys_of_topics({"t"}) == [KEY, pending]


def test_offsets_are_counted() -> None:
    metrics = GroupMetrics()
    offsets = OffsetStore(metrics, lambda _: None)
    offsets.replay_commit(KEY, value(1), 1, producer_id=-1)
    offsets.replay_commit(KEY, value(2), 2, producer_id=-1)
    assert metrics.offsets == 1
    offsets.replay_removal(KEY)
    offsets.replay_removal(KEY)
    assert metrics.offsets == 0


def test_stable_offset_is_refused_during_an_open_transaction() -> None:
    b = GroupHarness()
    b.commit(None, {("t", 0): 5, ("t", 1): 6})
    b.shard.offsets.replay_commit(KEY, value(7), 99, producer_id=7)
    partitions = [("t", 0), ("t", 1)]
    assert b.fetch(partitions, stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT, ("t", 1): 6}
    assert b.fetch(partitions) == {("t", 0): 5, ("t", 1): 6}
    b.shard.replay_end_transaction(7, True)
    assert b.fetch(partitions, stable=True) == {("t", 0): 7, ("t", 1): 6}

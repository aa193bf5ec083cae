"""DeleteGroups, OffsetDelete, deleted topics, and the expiry of unused offsets."""

import pytest

from broker.groups.classic import ClassicGroup
from broker.groups.config import GroupConfig
from broker.groups.records import CommittedOffset, OffsetKey
from broker.groups.state import GroupState
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from tests.support.harnesses.group_harness import START_MS, GroupHarness

MINUTE_S = 60
RETENTION_S = 600
CHECK_S = 60


def make_harness() -> GroupHarness:
    config = GroupConfig(
        group_coordinator_append_linger_ms=0,
        offsets_retention_ms=RETENTION_S * 1000,
        offsets_retention_check_interval_ms=CHECK_S * 1000,
    )
    return GroupHarness(config)


# DeleteGroups


def test_group_without_members_is_deleted_with_its_offsets() -> None:
    b = GroupHarness()
    b.stable_group("a")
    b.commit("a", {("t", 0): 5, ("u", 0): 6})
    b.leave("a")
    b.shard.offsets.replay_commit(
        OffsetKey("g", "pending", 0), CommittedOffset(1, LeaderEpoch(-1), "", 0), 99, producer_id=7
    )
    before = len(b.log.records)
    assert b.delete_group().error_code == ErrorCode.NONE
    assert len(b.log.records) == before + 4
    assert b.shard.groups.get("g") is None
    assert b.fetch() == {}
    replayed = b.replayed_shard()
    assert replayed.groups.get("g") is None
    assert not replayed.offsets.has_offsets("g")


def test_group_with_members_is_not_deleted() -> None:
    b = GroupHarness()
    b.stable_group("a")
    assert b.delete_group().error_code == ErrorCode.NON_EMPTY_GROUP


def test_unknown_group_is_not_deleted() -> None:
    assert GroupHarness().delete_group("unknown").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_failed_deletion_changes_nothing() -> None:
    b = GroupHarness()
    b.commit(None, {("t", 0): 5})
    b.log.fail_next = ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        b.delete_group()
    assert b.fetch() == {("t", 0): 5}


# OffsetDelete


def test_existing_offsets_are_deleted() -> None:
    b = GroupHarness()
    b.commit(None, {("t", 0): 5, ("t", 1): 6})
    before = len(b.log.records)
    response = b.delete_offsets([("t", 0), ("t", 9)])
    assert [each.error_code for each in response.topics[0].partitions] == [0, 0]
    assert len(b.log.records) == before + 1
    assert b.fetch() == {("t", 1): 6}


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    b = GroupHarness()
    b.stable_group("a")
    b.commit("a", {("t", 0): 5, ("u", 0): 6})
    response = b.delete_offsets([("t", 0), ("u", 0)])
    codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert codes == {"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "u": ErrorCode.NONE}
    assert b.fetch() == {("t", 0): 5}


def test_consumer_group_with_unreadable_subscription_subscribes_to_all_topics() -> None:
    b = GroupHarness()
    b.stable_group("a", protocols={"range": b"?"})
    b.commit("a", {("u", 0): 6})
    response = b.delete_offsets([("u", 0)])
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_group_of_another_protocol_must_be_empty() -> None:
    b = GroupHarness()
    b.join("a", protocol_type="connect")
    b.advance(6)
    with pytest.raises(KafkaError) as caught:
        b.delete_offsets([("t", 0)])
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_an_unknown_group_cannot_be_deleted() -> None:
    with pytest.raises(KafkaError) as caught:
        GroupHarness().delete_offsets([("t", 0)], group="unknown")
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


# Deleted topics


def test_offsets_of_a_deleted_topic_are_deleted_in_all_groups() -> None:
    b = GroupHarness()
    for group in ("g", "h"):
        b.commit(None, {("t", 0): 5, ("u", 0): 6}, group=group)
    b.hosted.post(lambda shard: shard.on_topics_deleted({"t"}))
    assert b.fetch() == {("u", 0): 6}
    assert b.fetch(group="h") == {("u", 0): 6}
    assert len(b.log.records) == 6


def test_more_tombstones_than_fit_one_batch_are_written_as_several() -> None:
    b = GroupHarness()
    b.commit(None, {("t", partition): 5 for partition in range(50)})
    b.log.max_batch_bytes = 300
    b.hosted.post(lambda shard: shard.on_topics_deleted({"t"}))
    assert b.fetch() == {}
    assert sum(b.log.batch_sizes[1:]) == 50
    assert len(b.log.batch_sizes) > 5


# Expiry, KIP-211


def test_offsets_of_a_simple_group_expire_and_the_group_with_them() -> None:
    b = make_harness()
    b.commit(None, {("t", 0): 5})
    b.advance(RETENTION_S - 1)
    assert b.fetch() == {("t", 0): 5}
    b.commit(None, {("t", 1): 6})
    b.advance(CHECK_S)
    assert b.fetch() == {("t", 1): 6}
    b.advance(RETENTION_S)
    assert b.shard.groups.get("g") is None
    assert b.replayed_shard().groups.get("g") is None
    assert b.shard.metrics.offset_expirations == 2


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty() -> None:
    b = make_harness()
    b.stable_group("a", session_ms=1_800_000)
    b.commit("a", {("t", 0): 5})
    b.advance(RETENTION_S)
    b.leave("a")
    b.advance(RETENTION_S - 2 * CHECK_S)
    assert b.fetch() == {("t", 0): 5}
    b.advance(3 * CHECK_S)
    assert b.shard.groups.get("g") is None


def test_offsets_of_an_empty_group_of_old_record_versions_expire_from_commit_time() -> None:
    b = make_harness()
    b.stable_group("a")
    b.commit("a", {("t", 0): 5})
    b.leave("a")
    b.group.state_since_ms = -1
    b.advance(RETENTION_S + CHECK_S)
    assert b.shard.groups.get("g") is None


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    b = make_harness()
    b.stable_group("a", session_ms=1_800_000)
    b.commit("a", {("t", 0): 5, ("no longer read", 0): 6})
    b.advance(RETENTION_S + CHECK_S)
    assert b.fetch() == {("t", 0): 5}
    assert b.state() is GroupState.STABLE


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_no_offset_expires_during_a_rebalance_or_with_unreadable_subscriptions(protocol_type: str) -> None:
    b = make_harness()
    b.client("a", protocols={"p": b"?"})
    b.join("a", protocol_type=protocol_type, session_ms=1_800_000)
    b.advance(6)
    b.sync("a", {"a": b""}, protocol_type=protocol_type)
    b.commit("a", {("t", 0): 5})
    b.advance(RETENTION_S + CHECK_S)
    assert b.fetch() == {("t", 0): 5}


def test_expiry_time_of_the_client_takes_precedence() -> None:
    b = make_harness()
    b.commit(None, {("t", 0): 5}, retention_ms=1_000, version=4)
    b.commit(None, {("t", 1): 5}, retention_ms=5 * RETENTION_S * 1000, version=4)
    b.advance(CHECK_S)
    assert b.fetch() == {("t", 1): 5}
    b.advance(2 * RETENTION_S)
    assert b.fetch() == {("t", 1): 5}


def test_offset_with_open_transaction_does_not_expire() -> None:
    b = make_harness()
    b.commit(None, {("t", 0): 5})
    b.shard.offsets.replay_commit(
        OffsetKey("g", "t", 0), CommittedOffset(6, LeaderEpoch(-1), "", START_MS), 99, producer_id=7
    )
    b.advance(RETENTION_S + CHECK_S)
    assert b.fetch() == {("t", 0): 5}
    b.shard.replay_end_transaction(7, False)
    b.advance(CHECK_S)
    assert b.fetch() == {}


def test_empty_group_is_removed_unless_a_member_is_pending() -> None:
    b = make_harness()
    b.join("a", follow_up=False, session_ms=100_000)
    b.advance(CHECK_S)
    assert b.shard.groups.get("g") is not None
    b.advance(2 * CHECK_S)
    assert b.shard.groups.get("g") is None


def test_failed_expiry_is_retried() -> None:
    b = make_harness()
    b.commit(None, {("t", 0): 5})
    b.advance(RETENTION_S - 1)
    b.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    b.advance(1)
    assert b.fetch() == {("t", 0): 5}
    b.advance(CHECK_S)
    assert b.fetch() == {}


def test_many_groups_are_checked_in_slices() -> None:
    b = make_harness()
    for index in range(120):
        b.shard.groups.put(ClassicGroup(f"g{index}"))
    b.advance(CHECK_S)
    assert len(b.shard.groups) == 0
    assert [size for size in b.log.batch_sizes] == [50, 50, 20]

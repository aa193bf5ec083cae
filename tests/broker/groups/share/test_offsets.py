"""Administration of share partitions: altering and deleting offsets, deleting groups and topics."""

import pytest

from broker.groups.share.records import share_group_removed
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from tests.broker.groups.share.share_group_harness import ShareGroupHarness
from tests.support.harnesses.consumer_group_harness import topic_id_of

T, U = topic_id_of("t"), topic_id_of("u")


@pytest.fixture
def harness() -> ShareGroupHarness:
    return ShareGroupHarness(t=2, u=1)


def leave_initialized(harness: ShareGroupHarness, *names: str) -> None:
    """Leave an empty group behind whose share partitions are initialized."""
    harness.join("a", *names)
    harness.beat("a", -1)


def altered(topic: str, **offsets: int) -> AlterShareGroupOffsetsRequestTopic:
    partitions = [AlterShareGroupOffsetsRequestPartition(int(index[1:]), at) for index, at in offsets.items()]
    return AlterShareGroupOffsetsRequestTopic(topic, partitions)


def test_alteration_creates_a_group_and_names_each_partition(harness: ShareGroupHarness) -> None:
    wanted = [altered("t", p0=7, p9=1), altered("gone", p0=3)]
    alteration = harness.carry_out(harness.groups.begin_alteration("g", wanted))
    assert (alteration.state_epoch, alteration.start_offsets) == (0, {T: {0: 7}})
    codes = [[each.error_code for each in topic.partitions] for topic in alteration.response]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[ErrorCode.NONE, unknown], [unknown]]
    assert harness.group.partitions.initializing[T].partitions == {0}
    harness.carry_out(harness.groups.on_initialized("g", harness.group.partitions.initializing))
    assert harness.groups.initialized("g")[T].partitions == {0}


def test_offsets_of_a_group_with_members_are_not_changed(harness: ShareGroupHarness) -> None:
    harness.join("a", "t")
    for command in (
        lambda: harness.groups.begin_alteration("g", [altered("t", p0=1)]),
        lambda: harness.groups.begin_offset_deletion("g", ["t"]),
        lambda: harness.groups.begin_group_deletion("g"),
    ):
        with pytest.raises(KafkaError) as caught:
            command()
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP


def test_offset_deletion_is_recorded_until_it_is_done(harness: ShareGroupHarness) -> None:
    leave_initialized(harness, "t")
    deletion = harness.carry_out(harness.groups.begin_offset_deletion("g", ["t", "u", "gone"]))
    assert {topic_id: value.partitions for topic_id, value in deletion.topics.items()} == {T: {0, 1}}
    assert [each.topic_name for each in deletion.refused] == ["u", "gone"]
    harness.reload()
    repeated = harness.carry_out(harness.groups.begin_offset_deletion("g", ["t"]))
    assert repeated.topics == deletion.topics
    harness.carry_out(harness.groups.on_deleted("g", [T]))
    assert [
        each.topic_name for each in harness.carry_out(harness.groups.begin_offset_deletion("g", ["t"])).refused
    ] == ["t"]


def test_group_deletion_names_all_states(harness: ShareGroupHarness) -> None:
    leave_initialized(harness, "t", "u")
    topics = harness.carry_out(harness.groups.begin_group_deletion("g"))
    assert {topic_id: value.partitions for topic_id, value in topics.items()} == {T: {0, 1}, U: {0}}
    assert harness.group.partitions.initialized == {}
    again = harness.carry_out(harness.groups.begin_group_deletion("g"))
    assert again.keys() == topics.keys()
    for record in share_group_removed("g", ()):
        harness.groups.replay(record.event)
    assert "g" not in harness.groups.table


def test_deleted_topics_are_forgotten(harness: ShareGroupHarness) -> None:
    leave_initialized(harness, "t", "u")
    harness.carry_out(harness.groups.on_topics_deleted([T]))
    assert harness.groups.initialized("g").keys() == {U}
    assert harness.groups.on_topics_deleted([T]).records == []


def test_missing_group_is_refused(harness: ShareGroupHarness) -> None:
    for command in (
        lambda: harness.groups.begin_offset_deletion("g", ["t"]),
        lambda: harness.groups.begin_group_deletion("g"),
    ):
        with pytest.raises(KafkaError) as caught:
            command()
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.groups.describe("g").response.error_code == ErrorCode.GROUP_ID_NOT_FOUND

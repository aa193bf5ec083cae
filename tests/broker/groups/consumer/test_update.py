"""Rules of heartbeats that transcripts do not show."""

from collections.abc import Mapping

import pytest

from broker.groups.consumer.assignment import Assignment
from broker.groups.consumer.assignors.assignor import AssignableGroup
from broker.groups.consumer.assignors.range import RangeAssignor
from broker.groups.consumer.assignors.uniform import UniformAssignor
from broker.groups.consumer.environment import ConsumerGroupEnvironment, MemberIntervals
from broker.groups.consumer.records import ConsumerGroupRemoved, PartitionMetadataSeen, RegexResolved
from broker.groups.records import decode_record
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.group_records import ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue
from tests.support.harnesses.consumer_group_harness import ConsumerGroupHarness


class BrokenAssignor:
    """An assignor of a third party that fails."""

    name = "broken"

    def assign(self, group: AssignableGroup) -> Mapping[str, Assignment]:
        raise ZeroDivisionError(len(group.members))


def test_most_named_assignor_is_used() -> None:
    harness = ConsumerGroupHarness()
    harness.beat("a", assignor="range")
    assert harness.consumer_group.counts.preferred_assignor() == "range"
    harness.beat("b", topics=("t", "u"), assignor="range")
    harness.beat("c", topics=("t", "u"), assignor="uniform")
    assert harness.consumer_group.counts.preferred_assignor() == "range"
    harness.leave_group_of("a")
    harness.beat("b", assignor="uniform")
    assert harness.consumer_group.counts.preferred_assignor() == "uniform"


def test_failed_assignor_refuses_the_heartbeat_and_changes_nothing() -> None:
    assignors = {each.name: each for each in (UniformAssignor(), BrokenAssignor(), RangeAssignor())}
    harness = ConsumerGroupHarness(environment=ConsumerGroupEnvironment(assignors=assignors))
    harness.beat("a")
    with pytest.raises(KafkaError) as error:
        harness.beat("b", assignor="broken")
    assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert list(harness.consumer_group.members) == ["a"]
    assert harness.beat("a").member_epoch == 1


def test_failed_write_changes_nothing() -> None:
    harness = ConsumerGroupHarness()
    harness.beat("a")
    harness.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        harness.beat("b")
    assert list(harness.consumer_group.members) == ["a"]
    assert harness.beat("b").member_epoch == 2


def test_change_of_topics_outlives_a_failed_write() -> None:
    harness = ConsumerGroupHarness()
    harness.settle("a")
    harness.change_topic("t", 5)
    harness.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        harness.beat("a")
    assert harness.beat("a").member_epoch == 2


def test_full_group_refuses_new_members_only() -> None:
    harness = ConsumerGroupHarness(environment=ConsumerGroupEnvironment(max_size=1))
    harness.beat("a")
    with pytest.raises(KafkaError) as error:
        harness.beat("b")
    assert error.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.beat("a").member_epoch == 1


def test_expired_member_is_removed_once_the_log_takes_records_again() -> None:
    harness = ConsumerGroupHarness()
    harness.intervals = MemberIntervals(session_timeout_ms=10_000)
    harness.beat("a")
    harness.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.advance(10.1)
    assert list(harness.consumer_group.members) == ["a"]
    harness.advance(0.6)
    assert harness.consumer_group.is_empty


def test_session_goes_on_when_the_departure_is_not_written() -> None:
    harness = ConsumerGroupHarness()
    harness.intervals = MemberIntervals(session_timeout_ms=10_000)
    harness.beat("a")
    harness.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        harness.leave_group_of("a")
    assert list(harness.consumer_group.members) == ["a"]
    harness.advance(10.1)
    assert harness.consumer_group.is_empty


def test_session_timeout_is_that_of_the_group() -> None:
    harness = ConsumerGroupHarness()
    harness.intervals = MemberIntervals(session_timeout_ms=10_000, heartbeat_interval_ms=700)
    assert harness.beat("a").heartbeat_interval_ms == 700
    harness.advance(9)
    assert not harness.consumer_group.is_empty
    harness.advance(2)
    assert harness.consumer_group.is_empty


def test_client_that_has_lost_a_response_continues() -> None:
    harness = ConsumerGroupHarness()
    client = harness.consumer("b")
    harness.beat("a")
    harness.beat("b")
    harness.settle("a", "b")
    harness.beat("a", topics=("t", "u"))
    epoch, owned = client.epoch, client.owned
    harness.beat("b")
    assert harness.consumer_group.current("b").previous_epoch == epoch
    harness.consumer("b", epoch=epoch, owned=owned, assigned=owned, has_lost_response=True)
    assert harness.beat("b").member_epoch == harness.consumer_group.epoch


def test_expressions_are_looked_up_again_after_the_refresh_interval() -> None:
    harness = ConsumerGroupHarness(environment=ConsumerGroupEnvironment(regex_refresh_interval_ms=30_000))
    harness.beat("a", regex="t.*", topics=None)
    assert harness.resolve(t=["t"]) == ["t.*"]
    epoch = harness.consumer_group.epoch
    for seconds, expected in ((25, []), (10, ["t.*"]), (1, [])):
        harness.advance(seconds)
        harness.beat("a")
        assert harness.resolve(t=["t"]) == expected
    assert harness.consumer_group.epoch == epoch


def test_failed_lookup_is_started_again() -> None:
    harness = ConsumerGroupHarness()
    harness.beat("a", regex="t.*", topics=None)
    (lookup,) = harness.shard.consumer_groups.take_regex_lookups()
    harness.beat("a")
    assert harness.shard.consumer_groups.take_regex_lookups() == []
    harness.hosted.post(lambda shard: shard.consumer_groups.resolve_regexes(lookup.group_id, None))
    harness.beat("a")
    assert harness.resolve(t=["t"]) == ["t.*"]


def test_result_for_an_expression_without_members_is_dropped() -> None:
    harness = ConsumerGroupHarness()
    harness.beat("a", regex="t.*", topics=None)
    harness.beat("a", regex="", topics=("u",))
    harness.resolve(t=["t"])
    assert harness.consumer_group.regexes == {}
    events = [decode_record(each.key, each.value) for each in harness.log.records]
    assert not any(isinstance(event, RegexResolved) for event in events)


def test_partition_metadata_of_older_versions_is_removed_with_the_group() -> None:
    harness = ConsumerGroupHarness()
    key = b"\x00\x04" + encode_bytes(ConsumerGroupPartitionMetadataKey("g"), 0)
    value = b"\x00\x00" + encode_bytes(ConsumerGroupPartitionMetadataValue(), 0)
    harness.log.add([(key, value)])
    harness.restart()
    harness.beat("a")
    harness.leave_group_of("a")
    harness.delete_group()
    *_, metadata, group = [decode_record(each.key, each.value) for each in harness.log.records]
    assert metadata == PartitionMetadataSeen("g", exists=False)
    assert group == ConsumerGroupRemoved("g")
    assert len(harness.replayed_shard().consumer_groups.table) == 0


def test_offsets_of_unread_topics_expire_and_take_the_empty_group_along() -> None:
    harness = ConsumerGroupHarness()
    harness.beat("a", topics=("t",))
    for topic in "tu":
        request = harness.commit_request(None, {(topic, 0): 5}, generation=1)
        request.member_id = "a"
        harness.execute(lambda shard, request=request: shard.commit_offsets(request, 9), soft=True)  # type: ignore[misc]
    hour = 3_600
    for _ in range(8 * 24 * 2):
        for _ in range(hour // 2 // 40):
            harness.advance(40)
            harness.beat("a")
    assert harness.fetch() == {("t", 0): 5}
    harness.leave_group_of("a")
    harness.advance(2 * hour)
    assert harness.fetch() == {}
    assert len(harness.shard.consumer_groups.table) == 0

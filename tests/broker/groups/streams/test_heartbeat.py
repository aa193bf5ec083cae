"""Heartbeats of streams groups beyond the transcripts."""

import pytest

from protocol.errors import ErrorCode, KafkaError
from tests.support.harnesses.streams_group_harness import StreamsGroupHarness


def test_change_of_topics_outlives_a_refused_heartbeat() -> None:
    """A member names tasks that a re-created topic does not have any more."""
    harness = StreamsGroupHarness()
    harness.settle("a")
    for topic in "trc":
        harness.change_topic(topic, 0)
        harness.change_topic(topic, 1)
    epoch = harness.streams_group.epoch
    with pytest.raises(KafkaError) as refused:
        harness.beat("a", has_lost_response=True)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    harness.member("a").has_lost_response = False
    harness.beat("a")
    assert harness.streams_group.epoch == epoch + 1
    harness.settle("a")
    assert harness.member("a").owned.active == {"0": frozenset((0,)), "1": frozenset((0,))}


def test_group_has_room_for_its_limit_of_members() -> None:
    harness = StreamsGroupHarness(max_size=1)
    harness.beat("a")
    with pytest.raises(KafkaError) as refused:
        harness.beat("b")
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_session_goes_on_when_the_departure_is_not_written() -> None:
    harness = StreamsGroupHarness()
    harness.settle("a")
    harness.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        harness.leave_streams("a")
    assert not harness.streams_group.is_empty
    harness.advance(46)
    assert harness.streams_group.is_empty

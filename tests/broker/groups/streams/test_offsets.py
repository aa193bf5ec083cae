"""Offset commits within transactions: members act under their epoch, or one since which they have had the task."""

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.harnesses.group_harness import GROUP
from tests.support.harnesses.streams_group_harness import StreamsGroupHarness


def commit(harness: StreamsGroupHarness, member: str, epoch: int, partition: int = 0, topic: str = "t") -> ErrorCode:
    partitions = [TxnOffsetCommitRequestPartition(partition, 5, committed_metadata="")]
    request = TxnOffsetCommitRequest(
        "transactional", GROUP, 7, 0, epoch, member, topics=[TxnOffsetCommitRequestTopic(topic, partitions)]
    )
    try:
        result = harness.shard.commit_transactional_offsets(request)
    except KafkaError as error:
        return error.code
    return ErrorCode(result.response.topics[0].partitions[0].error_code)


@pytest.fixture
def harness() -> StreamsGroupHarness:
    """Return a group whose member a has had all tasks since epoch 2, and gives half of them to b in epoch 3."""
    made = StreamsGroupHarness()
    made.beat("a")
    made.beat("b")
    return made


def test_member_commits_under_its_epoch(harness: StreamsGroupHarness) -> None:
    assert commit(harness, "a", 2) is ErrorCode.NONE
    assert commit(harness, "a", 3) is ErrorCode.ILLEGAL_GENERATION
    assert commit(harness, "x", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_commits_tasks_that_it_still_has_under_an_earlier_epoch(harness: StreamsGroupHarness) -> None:
    harness.settle("a", "b")
    assert harness.member("a").epoch == harness.member("b").epoch == 3
    assert commit(harness, "a", 2) is ErrorCode.NONE
    assert commit(harness, "a", 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit(harness, "a", 2, partition=1) is ErrorCode.ILLEGAL_GENERATION
    assert commit(harness, "b", 2, partition=1) is ErrorCode.ILLEGAL_GENERATION
    assert commit(harness, "b", 3, partition=1) is ErrorCode.NONE
    assert commit(harness, "a", 2, topic="unknown") is ErrorCode.ILLEGAL_GENERATION


def test_member_commits_tasks_that_it_gives_up(harness: StreamsGroupHarness) -> None:
    harness.beat("a")
    assert commit(harness, "a", 2, partition=1) is ErrorCode.NONE


def test_old_producers_name_no_member(harness: StreamsGroupHarness) -> None:
    assert commit(harness, "", -1) is ErrorCode.NONE
    assert commit(harness, "a", -1) is ErrorCode.ILLEGAL_GENERATION

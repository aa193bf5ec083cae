"""DescribeTopicPartitions: paging by partitions, cursors, eligible leaders."""

import pytest

from broker.api.serving.authorized_operations import TOPIC_OPERATIONS
from broker.api.topics.describe_topic_partitions import DescribeTopicPartitionsHandler
from broker.metadata.image.metadata_image import MetadataImage
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from protocol.messages.metadata_records import PartitionChangeRecord
from tests.broker.api.metadata_harness import FixedMetadata, context
from tests.broker.metadata.images import image_of, image_with, uuid

IMAGE = image_with(topics={"a": 2, "b": 3, "c": 1})


def ask(
    *names: str,
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
    image: MetadataImage = IMAGE,
    server_limit: int = 2000,
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        [TopicRequest(name) for name in names],
        limit,
        None if cursor is None else DescribeTopicPartitionsRequestCursor(*cursor),
    )
    return DescribeTopicPartitionsHandler(FixedMetadata(image), partition_limit=server_limit)(request, context(0))


def shape(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics]


def cursor_of(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_topics_are_in_name_order() -> None:
    response = ask()
    assert shape(response) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    assert cursor_of(response) is None
    assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


def test_page_may_end_inside_a_topic() -> None:
    response = ask(limit=3)
    assert shape(response) == [("a", [0, 1]), ("b", [0])]
    assert cursor_of(response) == ("b", 1)


def test_page_may_end_at_the_end_of_a_topic() -> None:
    response = ask(limit=2)
    assert shape(response) == [("a", [0, 1])]
    assert cursor_of(response) == ("b", 0)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_pages_add_up_to_all_partitions(limit: int) -> None:
    seen: list[tuple[str | None, int]] = []
    cursor: tuple[str, int] | None = None
    while True:
        response = ask(limit=limit, cursor=cursor)
        page = [(name, index) for name, indexes in shape(response) for index in indexes]
        assert len(page) <= limit
        seen += page
        cursor = cursor_of(response)
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]


def test_page_size_is_limited() -> None:
    assert shape(ask(limit=0)) == [("a", [0])]
    assert shape(ask(limit=-5)) == [("a", [0])]
    assert shape(ask(limit=100, server_limit=1)) == [("a", [0])]


def test_cursor_on_a_deleted_topic_continues_with_the_next() -> None:
    assert shape(ask(cursor=("aa", 1))) == [("b", [0, 1, 2]), ("c", [0])]


def test_explicit_list_is_sorted_and_names_missing_topics() -> None:
    response = ask("c", "nope", "a", "bad name")
    assert [topic.name for topic in response.topics] == ["a", "bad name", "c", "nope"]
    codes = [ErrorCode(topic.error_code) for topic in response.topics]
    assert codes[1] is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes[3] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("names", "cursor"), [(("a",), ("b", 0)), ((), ("a", -1))])
def test_invalid_cursors_are_refused(names: tuple[str, ...], cursor: tuple[str, int]) -> None:
    with pytest.raises(KafkaError) as caught:
        ask(*names, cursor=cursor)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_eligible_and_last_known_leaders_are_listed() -> None:
    change = PartitionChangeRecord(0, uuid(1), isr=[], leader=-1, eligible_leader_replicas=[2], last_known_elr=[1])
    image = image_of([change], image_with(topics={"t": 1}, brokers=(1, 2)))
    (partition,) = ask("t", image=image).topics[0].partitions
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([2], [1])
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (ErrorCode.NONE, -1, 1)

"""Error responses to whole requests, in every field with room for an error (`broker.api.serving.errors`)."""

from typing import Any

import pytest

from broker.api.serving.errors import error_response
from protocol.api_keys import API_BY_KEY, ApiKey, request_class, response_class
from protocol.compiler import decode, encode_bytes
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
)
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

FAULT = ErrorCode.UNKNOWN_SERVER_ERROR


def answer_to(request: Any, response: type[Any]) -> Any:
    return error_response(response, request, FAULT, "text")


def test_produce_error_is_in_every_partition() -> None:
    produce_request = ProduceRequest(
        topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(3), PartitionProduceData(5)])]
    )
    answer = answer_to(produce_request, ProduceResponse)
    assert [(t.name, [(p.index, p.error_code) for p in t.partition_responses]) for t in answer.responses] == [
        ("t", [(3, FAULT), (5, FAULT)])
    ]
    assert answer.responses[0].partition_responses[0].log_append_time_ms == -1


def test_fetch_error_is_at_the_top_and_in_every_partition() -> None:
    answer = answer_to(FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(2)])]), FetchResponse)
    assert answer.error_code == FAULT
    assert [(p.partition_index, p.error_code) for p in answer.responses[0].partitions] == [(2, FAULT)]


def test_error_is_in_every_element_for_plain_names() -> None:
    groups = answer_to(DescribeGroupsRequest(groups=["a", "b"]), DescribeGroupsResponse).groups
    assert [(group.group_id, group.error_code) for group in groups] == [("a", FAULT), ("b", FAULT)]
    found = answer_to(FindCoordinatorRequest(coordinator_keys=["k"]), FindCoordinatorResponse)
    assert [(each.key, each.error_code, each.error_message) for each in found.coordinators] == [("k", FAULT, "text")]


def test_offset_fetch_error_is_in_every_nested_group() -> None:
    group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[7])])
    answer = answer_to(OffsetFetchRequest(groups=[group]), OffsetFetchResponse)
    assert (answer.groups[0].group_id, answer.groups[0].error_code) == ("g", FAULT)
    (partition,) = answer.groups[0].topics[0].partitions
    assert (partition.partition_index, partition.error_code) == (7, FAULT)


def test_broker_error_is_at_the_top_alone() -> None:
    partition = AlterPartitionRequestPartitionData(3)
    alter_request = AlterPartitionRequest(1, 1, [AlterPartitionRequestTopicData(partitions=[partition])])
    assert answer_to(alter_request, AlterPartitionResponse) == AlterPartitionResponse(error_code=FAULT)


def test_counts_are_not_echoed() -> None:
    create_request = CreateTopicsRequest(topics=[CreatableTopic("t", num_partitions=9, replication_factor=3)])
    (topic,) = answer_to(create_request, CreateTopicsResponse).topics
    assert (topic.name, topic.error_code, topic.num_partitions, topic.replication_factor) == ("t", FAULT, -1, -1)


@pytest.mark.parametrize("key", list(ApiKey))
def test_every_response_can_report_an_error_and_be_encoded(key: ApiKey) -> None:
    response = error_response(response_class(key), request_class(key)(), FAULT, None)
    version = API_BY_KEY[key].max_version
    sent = encode_bytes(response, version)
    received, end = decode(response_class(key), sent, version)
    assert end == len(sent)
    assert encode_bytes(received, version) == sent

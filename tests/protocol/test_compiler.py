"""Contracts of compiled functions besides the encoding: rejected values, sharing and copying."""

import linecache
import traceback
from collections.abc import Callable

import pytest

from protocol import compiler
from protocol.errors import DecodeError, EncodeError
from protocol.messages import Message
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
)
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


@pytest.mark.parametrize(
    ("make", "version", "problem"),
    [
        (lambda: JoinGroupRequest(group_instance_id="static"), 4, "GroupInstanceId does not exist in this version"),
        (lambda: CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1 << 31)]), 5, "format"),
        (lambda: CreateTopicsRequest(topics=[CreatableTopic(name="x" * 40_000)]), 5, "string of 40000 bytes"),
        (lambda: CreateTopicsRequest(topics=[CreatableTopic(name="x" * 40_000)]), 4, "format"),
        (lambda: HeartbeatRequest(group_id="\ud800"), 4, "surrogates"),
        (lambda: HeartbeatRequest(group_id=None), 4, "NoneType"),  # type: ignore[arg-type]
        (lambda: MetadataRequest(topics=None), 0, "NoneType"),
        (lambda: FetchResponse(responses=[None]), 12, "NoneType"),  # type: ignore[list-item]
    ],
)
def test_values_that_do_not_fit_raise_encode_error(make: Callable[[], Message], version: int, problem: str) -> None:
    with pytest.raises(EncodeError, match=problem):
        compiler.encode(make(), version)


def test_ignorable_fields_are_left_out_of_versions_without_them() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert compiler.decode(HeartbeatRequest, compiler.encode_bytes(request, 0), 0)[0] == request
    fetch = FetchRequest(rack_id="r1", topics=[FetchTopic(topic="t", partitions=[FetchPartition(log_start_offset=7)])])
    older, _ = compiler.decode(FetchRequest, compiler.encode_bytes(fetch, 4), 4)
    assert older.rack_id == ""
    assert older.topics[0].partitions[0].log_start_offset == -1


def test_null_differs_from_empty_and_a_struct_may_be_null() -> None:
    everything, _ = compiler.decode(MetadataRequest, compiler.encode_bytes(MetadataRequest(topics=None), 12), 12)
    nothing, _ = compiler.decode(MetadataRequest, compiler.encode_bytes(MetadataRequest(topics=[]), 12), 12)
    assert (everything.topics, nothing.topics) == (None, [])
    for cursor in (None, DescribeTopicPartitionsRequestCursor(topic_name="t", partition_index=3)):
        encoded = compiler.encode_bytes(DescribeTopicPartitionsRequest(cursor=cursor), 0)
        assert compiler.decode(DescribeTopicPartitionsRequest, encoded, 0)[0].cursor == cursor


def test_records_are_views_of_the_buffer_and_travel_as_chunks() -> None:
    records = bytes(range(256)) * 20
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=records)])
    encoded = bytearray(compiler.encode_bytes(ProduceRequest(topic_data=[data]), 9))
    message, _ = compiler.decode(ProduceRequest, encoded, 9)
    view = message.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is encoded
    chunks = compiler.encode(FetchResponse(responses=[]), 12)
    assert len(chunks) == 1
    part = PartitionData(partition_index=1, records=view)
    chunks = compiler.encode(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part, part])]), 12)
    assert [chunk for chunk in chunks if chunk is view] == [view, view]
    assert sum(len(chunk) for chunk in chunks if chunk is not view) < 100


def test_mutable_defaults_are_not_shared() -> None:
    assert MetadataRequest().topics is not MetadataRequest().topics
    assert FetchRequest().replica_state is not FetchRequest().replica_state
    first, _ = compiler.decode(FetchRequest, compiler.encode_bytes(FetchRequest(), 12), 12)
    second, _ = compiler.decode(FetchRequest, compiler.encode_bytes(FetchRequest(), 12), 12)
    assert first.replica_state is not second.replica_state


def test_generated_lines_appear_in_tracebacks() -> None:
    with pytest.raises(DecodeError) as caught:
        compiler.decode(HeartbeatRequest, b"\x00\x05", 0)
    text = "".join(traceback.format_exception(caught.value))
    assert 'File "<decode HeartbeatRequest v0>"' in text
    assert 'raise DecodeError("HeartbeatRequest v0: GroupId exceeds the buffer")' in text


def test_compiler_prints_generated_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiler.main(["FetchRequest", "12"]) == 0
    printed = capsys.readouterr().out
    assert "def decode(buf, pos):" in printed
    assert "def encode(m, out, chunks):" in printed
    assert compiler.main(["FetchRequest", "99"]) == 2
    assert compiler.main(["Nothing"]) == 2
    assert compiler.main([]) == 2


def test_functions_are_compiled_once() -> None:
    assert compiler.decoder(HeartbeatRequest, 3) is compiler.decoder(HeartbeatRequest, 3)
    assert compiler.encoder(HeartbeatRequest, 3) is compiler.encoder(HeartbeatRequest, 3)
    assert "<encode HeartbeatRequest v3>" in linecache.cache


def test_response_omits_fields_that_an_old_version_lacks() -> None:
    full = ListOffsetsPartitionResponse(partition_index=1, offset=7, leader_epoch=3)
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [full])])
    decoded, _end = compiler.decode(ListOffsetsResponse, compiler.encode_bytes(response, 2), 2)
    assert decoded.topics[0].partitions == [ListOffsetsPartitionResponse(partition_index=1, offset=7, leader_epoch=-1)]

"""Malformed bytes raise DecodeError early, at a cost of no more than their own length."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import compiler
from protocol.api_keys import API_BY_KEY, request_class
from protocol.decoding import FEW_ROWS
from protocol.errors import DecodeError
from protocol.messages import Message
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.primitives import Uuid
from tests.protocol.profile import few_examples, more_examples
from tests.protocol.values import all_versions, messages

REQUESTS = [(request_class(a.key), v) for a in API_BY_KEY.values() for v in range(a.min_version, a.max_version + 1)]


def refused(cls: type[Message], version: int, text: str, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        compiler.decode(cls, bytes.fromhex(text), version)


def test_string_beyond_the_buffer_is_refused() -> None:
    refused(HeartbeatRequest, 0, "0005 6162", "GroupId exceeds the buffer")
    refused(HeartbeatRequest, 4, "06 6162", "GroupId exceeds the buffer")


def test_null_in_a_non_nullable_string_is_refused() -> None:
    refused(HeartbeatRequest, 0, "ffff", "GroupId is null")
    refused(HeartbeatRequest, 4, "00", "GroupId is null")


def test_invalid_utf8_is_refused() -> None:
    refused(HeartbeatRequest, 0, "0002 c328 00000001 0000", "utf-8")


def test_compact_string_above_32767_bytes_is_refused() -> None:
    longest = bytes.fromhex("808002") + b"x" * 32767
    message, _ = compiler.decode(ApiVersionsRequest, longest + bytes.fromhex("01 00"), 3)
    assert len(message.client_software_name) == 32767
    refused(ApiVersionsRequest, 3, "818002" + "78" * 32768 + "0100", "string of 32768 bytes")


def test_null_bytes_and_bytes_beyond_the_buffer_are_refused() -> None:
    refused(SaslAuthenticateRequest, 0, "00000003 6162", "AuthBytes exceeds the buffer")
    refused(SaslAuthenticateRequest, 0, "80000000", "AuthBytes is null")
    refused(SaslAuthenticateRequest, 2, "04 6162", "AuthBytes exceeds the buffer")


def test_records_beyond_the_buffer_are_refused() -> None:
    head = "ffff 0001 000003e8 00000001 0001 74 00000001 00000000"
    refused(ProduceRequest, 3, head + "7fffffff 00", "Records exceeds the buffer")


def test_count_beyond_the_buffer_is_refused() -> None:
    refused(ListOffsetsRequest, 1, "ffffffff 7fffffff", "Topics counts more elements than the buffer holds")
    refused(ListOffsetsRequest, 6, "ffffffff 00 ffffffff0f", "Topics counts more elements than the buffer holds")
    refused(ListOffsetsRequest, 1, "ffffffff ffffffff", "Topics is null")


def test_unterminated_varint_is_refused() -> None:
    refused(ListOffsetsRequest, 6, "ffffffff 00 ffffffffffff01", "varint is longer than 5 bytes")


def test_tag_section_with_a_false_count_is_refused() -> None:
    assert compiler.decode(MetadataRequest, bytes.fromhex("01 01 00 00 00"), 9)[1] == 5
    refused(MetadataRequest, 9, "01 01 00 00 01 05 7f 00", "tagged field exceeds the buffer")
    refused(MetadataRequest, 9, "01 01 00 00 02 05 01 00", "index")
    refused(MetadataRequest, 9, "01 01 00 00 ffffffffff01", "varint")


def test_tagged_field_with_a_wrong_size_is_refused() -> None:
    encoded = compiler.encode_bytes(FetchRequest(cluster_id="abc"), 12)
    assert encoded.endswith(bytes.fromhex("01 00 04 04 616263"))
    with pytest.raises(DecodeError, match="wrong size"):
        compiler.decode(FetchRequest, encoded[:-5] + bytes.fromhex("05 04 616263 00"), 12)
    with pytest.raises(DecodeError, match="wrong size"):
        compiler.decode(FetchRequest, encoded[:-5] + bytes.fromhex("03 04 616263"), 12)


@pytest.mark.parametrize("count", [2, FEW_ROWS, 50])
def test_unknown_tagged_fields_are_skipped(count: int) -> None:
    """Rows are read in bulk until a tag section; only the last row here has one."""
    directory = Uuid(b"u" * 16)
    partitions = [FetchPartition(partition=index) for index in range(count)]
    partitions[-1].high_watermark = 5
    partitions[-1].replica_directory_id = directory
    newest = compiler.encode_bytes(FetchRequest(topics=[FetchTopic(partitions=partitions)]), 18)
    older, end = compiler.decode(FetchRequest, newest, 17)
    assert end == len(newest)
    assert [p.partition for p in older.topics[0].partitions] == list(range(count))
    assert older.topics[0].partitions[-1] == FetchPartition(partition=count - 1, replica_directory_id=directory)
    oldest, end = compiler.decode(FetchRequest, newest, 16)
    assert end == len(newest)
    assert oldest.topics[0].partitions == [FetchPartition(partition=index) for index in range(count)]


@pytest.mark.parametrize(("cls", "version"), all_versions(), ids=lambda value: getattr(value, "__name__", str(value)))
def test_every_truncation_is_refused(cls: type[Message], version: int) -> None:
    @few_examples
    @given(messages(cls, version), st.data())
    def refuses(message: Message, data: st.DataObject) -> None:
        encoded = compiler.encode_bytes(message, version)
        if encoded:
            cut = data.draw(st.integers(0, len(encoded) - 1))
            with pytest.raises(DecodeError):
                compiler.decode(cls, encoded[:cut], version)

    refuses()


@more_examples
@given(st.sampled_from(REQUESTS), st.binary(max_size=200))
def test_random_bytes_are_refused_or_decoded(request: tuple[type[Message], int], noise: bytes) -> None:
    try:
        _, end = compiler.decode(request[0], noise, request[1])
    except DecodeError:
        return
    assert 0 <= end <= len(noise)


@pytest.mark.parametrize("pattern", [b"\xff\xff\xff\x7f", b"\x7f", b"\x00\x00\x7f\xff", b"\x80\x80\x80\x01"])
def test_false_length_allocates_at_most_the_frame_size(pattern: bytes) -> None:
    frame = pattern * 64
    for cls, version in REQUESTS:
        compiler.decoder(cls, version)
    tracemalloc.start()
    try:
        for cls, version in REQUESTS:
            try:
                compiler.decode(cls, frame, version)
            except DecodeError:
                continue
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 512 * len(frame)

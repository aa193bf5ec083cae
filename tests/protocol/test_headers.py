import pytest

from protocol.api_keys import ApiKey
from protocol.compiler import decode
from protocol.errors import DecodeError
from protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    response_header_version,
)
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.common_records import RequestHeader as GeneratedRequestHeader
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def test_header_versions_follow_the_flexibility_of_the_request() -> None:
    assert [response_header_version(ApiKey.HEARTBEAT, v) for v in (3, 4)] == [0, 1]
    assert response_header_version(ApiKey.SASL_HANDSHAKE, 1) == 0


def test_api_versions_responses_always_have_header_0() -> None:
    assert response_header_version(ApiKey.API_VERSIONS, 3) == 0
    frame = b"".join(encode_response(ApiKey.API_VERSIONS, 3, 7, ApiVersionsResponse()))
    assert frame[4:10].hex() == "000000070000"
    assert decode_response(ApiVersionsResponse, 3, frame[4:]) == (7, ApiVersionsResponse())


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "große"])
def test_requests_survive_a_round_trip(version: int, client_id: str | None) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    frame = b"".join(encode_request(request, version, 42, client_id))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header, position = decode_request_header(frame[4:])
    assert header == RequestHeader(ApiKey.HEARTBEAT, version, 42, client_id)
    assert decode(HeartbeatRequest, frame[4:], version, position) == (request, len(frame) - 4)


@pytest.mark.parametrize(("version", "header_version"), [(3, 1), (4, 2)])
def test_header_agrees_with_the_schema(version: int, header_version: int) -> None:
    frame = b"".join(encode_request(HeartbeatRequest(), version, 42, "c"))
    generated, end = decode(GeneratedRequestHeader, frame[4:], header_version)
    assert (generated.request_api_key, generated.request_api_version) == (ApiKey.HEARTBEAT, version)
    assert (generated.correlation_id, generated.client_id) == (42, "c")
    assert decode_request_header(frame[4:])[1] == end


def test_tags_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("000c 0004 00000001 ffff 01 07 02 abcd") + b"body"
    assert decode_request_header(frame) == (RequestHeader(12, 4, 1, None), len(frame) - 4)
    response = bytes.fromhex("00000001 01 07 02 abcd 00000000 0000 00")
    assert decode_response(HeartbeatResponse, 4, response) == (1, HeartbeatResponse())


def test_header_of_an_unknown_api_or_version_is_readable() -> None:
    assert decode_request_header(bytes.fromhex("7fff 0000 00000009 0001 63"))[0] == RequestHeader(32767, 0, 9, "c")
    assert decode_request_header(bytes.fromhex("0012 0063 00000009 0001 63 00"))[0] == RequestHeader(18, 99, 9, "c")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0012",
        "0012 0003 00000001 0005 61",
        "0012 0003 00000001 0001 ff 00",
        "0012 0003 00000001 0001 61",
        "0012 0003 00000001 0001 61 01",
    ],
)
def test_malformed_header_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(bytes.fromhex(text))


@pytest.mark.parametrize("text", ["", "000000", "00000001", "00000001 01"])
def test_malformed_response_header_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        decode_response(HeartbeatResponse, 4, bytes.fromhex(text))


def test_encoded_response_keeps_large_records_as_separate_chunks() -> None:
    records = bytes(100_000)
    partition = PartitionData(partition_index=1, records=records)
    message = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    chunks = encode_response(ApiKey.FETCH, 12, 5, message)
    assert any(chunk is records for chunk in chunks)
    frame = b"".join(chunks)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert decode_response(FetchResponse, 12, frame[4:]) == (5, message)


def test_api_versions_request_has_the_expected_bytes() -> None:
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
    frame = b"".join(encode_request(request, 3, 1, "a"))
    assert frame.hex(" ") == "00 00 00 15 00 12 00 03 00 00 00 01 00 01 61 00 06 6f 74 74 6c 61 02 31 00"

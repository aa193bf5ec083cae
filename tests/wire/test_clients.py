"""Requests of librdkafka, aiokafka, kafka-python and the Java client to Apache Kafka, and its responses, byte for
byte.
"""

from pathlib import Path

import pytest

from protocol import compiler
from protocol.api_keys import ApiKey, request_class, response_class
from protocol.headers import decode_request_header, decode_response, encode_request, encode_response
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchResponse
from protocol.messages.produce import ProduceRequest

LINES = (Path(__file__).parent / "clients.txt").read_text().splitlines()


def exchange(client: str, key: ApiKey) -> tuple[int, bytes, bytes]:
    """Return (version, request, response) of the first recorded exchange of this API with a client."""
    words = next(words for words in map(str.split, LINES) if words[:2] == [client, str(key.value)])
    return int(words[2]), bytes.fromhex(words[3]), bytes.fromhex(words[4])


@pytest.mark.parametrize("line", LINES, ids=lambda line: "-".join(line.split()[:3]))
def test_captured_requests_and_responses_round_trip(line: str) -> None:
    _, _, _, request_text, response_text = line.split()
    request_frame, response_frame = bytes.fromhex(request_text), bytes.fromhex(response_text)

    header, position = decode_request_header(request_frame)
    cls, version = request_class(header.api_key), header.api_version
    request, end = compiler.decode(cls, request_frame, version, position)
    assert end == len(request_frame)
    again = encode_request(request, version, header.correlation_id, header.client_id)
    assert b"".join(again)[4:] == request_frame

    correlation_id, response = decode_response(response_class(header.api_key), version, response_frame)
    assert correlation_id == header.correlation_id
    answer = encode_response(header.api_key, version, correlation_id, response)
    assert b"".join(answer)[4:] == response_frame


def test_capture_contains_every_client() -> None:
    apis: dict[str, set[int]] = {}
    for line in LINES:
        client, key, *_ = line.split()
        apis.setdefault(client, set()).add(int(key))
    assert sorted(apis) == ["aiokafka", "java", "kafka-python", "librdkafka"]
    common = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.JOIN_GROUP}
    assert all(common <= keys for keys in apis.values())


def test_produce_request_of_librdkafka_decodes_to_the_sent_values() -> None:
    version, request, _ = exchange("librdkafka", ApiKey.PRODUCE)
    header, position = decode_request_header(request)
    message, _ = compiler.decode(ProduceRequest, request, version, position)
    assert header.client_id == "rdkafka"
    assert (message.acks, message.transactional_id) == (-1, None)
    (topic,) = message.topic_data
    assert topic.name == "rd"
    records = topic.partition_data[0].records
    assert isinstance(records, memoryview)
    assert records[16] == 2, "the batch has magic 2"
    assert b"value" in bytes(records)


def test_create_topics_request_of_the_java_client_decodes_to_its_arguments() -> None:
    version, request, _ = exchange("java", ApiKey.CREATE_TOPICS)
    _, position = decode_request_header(request)
    message, _ = compiler.decode(CreateTopicsRequest, request, version, position)
    assert [(topic.name, topic.num_partitions) for topic in message.topics] == [("java", 2)]


def test_fetch_response_of_kafka_decodes_to_the_stored_records() -> None:
    version, _, response = exchange("java", ApiKey.FETCH)
    _, message = decode_response(FetchResponse, version, response)
    assert (message.error_code, message.throttle_time_ms) == (0, 0)
    assert message.session_id != 0
    partitions = [partition for topic in message.responses for partition in topic.partitions]
    assert {partition.error_code for partition in partitions} == {0}

"""Requests that let the requests of other connections go first."""

import pytest

from broker.api.pipeline.yielding import yields
from broker.net.request import ConnectionInfo, Request
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.headers import RequestHeader
from protocol.messages import Message
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.produce import ProduceRequest

PRODUCE_VERSIONS = range(3, 14)


def request(key: ApiKey, version: int, message: Message) -> Request:
    body = memoryview(bytearray(encode_bytes(message, version)))
    return Request(RequestHeader(key, version, 1, "test"), body, ConnectionInfo("id", "PLAINTEXT", "10.0.0.1", 1), 0)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_records_of_a_transaction_yield(version: int) -> None:
    assert yields(request(ApiKey.PRODUCE, version, ProduceRequest("id", -1, 1000, [])))
    assert yields(request(ApiKey.PRODUCE, version, ProduceRequest("i" * 300, -1, 1000, [])))


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_other_records_do_not_yield(version: int) -> None:
    assert not yields(request(ApiKey.PRODUCE, version, ProduceRequest(None, -1, 1000, [])))


def test_end_of_a_transaction_does_not_yield() -> None:
    assert not yields(request(ApiKey.END_TXN, 5, EndTxnRequest("id", 1, 0, True)))


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_empty_request_does_not_yield(version: int) -> None:
    header = RequestHeader(ApiKey.PRODUCE, version, 1, "test")
    assert not yields(Request(header, memoryview(b""), ConnectionInfo("id", "PLAINTEXT", "10.0.0.1", 1), 0))

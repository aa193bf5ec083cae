"""A client of a few system calls: prepared Produce frames, and long-polling fetches.

A client library would dominate measured latencies: librdkafka passes each record between threads on send and on
receive. Here a request is one `send`, its response one `recv`.
"""

import contextlib
import socket
import struct
import time
from typing import TypeVar

from protocol import compiler
from protocol.headers import decode_response, encode_request
from protocol.messages import Message
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.builder import Record, build_batch

PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 9, 11, 9
RETRY_S = 0.002

_SIZE = struct.Struct(">i")
R = TypeVar("R", bound=Message)


def produce_frame(topic: str, *, records: int = 1, size: int = 100, acks: int = 1, partition: int = 0) -> bytes:
    """Return a Produce request with one batch, the same each time it is sent."""
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, record_batch(records, size))])
    return _frame(ProduceRequest(None, acks, 30_000, [data]), PRODUCE_VERSION)


def record_batch(records: int, size: int) -> bytes:
    """Return a batch of equal records; its length depends on the arguments only."""
    now_ms = int(time.time() * 1000)
    return build_batch([Record(now_ms, None, b"x" * size) for _ in range(records)])


def fetch_frame(topic: str, offset: int, *, max_wait_ms: int = 500, max_bytes: int = 1 << 20) -> bytes:
    """Return a Fetch request without session that waits for the record at `offset`."""
    target = FetchTopic(topic, partitions=[FetchPartition(0, -1, offset, partition_max_bytes=max_bytes)])
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, topics=[target], session_epoch=-1)
    return _frame(request, FETCH_VERSION)


def _frame(message: Message, version: int) -> bytes:
    return b"".join(encode_request(message, version, 1, "bench"))


class Wire:
    """One connection. `send` and `answer` are separate, so that requests can be pipelined."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, frame: bytes) -> None:
        """Send a request."""
        self.socket.sendall(frame)

    def answer(self) -> bytes:
        """Return the next response, without its size. Blocks."""
        while (frame := self._take()) is None:
            self._receive()
        return frame

    def answers(self) -> list[bytes]:
        """Return the complete responses after one `recv`, possibly none."""
        self._receive()
        frames = []
        while (frame := self._take()) is not None:
            frames.append(frame)
        return frames

    def call(self, request: Message, response: type[R], version: int) -> R:
        """Send a request and return its response."""
        self.send(_frame(request, version))
        return decode_response(response, version, self.answer())[1]

    def _receive(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        self._buffer += data

    def _take(self) -> bytes | None:
        if len(self._buffer) < _SIZE.size:
            return None
        end = _SIZE.size + _SIZE.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_SIZE.size : end])
        del self._buffer[:end]
        return frame


def check_produced(answer: bytes) -> None:
    """Raise unless the only batch of a Produce was appended."""
    error = error_of_produced(answer)
    if error:
        raise AssertionError(f"produce failed with error {error}")


def error_of_produced(answer: bytes) -> int:
    """Return the error code of the only batch of a Produce."""
    response = decode_response(ProduceResponse, PRODUCE_VERSION, answer)[1]
    return response.responses[0].partition_responses[0].error_code


def fetched_bytes(answer: bytes) -> int:
    """Return the number of record bytes in a fetch response of one partition."""
    response = decode_response(FetchResponse, FETCH_VERSION, answer)[1]
    partition = response.responses[0].partitions[0]
    if partition.error_code:
        raise AssertionError(f"fetch failed with error {partition.error_code}")
    return len(partition.records or b"")


def warm_up() -> None:
    """Compile everything that is compiled on first use, before measurements."""
    for message, version in ((ProduceRequest, PRODUCE_VERSION), (MetadataRequest, METADATA_VERSION)):
        compiler.encoder(message, version)
    for response, version in ((ProduceResponse, PRODUCE_VERSION), (MetadataResponse, METADATA_VERSION)):
        compiler.decoder(response, version)


def first_acknowledged_produce(bootstrap: str, topic: str = "first", timeout_s: float = 60) -> None:
    """Return as soon as one record is acknowledged, also when called before the broker listens; the topic is
    auto-created.
    """
    frame, deadline = produce_frame(topic), time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), Wire(bootstrap) as wire:
            while time.monotonic() < deadline:
                wanted = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
                if not wire.call(wanted, MetadataResponse, METADATA_VERSION).topics[0].error_code:
                    wire.send(frame)
                    if not error_of_produced(wire.answer()):
                        return
                time.sleep(RETRY_S)
        time.sleep(RETRY_S)
    raise AssertionError(f"no record was acknowledged within {timeout_s} s")

"""Malformed requests and bad configuration: the protocol's error or one clear line, and no effect on other clients."""

import contextlib
import random
import re
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.errors import ErrorCode
from protocol.headers import encode_request
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.records.builder import Record, build_batch
from tests.support.clients.raw_produce import RawProducer
from tests.support.processes.ottla_node import OttlaNode, run_ottla

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    with OttlaNode(tmp_path_factory.mktemp("bad-input")) as running:
        create_topic(running, "t")
        yield running


def create_topic(node: OttlaNode, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})  # the client closes when it is garbage-collected
    admin.create_topics([NewTopic(name, 1)])[name].result(20)


def connect(node: OttlaNode) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=20)


def read_to_end(peer: socket.socket) -> bytes:
    """Return everything until the node closes the connection. A connection that stays open fails by timeout."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := peer.recv(65536):
            received += chunk
    return received


HOSTILE = {
    "random bytes": random.Random(7).randbytes(4096),
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(189),
    "an HTTP GET": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a length of 2 GiB": struct.pack(">i", 2**31 - 1) + b"\0" * 64,
    "a negative length": struct.pack(">i", -5) + b"\0" * 64,
    "an unknown API key": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "an unsupported version": struct.pack(">ihhih", 10, 0, 99, 1, -1),
    "a body that ends too early": struct.pack(">ihhihh", 12, 3, 4, 1, -1, 7),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_malformed_input_closes_only_its_own_connection(node: OttlaNode, kind: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
    producer.list_topics("t", timeout=20)
    with connect(node) as peer:
        peer.sendall(HOSTILE[kind])
        assert read_to_end(peer) == b""
    errors: list[object] = []
    producer.produce("t", b"served", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]
    assert "Traceback" not in node.log_text


def test_unsupported_api_versions_version_returns_the_supported_range(node: OttlaNode) -> None:
    with connect(node) as peer:
        peer.sendall(struct.pack(">ihhihb", 11, 18, 99, 77, -1, 0))
        (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
        answer = peer.recv(size, socket.MSG_WAITALL)
    correlation, error, count, key, lowest, highest = struct.unpack(">ihihhh", answer[:16])
    assert (correlation, error, count) == (77, ErrorCode.UNSUPPORTED_VERSION, 1)
    assert (key, lowest) == (18, 0)
    assert highest >= 4


def produce_raw(node: OttlaNode, records: bytes, topic: str = "t") -> int:
    """Return the error code of a produce with these bytes."""
    with contextlib.closing(RawProducer(node.port)) as producer:
        return producer.produce(topic, 0, records)[0]


def sample_batch() -> bytes:
    return build_batch([Record(1_700_000_000_000, b"k", b"v" * 100, ())])


def test_damaged_batch_is_refused_as_corrupt(node: OttlaNode) -> None:
    good = sample_batch()
    flipped = bytearray(good)
    flipped[-1] ^= 1
    assert produce_raw(node, good) == ErrorCode.NONE
    assert produce_raw(node, bytes(flipped)) == ErrorCode.CORRUPT_MESSAGE
    assert produce_raw(node, good[:-10]) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert produce_raw(node, good[:20]) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert produce_raw(node, good, topic="../x") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topic_named_like_a_path_is_refused_and_creates_no_file(node: OttlaNode) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        create_topic(node, "../x")
    assert refused.value.args[0].name() == "TOPIC_EXCEPTION"
    assert not list(node.data.parent.glob("x*"))


def error_line(text: str) -> str:
    """Return the last line that a failed start printed. Fail if it printed a traceback."""
    assert "Traceback" not in text, text
    return text.strip().splitlines()[-1]


def test_second_node_on_a_directory_is_refused(node: OttlaNode, tmp_path: Path) -> None:
    other = OttlaNode(tmp_path, {"log.dirs": str(node.data)})
    failed = run_ottla(*other.command()[3:], check=False)
    assert failed.returncode == 1
    assert str(node.data) in error_line(failed.stdout + failed.stderr)


def open_connections(node: OttlaNode) -> int:
    found = re.search(r'_connection_count\{[^}]*"PLAINTEXT"[^}]*\} ([0-9.]+)', node.http("/metrics")[1])
    assert found is not None
    return int(float(found[1]))


def wait_for_connections(node: OttlaNode, count: int) -> None:
    deadline = time.monotonic() + 60
    while (found := open_connections(node)) != count:
        assert time.monotonic() < deadline, f"{found} connections instead of {count}"


def test_consumers_disconnecting_in_a_long_fetch_leave_no_connection(tmp_path: Path) -> None:
    """Use a separate node, since clients of other tests may close their connections late."""
    with OttlaNode(tmp_path) as node:
        create_topic(node, "t")
        hang_up_in_a_long_fetch(node)


def hang_up_in_a_long_fetch(node: OttlaNode) -> None:
    partition = FetchPartition(0, partition_max_bytes=1000, fetch_offset=0)
    fetch = FetchRequest(max_wait_ms=2**31 - 1, min_bytes=2**20, topics=[FetchTopic("t", partitions=[partition])])
    frame = b"".join(encode_request(fetch, 12, 1, "impatient"))
    wait_for_connections(node, 0)  # the client that created the topic may still be closing its connections
    with contextlib.ExitStack() as consumers:
        for _ in range(100):
            consumers.enter_context(connect(node)).sendall(frame)
        wait_for_connections(node, 100)
    wait_for_connections(node, 0)


def test_start_on_a_port_in_use_fails_with_one_error_line(node: OttlaNode, tmp_path: Path) -> None:
    other = OttlaNode(tmp_path)
    other.port = node.port
    failed = run_ottla(*other.command()[3:], check=False)
    assert failed.returncode == 1
    assert str(node.port) in error_line(failed.stdout + failed.stderr)


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("num.partitions=many", "num.partitions"),
        ("log.segment.bytes=5", "log.segment.bytes"),
        ("listeners=PLAINTEXT://nowhere", "listeners"),
        ("log.cleanup.policy=burn", "log.cleanup.policy"),
    ],
)
def test_invalid_config_value_stops_the_start_with_one_error_line(tmp_path: Path, setting: str, word: str) -> None:
    command = OttlaNode(tmp_path).command("--override", setting)
    failed = run_ottla(*command[3:], check=False)
    assert failed.returncode == 1
    assert word in error_line(failed.stdout + failed.stderr)


def test_mistyped_config_key_logs_a_warning_with_a_suggestion(tmp_path: Path) -> None:
    with OttlaNode(tmp_path, {"num.partition": "3"}) as node:
        assert "num.partitions" in node.log_text

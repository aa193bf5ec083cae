"""The command console-producer: line formats, batches, retries and errors."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cli.console.lines import LineFormat, ParsedLine, read_lines
from broker.cli.console.partitioner import murmur2, partition_of_key
from broker.cli.shared.failure import CommandFailed
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest
from protocol.records.compression import Codec
from tests.broker.cli.conftest import Ottla, Outcome
from tests.support.fakes.fake_broker import FakeBroker
from tests.support.fakes.fake_logs import PRODUCER_ID, FakeLogs

Produce = Callable[..., Outcome]


@pytest.fixture
def logs(broker: FakeBroker) -> FakeLogs:
    broker.topics = {"t": 1, "k": 3}
    return FakeLogs(broker)


@pytest.fixture
def produce(ottla: Ottla, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Produce:
    """Return a function that runs the command with bytes on standard input."""

    def call(data: bytes, *arguments: str, topic: str = "t") -> Outcome:
        (tmp_path / "input").write_bytes(data)
        with (tmp_path / "input").open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            return ottla("console-producer", "--topic", topic, *arguments)

    return call


def test_each_line_becomes_a_record(logs: FakeLogs, produce: Produce) -> None:
    assert produce(b"one\ntwo\r\n\nlast") == (0, "", "")
    assert [(record.key, record.value) for record in logs.records("t", 0)] == [
        (None, b"one"),
        (None, b"two"),
        (None, b""),
        (None, b"last"),
    ]


def test_empty_input_sends_nothing(broker: FakeBroker, logs: FakeLogs, produce: Produce) -> None:
    assert produce(b"").code == 0
    assert broker.received(ProduceRequest) == []


def test_keys_and_headers_are_parsed(logs: FakeLogs, produce: Produce) -> None:
    properties = ["--property", "parse.key=true", "--property", "parse.headers=true", "--property", "null.marker=NULL"]
    produce(b"h:1,i:\tk\tv\nNULL\tNULL\tNULL\n", *properties, "--property", "key.separator=\\t")
    assert [(r.key, r.value, r.headers) for r in logs.records("t", 0)] == [
        (b"k", b"v", [("h", b"1"), ("i", b"")]),
        (None, None, []),
    ]


def test_keys_are_partitioned_as_by_kafka_clients(logs: FakeLogs, produce: Produce) -> None:
    lines = b"".join(b"k%d:v%d\n" % (n, n) for n in range(1, 6))
    produce(lines, "--property", "parse.key=true", "--property", "key.separator=:", topic="k")
    assert [[record.key for record in logs.records("k", partition)] for partition in range(3)] == [
        [b"k2", b"k5"],
        [b"k3", b"k4"],
        [b"k1"],
    ]


def test_full_batch_moves_to_the_next_partition(logs: FakeLogs, produce: Produce) -> None:
    produce(b"x" * 60 + b"\n" + (b"y" * 60 + b"\n") * 5, "--batch-size", "170", topic="k")
    assert sorted(len(logs.headers("k", partition)) for partition in range(3)) == [1, 1, 1]
    assert all(header.record_count == 2 for partition in range(3) for header in logs.headers("k", partition))


def test_sync_sends_each_line_in_its_own_batch(logs: FakeLogs, produce: Produce) -> None:
    produce(b"a\nb\nc\n", "--sync")
    assert [header.record_count for header in logs.headers("t", 0)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "codec"),
    [
        ([], Codec.NONE),
        (["--compression-codec"], Codec.GZIP),
        (["--compression-codec", "zstd"], Codec.ZSTD),
        (["--producer-property", "compression.type=lz4"], Codec.LZ4),
    ],
)
def test_batches_are_compressed(arguments: list[str], codec: Codec, logs: FakeLogs, produce: Produce) -> None:
    produce(b"a\n", *arguments)
    assert [header.codec for header in logs.headers("t", 0)] == [codec]
    assert [record.value for record in logs.records("t", 0)] == [b"a"]


def test_idempotent_batches_have_sequences(logs: FakeLogs, produce: Produce) -> None:
    produce(b"a\nb\n", "--sync")
    assert [(h.producer_id, h.producer_epoch, h.base_sequence) for h in logs.headers("t", 0)] == [
        (PRODUCER_ID, 0, 0),
        (PRODUCER_ID, 0, 1),
    ]


@pytest.mark.parametrize(
    ("arguments", "acks"),
    [
        (["--producer-property", "acks=1"], 1),
        (["--request-required-acks", "0"], 0),
        (["--producer-property", "enable.idempotence=false"], -1),
    ],
)
def test_batches_without_idempotence_have_no_sequences(
    arguments: list[str], acks: int, broker: FakeBroker, logs: FakeLogs, produce: Produce
) -> None:
    assert produce(b"a\n", *arguments).code == 0
    assert [request.acks for request in broker.wait_for(ProduceRequest, 1)] == [acks]
    assert broker.received(InitProducerIdRequest) == []


def test_refused_batch_is_reported(logs: FakeLogs, produce: Produce) -> None:
    logs.refusals = [ErrorCode.MESSAGE_TOO_LARGE]
    outcome = produce(b"a\n")
    assert (outcome.code, outcome.err) == (1, f"Error: t-0: {ErrorCode.MESSAGE_TOO_LARGE.message}\n")


def test_retry_sends_the_same_bytes(broker: FakeBroker, logs: FakeLogs, produce: Produce) -> None:
    logs.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert produce(b"a\n", "--retry-backoff-ms", "1").code == 0
    first, second = (bytes(r.topic_data[0].partition_data[0].records or b"") for r in broker.received(ProduceRequest))
    assert first == second
    assert len(logs.records("t", 0)) == 1


def test_retry_sends_only_failed_batches(broker: FakeBroker, logs: FakeLogs, produce: Produce) -> None:
    logs.refusals = [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    lines = b"".join(b"k%d:v\n" % n for n in range(1, 6))
    properties = ["--property", "parse.key=true", "--property", "key.separator=:"]
    assert produce(lines, *properties, "--retry-backoff-ms", "1", topic="k").code == 0
    assert [len(logs.records("k", partition)) for partition in range(3)] == [2, 2, 1]
    assert [p.index for p in broker.received(ProduceRequest)[1].topic_data[0].partition_data] == [1]


def test_lines_before_a_malformed_line_are_sent(logs: FakeLogs, produce: Produce) -> None:
    outcome = produce(b"k:v\nnokey\n", "--property", "parse.key=true", "--property", "key.separator=:")
    assert (outcome.code, outcome.err) == (1, "Error: No key separator found on line number 2: 'nokey'\n")
    assert [record.key for record in logs.records("t", 0)] == [b"k"]


def test_topic_is_created_on_demand(broker: FakeBroker, logs: FakeLogs, produce: Produce) -> None:
    metadata = broker._metadata
    requests = []

    def create_on_demand(request: MetadataRequest) -> MetadataResponse:
        requests.append(request)
        if len(requests) == 2:
            broker.topics["new"] = 1
        return metadata(request)

    broker.answer(ApiKey.METADATA, create_on_demand)
    assert produce(b"a\n", "--retry-backoff-ms", "1", topic="new").code == 0
    assert len(logs.records("new", 0)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--request-required-acks", "2"], "acks=2: use all, 0 or 1."),
        (["--compression-codec", "rar"], "compression rar: use none, gzip, snappy, lz4 or zstd."),
        (["--property", "parse.keys=true"], "property parse.keys is unknown; use"),
        (["--property", "parse.key=maybe"], "parse.key=maybe is neither true nor false."),
        (["--producer-property", "batch.size=big"], "batch.size=big is not a whole number."),
        (["--line-reader", "a.B"], "--line-reader a.B is not supported"),
    ],
)
@pytest.mark.usefixtures("logs")
def test_invalid_values_are_refused(arguments: list[str], message: str, produce: Produce) -> None:
    outcome = produce(b"a\n", *arguments)
    assert outcome.code == 1
    assert message in outcome.err


@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"a\tb", ParsedLine(None, b"a\tb", [])),
        ({"parse.key": "true"}, b"a\tb\tc", ParsedLine(b"a", b"b\tc", [])),
        ({"parse.key": "true", "ignore.error": "true"}, b"a", ParsedLine(None, b"a", [])),
        ({"parse.headers": "true"}, b"h:v:w\tx", ParsedLine(None, b"x", [("h", b"v:w")])),
        ({"parse.headers": "true", "ignore.error": "true"}, b"h\tx", ParsedLine(None, b"x", [("h", None)])),
        ({"null.marker": "~"}, b"~", ParsedLine(None, None, [])),
    ],
)
def test_line_format_parses_lines(properties: dict[str, str], line: bytes, expected: ParsedLine) -> None:
    assert LineFormat.from_properties(properties).parse(line, 1) == expected


@pytest.mark.parametrize("line", [b"x", b"h\tx", b"~:v\tx"])
def test_missing_or_malformed_headers_are_refused(line: bytes) -> None:
    line_format = LineFormat.from_properties({"parse.headers": "true", "null.marker": "~"})
    with pytest.raises(CommandFailed, match="line number 7"):
        line_format.parse(line, 7)


def test_lines_are_read_as_they_are_written() -> None:
    reading, writing = os.pipe()
    lines = read_lines(reading, 0.01)
    assert next(lines) == []
    os.write(writing, b"a\nb")
    assert next(lines) == [b"a"]
    os.write(writing, b"c\r\n")
    assert next(lines) == [b"bc"]
    os.close(writing)
    assert list(lines) == []
    os.close(reading)


def test_line_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.cli.console.lines.MAX_LINE_BYTES", 5)
    reading, writing = os.pipe()
    os.write(writing, b"abcdef")
    os.close(writing)
    with pytest.raises(CommandFailed, match="longer than 5 bytes"):
        list(read_lines(reading, 1))
    os.close(reading)


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # Values of Apache Kafka's client tests.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_kafkas_hash(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_partition_of_a_key_is_never_negative() -> None:
    assert all(0 <= partition_of_key(b"%d" % n, 7) < 7 for n in range(100))

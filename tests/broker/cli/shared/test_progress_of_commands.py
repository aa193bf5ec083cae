"""Commands that take long: progress on a terminal at standard error, none in a pipe, the same standard output."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cli.main import run
from protocol.api_keys import ApiKey
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.broker.cli.conftest import Ottla, Outcome
from tests.support.fakes.fake_broker import FakeBroker
from tests.support.fakes.fake_logs import FakeLogs
from tests.wire.kafka_dumps import FILES

MIB = 1 << 20


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], None]:
    """Return a function that makes standard error a terminal."""

    def connect() -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    return connect


def compare(call: Callable[[], Outcome], terminal: Callable[[], None]) -> str:
    """Run the command in a pipe and on a terminal, and return what the terminal shows."""
    piped = call()
    assert (piped.code, piped.err) == (0, "")
    terminal()
    shown = call()
    assert (shown.code, shown.out) == (0, piped.out)
    return shown.err


def test_dump_log_shows_bytes_of_the_file(terminal: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    path = FILES / "tx-0" / "00000000000000000000.log"

    def call() -> Outcome:
        code = run(["dump-log", "--files", str(path), "--print-data-log"])
        return Outcome(code, *capsys.readouterr())

    shown = compare(call, terminal)
    assert path.name in shown
    size = path.stat().st_size
    assert f"{size}/{size} bytes" in shown or "KiB" in shown


def test_producer_perf_shows_acknowledged_records(
    broker: FakeBroker, ottla: Ottla, terminal: Callable[[], None]
) -> None:
    broker.topics = {"t": 1}
    FakeLogs(broker)
    load = ("--topic", "t", "--num-records", "10", "--throughput", "-1", "--payload-monotonic")
    terminal()
    shown = ottla("producer-perf", *load)
    assert "records acknowledged" in shown.err
    assert "10/10" in shown.err
    assert shown.out.startswith("10 records sent, ")


def test_verify_shows_the_bytes_of_new_replicas(
    broker: FakeBroker, ottla: Ottla, terminal: Callable[[], None], tmp_path: Path
) -> None:
    broker.topics = {"t": 1}
    ongoing = OngoingPartitionReassignment(0, [1, 2], [1], [2])
    answer = ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment("t", [ongoing])])
    broker.answer(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda _: answer)
    described = DescribeLogDirsTopic("t", [DescribeLogDirsPartition(0, 3 * MIB, 0, False)])
    result = DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/d", topics=[described])])
    broker.answer(ApiKey.DESCRIBE_LOG_DIRS, lambda _: result)
    moves = tmp_path / "moves.json"
    moves.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}))

    def call() -> Outcome:
        return ottla("reassign-partitions", "--verify", "--reassignment-json-file", str(moves))

    shown = compare(call, terminal)
    assert "copied to new replicas" in shown
    assert "3.0/3.0 MiB" in shown
    assert len(broker.received(DescribeLogDirsRequest)) == 1, "a pipe needs no sizes"


def test_delete_records_shows_brokers(
    broker: FakeBroker, ottla: Ottla, terminal: Callable[[], None], tmp_path: Path
) -> None:
    broker.topics = {"t": 1}
    deleted = DeleteRecordsTopicResult("t", [DeleteRecordsPartitionResult(0, 5, 0)])
    broker.answer(ApiKey.DELETE_RECORDS, lambda _: DeleteRecordsResponse(topics=[deleted]))
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "offset": 5}]}))
    shown = compare(lambda: ottla("delete-records", "--offset-json-file", str(offsets)), terminal)
    assert "brokers" in shown
    assert "1/1" in shown

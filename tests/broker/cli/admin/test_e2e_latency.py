"""The command e2e-latency."""

import json
import re
from pathlib import Path

import pytest

from broker.cli.main import run
from protocol.api_keys import ApiKey
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.builder import Record, build_batch
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker
from tests.support.fakes.fake_logs import FakeLogs

LOAD = ("--topic", "t", "--num-records", "5", "--producer-acks", "all", "--record-size", "10")
RESULT = r"0\t[0-9.]+\nAvg latency: [0-9]+\.[0-9]{4} ms\nPercentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+\n"


@pytest.fixture
def logs(broker: FakeBroker) -> FakeLogs:
    broker.topics = {"t": 1}
    return FakeLogs(broker)


def test_latencies_are_printed(ottla: Ottla, logs: FakeLogs) -> None:
    sizes = (
        "--record-key-size",
        "4",
        "--num-headers",
        "2",
        "--record-header-key-size",
        "3",
        "--record-header-size",
        "6",
    )
    assert re.fullmatch(RESULT, ottla("e2e-latency", *LOAD, *sizes).out)
    records = logs.records("t", 0)
    assert len(records) == 5
    assert (len(records[0].key or b""), len(records[0].value or b"")) == (4, 10)
    assert [(len(name), len(value or b"")) for name, value in records[0].headers] == [(3, 6), (3, 6)]


@pytest.mark.usefixtures("logs")
def test_json(ottla: Ottla) -> None:
    printed = json.loads(ottla("e2e-latency", *LOAD, "--json").out)
    assert printed.keys() == {"averageMs", "percentilesMs"}


def test_missing_topic_is_created(ottla: Ottla, broker: FakeBroker, logs: FakeLogs) -> None:
    del broker.topics["t"]

    def create(request: CreateTopicsRequest) -> CreateTopicsResponse:
        broker.topics[request.topics[0].name] = request.topics[0].num_partitions
        return CreateTopicsResponse(topics=[CreatableTopicResult("t")])

    broker.answer(ApiKey.CREATE_TOPICS, create)
    assert ottla("e2e-latency", *LOAD).lines[0] == (
        'Topic "t" does not exist. Will create topic with 1 partition(s) and replication factor = 1'
    )
    assert len(logs.records("t", 0)) == 5


def test_records_of_others_end_the_measurement(ottla: Ottla, broker: FakeBroker, logs: FakeLogs) -> None:
    other = build_batch([Record(0, None, b"another", ())])

    def append_twice(request: ProduceRequest) -> ProduceResponse:
        logs.append("t", 0, other)
        logs.append("t", 0, bytes(request.topic_data[0].partition_data[0].records or b""))
        partitions = [PartitionProduceResponse(0, 0)]
        return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=partitions)])

    broker.answer(ApiKey.PRODUCE, append_twice)
    outcome = ottla("e2e-latency", *LOAD)
    assert outcome.code == 1
    assert "2 records were read instead of 1" in outcome.err


@pytest.mark.usefixtures("logs")
def test_positional_form(broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    config.write_text("client.id=x\n")
    assert run(["e2e-latency", broker.address, "t", "5", "1", "10", str(config)]) == 0
    printed = capsys.readouterr()
    assert re.fullmatch(RESULT, printed.out)
    assert "deprecated" in printed.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("x:1", "t", "5"),
        ("x:1", "t", "0", "1", "10"),
        ("x:1", "t", "5", "0", "10"),
        ("--bootstrap-server", "x:1", "--topic", "t"),
        ("--bootstrap-server", "x:1", *LOAD, "--producer-acks", "0"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    assert run(["e2e-latency", *arguments]) == 2

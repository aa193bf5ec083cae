"""Apache Kafka's unmodified command-line tools and Java clients with an Ottla node and its files."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.support.kafka.apache_kafka import run_tool, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode, run_ottla

pytestmark = pytest.mark.interop

LINES = [f"line {number}" for number in range(500)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    settings = {"group.initial.rebalance.delay.ms": "0", "log.segment.bytes": "1048576"}
    with OttlaNode(tmp_path_factory.mktemp("tools"), settings) as running:
        run_tool(TOPICS, *at(running), "--create", "--topic", "lines", "--partitions", "3")
        yield running


TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
PRODUCER_PERF = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERF = "org.apache.kafka.tools.ConsumerPerformance"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def at(node: OttlaNode) -> tuple[str, str]:
    return "--bootstrap-server", node.bootstrap


def consume(node: OttlaNode, topic: str, count: int, *more: str) -> list[str]:
    command = (*at(node), "--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "120000")
    return run_tool(CONSUMER, *command, *more).splitlines()


def test_topic_tool_creates_and_describes_topics(node: OttlaNode) -> None:
    described = run_tool(TOPICS, *at(node), "--describe", "--topic", "lines")
    assert "PartitionCount: 3" in described
    assert described.count("Leader: 1") == 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_java_clients_round_trip_lines_in_every_codec(node: OttlaNode, codec: str) -> None:
    topic = f"java-{codec}"
    produce = (*at(node), "--topic", topic, "--compression-codec", codec, "--command-property", "acks=all")
    run_tool(PRODUCER, *produce, stdin="\n".join(LINES) + "\n")
    assert consume(node, topic, len(LINES)) == LINES


def test_group_tool_describes_and_resets_a_java_group(node: OttlaNode) -> None:
    run_tool(PRODUCER, *at(node), "--topic", "grouped", stdin="\n".join(LINES) + "\n")
    consume(node, "grouped", len(LINES), "--group", "readers")
    described = run_tool(GROUPS, *at(node), "--describe", "--group", "readers")
    assert ["grouped", "0", str(len(LINES)), str(len(LINES)), "0"] == described.splitlines()[-1].split()[1:6]
    reset = ("--reset-offsets", "--group", "readers", "--topic", "grouped", "--to-offset", "100", "--execute")
    assert "100" in run_tool(GROUPS, *at(node), *reset)
    assert consume(node, "grouped", len(LINES) - 100, "--group", "readers") == LINES[100:]
    assert "readers" in run_tool(GROUPS, *at(node), "--list")
    run_tool(GROUPS, *at(node), "--delete", "--group", "readers")
    assert "readers" not in run_tool(GROUPS, *at(node), "--list")


def test_config_tool_sets_and_describes_a_topic_config(node: OttlaNode) -> None:
    entity = ("--entity-type", "topics", "--entity-name", "lines")
    run_tool("kafka.admin.ConfigCommand", *at(node), *entity, "--alter", "--add-config", "retention.ms=12345")
    assert "retention.ms=12345" in run_tool("kafka.admin.ConfigCommand", *at(node), *entity, "--describe")


def test_offset_record_log_dir_and_version_tools(node: OttlaNode, tmp_path: Path) -> None:
    run_tool(PRODUCER, *at(node), "--topic", "cut", stdin="\n".join(LINES) + "\n")
    offsets = ("--topic", "cut", "--time")
    assert run_tool("org.apache.kafka.tools.GetOffsetShell", *at(node), *offsets, "latest").strip() == "cut:0:500"
    wanted = tmp_path / "delete.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": "cut", "partition": 0, "offset": 42}]}))
    run_tool("org.apache.kafka.tools.DeleteRecordsCommand", *at(node), "--offset-json-file", str(wanted))
    assert run_tool("org.apache.kafka.tools.GetOffsetShell", *at(node), *offsets, "earliest").strip() == "cut:0:42"
    directories = run_tool("org.apache.kafka.tools.LogDirsCommand", *at(node), "--describe", "--topic-list", "cut")
    assert '"cut-0"' in directories
    assert "Produce(0): 0 to 13" in run_tool("org.apache.kafka.tools.BrokerApiVersionsCommand", *at(node))


def test_transaction_tool_prints_what_ottla_prints(node: OttlaNode) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("lines", "first", partition=1)
    producer.flush()
    for command in (("list",), ("describe-producers", "--topic", "lines", "--partition", "1")):
        ours = run_ottla("transactions", *at(node), *command).stdout
        assert ours == run_tool(TRANSACTIONS, *at(node), *command)
        assert len(ours.splitlines()) == 2
    run_ottla("transactions", *at(node), "forceTerminateTransaction", "--transactionalId", "open")
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


def test_benchmarks_print_what_kafkas_print(node: OttlaNode) -> None:
    load = ("--topic", "measured", "--num-records", "2000", "--throughput", "-1", "--record-size", "100")
    transactions = ("--transaction-duration-ms", "50")
    ours = run_ottla("producer-perf", *at(node), *load, *transactions).stdout
    assert without_figures(ours) == without_figures(run_tool(PRODUCER_PERF, *at(node), *load, *transactions))
    reading = ("--topic", "measured", "--num-records", "4000", "--command-property", "isolation.level=read_committed")
    header, line = run_ottla("consumer-perf", *at(node), *reading).stdout.splitlines()
    assert [header, without_figures(line)] == without_figures(run_tool(CONSUMER_PERF, *at(node), *reading)).splitlines()
    assert line.split(", ")[4] == "4000"


def without_figures(text: str) -> str:
    return re.sub(r"[0-9]+", "#", re.sub(r"(?<=[0-9])E-?[0-9]+", "", text)).replace("NaN", "#.#")


def test_dump_tool_reads_segments_and_indexes(node: OttlaNode) -> None:
    run_tool(PRODUCER, *at(node), "--topic", "dumped", stdin="\n".join(LINES) + "\n")
    node.terminate()
    try:
        directory = node.data / "dumped-0"
        for suffix in ("log", "index", "timeindex"):
            path = directory / f"{0:020d}.{suffix}"
            dumped = run_tool("kafka.tools.DumpLogSegments", "--files", str(path), "--deep-iteration")
            for fault in ("isvalid: false", "mismatch", "Mismatch", "not valid", "Exception"):
                assert fault not in dumped
        metadata = next((node.data / "__cluster_metadata-0").glob("*.log"))
        decoder = ("--cluster-metadata-decoder", "--files", str(metadata))
        dumped = run_tool("kafka.tools.DumpLogSegments", *decoder)
        assert '"type":"TOPIC_RECORD"' in dumped
        assert "Error" not in dumped
    finally:
        node.start()

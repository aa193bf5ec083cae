"""Consumers that tail `__cluster_metadata` while topics change and the active controller is killed."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.records.batch import parse_header
from protocol.records.reader import iter_records
from tests.support.kafka.apache_kafka import java_command, stop, unavailable_reason
from tests.support.kafka.kraft_nodes import PATIENCE_S, KraftNode, KraftNodes, Make, until

pytestmark = pytest.mark.interop

TOPIC = "__cluster_metadata"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KraftNodes]:
    """Start three combined Ottla nodes."""
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    members = [KraftNode(tmp_path / f"{n}", Make.OTTLA, n, "broker,controller") for n in (1, 2, 3)]
    with KraftNodes(members) as nodes:
        nodes.format_dynamic()
        yield nodes.start()


def bootstrap(cluster: KraftNodes) -> str:
    return ",".join(node.address for node in cluster.nodes)


def change_topics(cluster: KraftNodes, prefix: str) -> None:
    """Create ten topics and delete five."""
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster)})
    names = [f"{prefix}{number}" for number in range(10)]
    for name in names:
        admin.create_topics([NewTopic(name, 2, 1)], request_timeout=PATIENCE_S)[name].result(PATIENCE_S)
    for gone in admin.delete_topics(names[:5], request_timeout=PATIENCE_S).values():
        gone.result(PATIENCE_S)


def committed(cluster: KraftNodes) -> dict[int, bytes]:
    """Return all metadata records of the leader's log by offset, without control records."""
    leader, told = cluster.leader(), cluster.quorum()
    found: dict[int, bytes] = {}
    for batch in leader.batches().values():
        if not parse_header(batch, 0).is_control:
            found |= {record.offset: record.value or b"" for record in iter_records(batch, 0)}
    return {offset: value for offset, value in found.items() if offset < told.high_watermark}


class PrintingConsumer:
    """A consumer program that prints each record's offset on its own line."""

    def __init__(self, directory: Path, name: str, command: list[str]) -> None:
        self.path = directory / f"{name}.out"
        with self.path.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)

    def offsets(self) -> list[int]:
        whole, _, _ = self.path.read_text().rpartition("\n")
        return [int(line.removeprefix("Offset:")) for line in whole.splitlines()]

    def has_reached(self, offset: int) -> bool:
        return self.offsets()[-1:] >= [offset]


@contextlib.contextmanager
def printing(directory: Path, servers: str) -> Iterator[list[PrintingConsumer]]:
    """Run Kafka's console consumer, and kcat where it is installed."""
    shown = [f"{part}={value}" for part, value in (("print.offset", "true"), ("print.value", "false"))]
    properties = [word for each in shown for word in ("--formatter-property", each)]
    java = java_command(CONSOLE, "--bootstrap-server", servers, "--topic", TOPIC, "--partition", "0", heap="128m")
    commands = {
        "java": [*java, "--offset", "earliest", *properties],
        "kcat": ["kcat", "-b", servers, "-C", "-t", TOPIC, "-o", "beginning", "-u", "-f", "%o\n"],
    }
    installed = {name: command for name, command in commands.items() if shutil.which(command[0]) is not None}
    programs = [PrintingConsumer(directory, name, command) for name, command in installed.items()]
    try:
        yield programs
    finally:
        for program in programs:
            stop(program.process)


class Tail:
    """A confluent-kafka consumer that keeps its records."""

    def __init__(self, servers: str, group: str) -> None:
        settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
        self.consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
        self.found: list[tuple[int, bytes]] = []

    def has_reached(self, offset: int) -> bool:
        """Poll for a moment and return whether the offset was read."""
        message = self.consumer.poll(0.1)
        if message is not None and message.error() is None:
            assert message.key() is None
            self.found.append((message.offset(), message.value()))
        return bool(self.found) and self.found[-1][0] >= offset


def test_every_client_reads_every_record_in_order(cluster: KraftNodes, tmp_path: Path) -> None:
    servers = bootstrap(cluster)
    tail = Tail(servers, "nobody")
    tail.consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, confluent_kafka.OFFSET_BEGINNING)])
    with printing(tmp_path, servers) as programs:
        change_topics(cluster, "before-")
        lost = cluster.leader()
        until(lambda: all(program.offsets() for program in programs), PATIENCE_S, cluster)
        lost.kill()
        cluster.leader(other_than=[lost.id])
        lost.start()
        change_topics(cluster, "after-")
        expected = committed(cluster)
        last = max(expected)
        until(partial(tail.has_reached, last), PATIENCE_S, cluster)
        for program in programs:
            until(partial(program.has_reached, last), PATIENCE_S, cluster)
            assert [offset for offset in program.offsets() if offset <= last] == sorted(expected)
    tail.consumer.close()
    assert [each for each in tail.found if each[0] <= last] == sorted(expected.items())
    assert any(b"after-9" in value for _, value in tail.found)


def test_group_resumes_reading_at_its_committed_offset(cluster: KraftNodes) -> None:
    change_topics(cluster, "first-")
    begin, middle = 0, max(committed(cluster))
    for prefix, end in (("second-", middle), (None, None)):
        tail = Tail(bootstrap(cluster), "readers")
        tail.consumer.subscribe([TOPIC])
        wanted = max(committed(cluster)) if end is None else end
        until(partial(tail.has_reached, wanted), PATIENCE_S, cluster)
        tail.consumer.commit(asynchronous=False)
        tail.consumer.close()
        expected = [offset for offset in sorted(committed(cluster)) if begin <= offset <= tail.found[-1][0]]
        assert [offset for offset, _ in tail.found] == expected
        begin = tail.found[-1][0] + 1
        if prefix is not None:
            change_topics(cluster, prefix)

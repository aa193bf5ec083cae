"""Failover of a group coordinator whose partition of `__consumer_offsets` holds a million offsets.

Two brokers hold the partition. The benchmark commits offsets of 10,000 groups on 100 partitions, kills the coordinator
with -9, and measures the time until the other broker answers an OffsetFetch, with and without snapshots of the
coordinator's state. Apache Kafka then starts with the same segments, and
the time counts from the start of its listener.

Direct use: `python -m tests.benchmarks.coordinator_failover [--groups N] [--partitions N]`.
"""

import argparse
import re
import shutil
import tempfile
import time
from pathlib import Path

from broker.client import Client, ClientConfig, ClientError, Connection
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from tests.support.clients.partition_states import until
from tests.support.clients.replicated_load import create_topic
from tests.support.kafka.apache_kafka import apache_kafka, unavailable_reason
from tests.support.kafka.java_options import OPTIMIZED
from tests.support.processes.broker_cluster import BrokerCluster

TOPIC = "positions"
OFFSETS_PARTITION = "__consumer_offsets-0"
DEADLINE_S = 300
BENCH_GROUPS, BENCH_PARTITIONS = 2_000, 100  # in the table of `make bench`
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "ottla.coordinator.snapshot.interval.ms": "1000",
}


def group_name(number: int) -> str:
    return f"group-{number:06d}"


def coordinator(client: Client, group: str) -> Connection:
    """Return a connection to the coordinator, once it answers."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            connection = client.coordinator(group)
            if fetched(connection, group) is ErrorCode.NONE:
                return connection
        except (ClientError, KafkaError):
            client.forget()
            time.sleep(0.01)
        assert time.monotonic() < deadline, "no coordinator answers"


def fetched(connection: Connection, group: str) -> ErrorCode:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
    return ErrorCode(connection.call(request, OffsetFetchResponse, highest=9).groups[0].error_code)


def commit_all(bootstrap: str, groups: int, partitions: int) -> None:
    with Client(ClientConfig.parse(bootstrap)) as client:
        connection = coordinator(client, group_name(0))
        for number in range(groups):
            offsets = [OffsetCommitRequestPartition(index, number + index, 0, "") for index in range(partitions)]
            topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=offsets)]
            request = OffsetCommitRequest(group_id=group_name(number), topics=topics)
            answer = connection.call(request, OffsetCommitResponse, highest=9)
            assert all(each.error_code == 0 for topic in answer.topics for each in topic.partitions)


def measure_failover(directory: Path, groups: int, partitions: int, *, snapshots: bool) -> tuple[float, str, Path]:
    """Return the seconds from the kill to the first answer, what the new coordinator logged, and its partition."""
    settings = {**SETTINGS, "ottla.coordinator.snapshot.enable": str(snapshots).lower()}
    with BrokerCluster(directory, brokers=2, settings=settings) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions, 2)
        commit_all(cluster.bootstrap, groups, partitions)
        leader = _leader(cluster.bootstrap)
        successor = cluster[3 - leader]
        if snapshots:
            until(lambda: _snapshot_end(successor.data / OFFSETS_PARTITION) > groups * partitions // 2)
        cluster[leader].kill()
        killed = time.monotonic()
        with Client(ClientConfig.parse(successor.bootstrap)) as client:
            coordinator(client, group_name(groups // 2))
        elapsed_s = time.monotonic() - killed
        until(lambda: "Loaded a coordinator" in successor.log_text)
        (line,) = (each for each in successor.log_text.splitlines() if "Loaded a coordinator" in each)
        return elapsed_s, line.partition("Loaded a coordinator ")[2], successor.data / OFFSETS_PARTITION


def _leader(bootstrap: str) -> int:
    with Client(ClientConfig.parse(bootstrap)) as client:
        return client.coordinator_id(group_name(0))


def _snapshot_end(partition: Path) -> int:
    return max((int(each.name.partition("-")[0]) for each in partition.glob("*.checkpoint")), default=0)


def measure_kafka(directory: Path, segments: Path, groups: int) -> float:
    """Return the seconds from the start of Apache Kafka's listener to its first answer, over a copy of the segments."""
    with apache_kafka(directory, {"offsets.topic.num.partitions": "1"}, options=OPTIMIZED) as bootstrap:
        create_topic(bootstrap, TOPIC, 1, 1)
        commit_all(bootstrap, 1, 1)
    partition = directory / "data" / OFFSETS_PARTITION
    for old in (
        *partition.glob("0*"),
        *(directory / "data").glob("*-checkpoint"),
        *directory.glob("data/.kafka_clean*"),
    ):
        old.unlink()
    for segment in segments.glob("*.log"):
        shutil.copy(segment, partition)
    with apache_kafka(directory, {"offsets.topic.num.partitions": "1"}, options=OPTIMIZED) as bootstrap:
        started = time.monotonic()
        with Client(ClientConfig.parse(bootstrap)) as client:
            coordinator(client, group_name(groups // 2))
        return time.monotonic() - started


def rows(only: str) -> list[tuple[str, float, float | None, str, str]]:
    """Return the rows of the report, measured once: name, figures of both brokers, unit, better direction.

    A load counts from the election (Kafka: the start of its listener) until the coordinator serves the partition.
    """
    title = f"coordinator load, {BENCH_GROUPS * BENCH_PARTITIONS:,} offsets"
    names = {True: f"{title}, with a snapshot", False: f"{title}, without one"}
    failovers = {with_one: f"{name}, answer after kill -9" for with_one, name in names.items()}
    if not any(only in name for name in (*names.values(), *failovers.values())):
        return []
    found: list[tuple[str, float, float | None, str, str]] = []
    with tempfile.TemporaryDirectory() as directory:
        measured = {
            with_one: measure_failover(
                Path(directory) / str(with_one), BENCH_GROUPS, BENCH_PARTITIONS, snapshots=with_one
            )
            for with_one in (True, False)
        }
        segments = measured[False][2]
        has_kafka = unavailable_reason() is None
        kafka_s = measure_kafka(Path(directory) / "kafka", segments, BENCH_GROUPS) if has_kafka else None
    for with_one, (elapsed_s, line, _) in measured.items():
        load = re.search(r"\bms=(\d+)", line)
        assert load is not None, line
        found.append((names[with_one], int(load[1]) / 1000, kafka_s, "s", "lower"))
        found.append((failovers[with_one], elapsed_s, None, "s", "lower"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=100)
    arguments = parser.parse_args()
    groups, partitions = arguments.groups, arguments.partitions
    with tempfile.TemporaryDirectory() as directory:
        for snapshots in (True, False):
            place = Path(directory) / ("with" if snapshots else "without")
            elapsed_s, line, segments = measure_failover(place, groups, partitions, snapshots=snapshots)
            name = "with snapshots" if snapshots else "without snapshots"
            print(f"{name}: answer {elapsed_s:.2f} s after the kill ({line})", flush=True)
        if (reason := unavailable_reason()) is not None:
            print(f"Apache Kafka: {reason}")
            return
        kafka_s = measure_kafka(Path(directory) / "kafka", segments, groups)
        print(f"Apache Kafka on the same segments: answer {kafka_s:.2f} s after the start of its listener")


if __name__ == "__main__":
    main()

"""`ottla replica-verification`: Kafka's kafka-replica-verification. Replicas are compared batch by batch."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import click

from broker.cli.perf.consumption import TimeFormat
from broker.cli.shared.cluster_view import TopicInfo, topic_pattern, topics_of_metadata
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.fetch_round import FULL_FETCH_EPOCH, fetch_round, fetch_topics
from broker.cli.shared.offsets import list_offsets
from broker.cli.shared.options import json_option
from broker.cli.shared.output import print_json
from broker.cli.shared.progress import ProgressBar
from broker.cli.shared.session import session
from broker.client import Client, raise_for
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.fetch import FetchRequest
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.errors import MalformedBatch
from storage.directories.checkpoints import TopicPartition

TIME_FORMAT = "yyyy-MM-dd HH:mm:ss,SSS"
PURPOSE = "verification"


class Copy(NamedTuple):
    """A replica's response to a fetch: its high watermark and its batches. `node` is the replica's broker."""

    node: int
    high_watermark: int
    records: Buffer


@lazy_dataclass(slots=True)
class ReplicaDifference:
    """A difference between two replicas at an offset, as Kafka's tool describes it."""

    partition: TopicPartition
    text: str
    is_final: bool
    """The replicas have different offsets, so that nothing after them can be compared."""


@click.command("replica-verification", short_help="Compare the replicas of partitions batch by batch.")
@click.option("--broker-list", "--bootstrap-server", "brokers", required=True, metavar="HOST:PORT[,…]", help="Brokers.")
@click.option("--command-config", metavar="FILE", type=click.Path(), help="Client properties.")
@click.option("--fetch-size", type=click.IntRange(min=1), default=1 << 20, show_default=True, help="Bytes of a fetch.")
@click.option("--max-wait-ms", type=click.IntRange(min=0), default=1000, show_default=True, help="Wait of a fetch.")
@click.option("--topics-include", default=".*", show_default=True, metavar="REGEX", help="Topics to compare.")
@click.option("--time", type=int, default=-1, show_default=True, metavar="MS", help="Start: -1 latest, -2 earliest.")
@click.option(
    "--report-interval-ms", type=click.IntRange(min=1), default=30_000, show_default=True, help="Time between reports."
)
@click.option("--once", is_flag=True, help="Stop at the high watermarks; exit with 1 if replicas differ.")
@json_option
def replica_verification(
    brokers: str,
    command_config: str | None,
    fetch_size: int,
    max_wait_ms: int,
    topics_include: str,
    time: int,
    report_interval_ms: int,
    once: bool,
    as_json: bool,
) -> None:
    """Compare batches of all replicas up to the high watermark, until interrupted (kafka-replica-verification)."""
    try:
        pattern = topic_pattern(topics_include)
    except ValueError as error:
        raise click.UsageError(f"--topics-include: {error}.") from error
    with session(brokers, command_config) as client:
        topics = client.retrying(lambda: [t for t in topics_of_metadata(client, None) if pattern.fullmatch(t.name)])
        if not topics:
            raise CommandFailed(f"no topic matches {topics_include}; `ottla topics --list` shows the topics.")
        replicas = _replicas(topics)
        starts = client.retrying(lambda: list_offsets(client, dict.fromkeys(replicas, time)))
        comparison = _Comparison(client, replicas, starts, fetch_size, max_wait_ms)
        if not as_json:
            _say("verification process is started")
        findings = _run(comparison, report_interval_ms, once, as_json)
    if as_json:
        rows = [{"topic": f.partition.topic, "partition": f.partition.partition, "problem": f.text} for f in findings]
        print_json({"partitions": len(replicas), "differences": rows})
    if findings:
        raise CommandFailed(
            f"{len(findings)} differences between replicas; `ottla dump-log` shows the batches of a file."
        )


def _replicas(topics: Sequence[TopicInfo]) -> dict[TopicPartition, list[int]]:
    return {TopicPartition(topic.name, p.index): p.replicas for topic in topics for p in topic.partitions}


def _run(comparison: "_Comparison", interval_ms: int, once: bool, is_quiet: bool) -> list[ReplicaDifference]:
    """Compare until a final finding, or with `once` until all batches below the high watermark are compared."""
    findings: list[ReplicaDifference] = []
    report_at = time.monotonic() + interval_ms / 1000
    with ProgressBar("batches compared") as progress:
        while True:
            before = comparison.batches
            for finding in comparison.step():
                findings.append(finding)
                if not is_quiet:
                    _say(f"partition {finding.partition}{finding.text}")
            progress.advance(comparison.batches - before)
            ends = once and comparison.max_lag()[0] <= 0
            if not is_quiet and (ends or time.monotonic() >= report_at):
                lag, partition, offset = comparison.max_lag()
                count = len(comparison.replicas)
                _say(f"max lag is {lag} for partition {partition} at offset {offset} among {count} partitions")
                report_at = time.monotonic() + interval_ms / 1000
            if ends or any(finding.is_final for finding in findings):
                return findings


def _say(text: str) -> None:
    click.echo(f"{TimeFormat(TIME_FORMAT).format(time.time_ns() // 1_000_000)}: {text}")


class _Comparison:
    """Positions of all partitions; each step fetches from every replica and compares. `batches` counts them."""

    def __init__(
        self,
        client: Client,
        replicas: Mapping[TopicPartition, list[int]],
        starts: Mapping[TopicPartition, int],
        fetch_bytes: int,
        max_wait_ms: int,
    ) -> None:
        self.replicas = replicas
        self.batches = 0
        self._client = client
        self._positions = {partition: max(starts[partition], 0) for partition in replicas}
        self._high_watermarks = dict.fromkeys(replicas, 0)
        self._fetch_bytes = fetch_bytes
        self._max_wait_ms = max_wait_ms

    def max_lag(self) -> tuple[int, TopicPartition, int]:
        """Return the largest distance of a position from the high watermark, its partition and the position."""
        lags = {p: self._high_watermarks[p] - position for p, position in self._positions.items()}
        partition = max(lags, key=lambda each: lags[each])
        return lags[partition], partition, self._positions[partition]

    def step(self) -> Iterator[ReplicaDifference]:
        """Fetch from all replicas and yield what differs. Raises KafkaError or ClientError."""
        for partition, copies in self._client.retrying(self._fetch).items():
            self._high_watermarks[partition] = max(copy.high_watermark for copy in copies)
            position, compared, findings = compare(partition, self._positions[partition], copies)
            self._positions[partition] = position
            self.batches += compared
            yield from findings

    def _fetch(self) -> dict[TopicPartition, list[Copy]]:
        self._client.metadata([])
        by_node: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition, nodes in self.replicas.items():
            for node in nodes:
                by_node[node].append(partition)
        requests = {node: self._request(partitions) for node, partitions in by_node.items()}
        copies: defaultdict[TopicPartition, list[Copy]] = defaultdict(list)
        for node, partition, data in fetch_round(self._client, PURPOSE, requests):
            raise_for(data.error_code, f"{partition} on broker {node}")
            copies[partition].append(Copy(node, data.high_watermark, data.records or b""))
        return copies

    def _request(self, partitions: Sequence[TopicPartition]) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            session_epoch=FULL_FETCH_EPOCH,
            topics=fetch_topics(partitions, self._positions, self._fetch_bytes),
        )


def compare(
    partition: TopicPartition, position: int, copies: Sequence[Copy]
) -> tuple[int, int, list[ReplicaDifference]]:
    """Compare batches of the copies of a partition from `position`, as far as all copies have them below their HW.

    Return the next position, the number of compared batches, and the differences. Batches are compared by last offset
    and checksum, which a copy carries over from the leader. Raises CommandFailed for batches that cannot be read.
    """
    findings: list[ReplicaDifference] = []
    compared = 0
    for row in zip(*(_batches(partition, copy) for copy in copies), strict=False):
        compared += 1
        (first_node, first), *others = row
        for node, header in others:
            if header.last_offset != first.last_offset:
                text = (
                    f": replica {first_node}'s offset {first.last_offset} doesn't match replica {node}'s offset"
                    f" {header.last_offset}"
                )
                return position, compared, [*findings, ReplicaDifference(partition, text, is_final=True)]
            if header.crc != first.crc:
                text = (
                    f" has unmatched checksum at offset {header.last_offset}; replica {first_node}'s checksum"
                    f" {first.crc}; replica {node}'s checksum {header.crc}"
                )
                findings.append(ReplicaDifference(partition, text, is_final=False))
        position = first.next_offset
    return position, compared, findings


def _batches(partition: TopicPartition, copy: Copy) -> Iterator[tuple[int, BatchHeader]]:
    try:
        for _, header in iter_headers(copy.records):
            if header.last_offset >= copy.high_watermark:
                return
            yield copy.node, header
    except MalformedBatch as error:
        raise CommandFailed(f"{partition} on broker {copy.node}: {error}; `ottla dump-log` shows the file.") from error

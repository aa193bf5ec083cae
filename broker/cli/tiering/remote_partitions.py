"""Output of `ottla remote describe`: offsets, sizes and ages, per topic and partition."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import click

from broker.cli.shared.output import print_columns, width_of
from broker.cli.tiering.cluster import Cluster, PartitionLogBounds
from broker.cli.tiering.metadata_topic import METADATA_TOPIC
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import uuid_to_text
from storage.directories.checkpoints import TopicPartition
from storage.tiered.bucket.inventory import PartitionInventory
from storage.tiered.catalog.metadata_journal import KnownPartition
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, TopicIdPartition

NOT_KNOWN = "-"
HEADINGS = (
    "TOPIC",
    "PARTITION",
    "LOG-START",
    "LOCAL-START",
    "REMOTE-END",
    "LOG-END",
    "LOCAL-BYTES",
    "REMOTE-BYTES",
    "SEGMENTS",
    "OTHER-STATES",
    "OLDEST",
    "NEWEST",
)


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSummary:
    """Remote segments of a partition. Sizes and times are of finished segments, times those of records in ms."""

    partition: TopicIdPartition
    states: Counter[SegmentState]
    size_bytes: int
    oldest_ms: int | None
    newest_ms: int | None
    start_offset: int | None
    end_offset: int | None

    @classmethod
    def of(cls, partition: TopicIdPartition, segments: Iterable[RemoteSegment]) -> "RemoteSummary":
        states: Counter[SegmentState] = Counter()
        finished: list[RemoteSegment] = []
        for segment in segments:
            states[segment.state] += 1
            if segment.state is SegmentState.COPY_FINISHED:
                finished.append(segment)
        return cls(
            partition=partition,
            states=states,
            size_bytes=sum(segment.size_bytes for segment in finished),
            oldest_ms=min((segment.max_timestamp_ms for segment in finished), default=None),
            newest_ms=max((segment.max_timestamp_ms for segment in finished), default=None),
            start_offset=min((segment.start_offset for segment in finished), default=None),
            end_offset=max((segment.end_offset for segment in finished), default=None),
        )


@lazy_dataclass(frozen=True, slots=True)
class RemotePartitionRow:
    """A partition. `bounds` and `local_bytes` are the cluster's; `exists` is False if the cluster lacks it."""

    summary: RemoteSummary
    bounds: PartitionLogBounds
    local_bytes: int | None
    exists: bool

    def document(self) -> dict[str, object]:
        summary, states = self.summary, self.summary.states
        return {
            "topic": summary.partition.topic,
            "topicId": uuid_to_text(summary.partition.topic_id),
            "partition": summary.partition.partition,
            "exists": self.exists,
            "logStartOffset": self.bounds.start,
            "localLogStartOffset": self.bounds.local_start,
            "highestRemoteOffset": self.bounds.remote_end,
            "logEndOffset": self.bounds.end,
            "localBytes": self.local_bytes,
            "remoteBytes": summary.size_bytes,
            "remoteStartOffset": summary.start_offset,
            "remoteEndOffset": summary.end_offset,
            "oldestTimestampMs": summary.oldest_ms,
            "newestTimestampMs": summary.newest_ms,
            "segments": {state.name: states[state] for state in SegmentState if states[state]},
        }

    def cells(self, now_ms: int) -> tuple[object, ...]:
        summary, bounds = self.summary, self.bounds
        others = [f"{state.name}={count}" for state, count in sorted(summary.states.items()) if state != _FINISHED]
        topic = summary.partition.topic if self.exists else f"{summary.partition.topic} (gone)"
        return (
            topic,
            summary.partition.partition,
            *(_shown(each) for each in (bounds.start, bounds.local_start, bounds.remote_end, bounds.end)),
            _shown(self.local_bytes),
            summary.size_bytes,
            summary.states[_FINISHED],
            ",".join(others) or NOT_KNOWN,
            age(summary.oldest_ms, now_ms),
            age(summary.newest_ms, now_ms),
        )


_FINISHED = SegmentState.COPY_FINISHED


def rows_of_cluster(
    cluster: Cluster, known: Iterable[KnownPartition], topic: str | None, tiered_topics: Sequence[str]
) -> list[RemotePartitionRow]:
    """Return rows of partitions in the remote metadata, and of other partitions of tiered topics."""
    local = cluster.local_bytes()
    summaries = {
        each.partition: RemoteSummary.of(each.partition, each.segments.segments())
        for each in known
        if topic in (None, each.partition.topic) and len(each.segments)
    }
    for partition in _partitions(cluster, tiered_topics):
        if topic in (None, partition.topic):
            summaries.setdefault(partition, RemoteSummary.of(partition, ()))
    ordered = sorted(summaries, key=lambda each: (each.topic, each.topic_id, each.partition))
    return [_row(cluster, summaries[each], local) for each in ordered]


def _partitions(cluster: Cluster, topics: Sequence[str]) -> Iterator[TopicIdPartition]:
    for topic in topics:
        topic_id = cluster.topics.ids.get(topic)
        if topic_id is not None and topic != METADATA_TOPIC:
            for number in range(cluster.partition_count(topic)):
                yield TopicIdPartition(topic_id, topic, number)


def _row(cluster: Cluster, summary: RemoteSummary, local: dict[TopicPartition, int]) -> RemotePartitionRow:
    partition = summary.partition
    if not cluster.has(partition):
        return RemotePartitionRow(summary, PartitionLogBounds(), None, exists=False)
    name = TopicPartition(partition.topic, partition.partition)
    return RemotePartitionRow(
        summary, cluster.bounds(partition.topic)[partition.partition], local.get(name), exists=True
    )


def row_of_bucket(inventory: PartitionInventory) -> RemotePartitionRow:
    """Return the row of a partition in the bucket, with the remote log start offset and highest remote offset."""
    summary = RemoteSummary.of(inventory.partition, inventory.segments)
    bounds = PartitionLogBounds(start=inventory.log_start_offset, remote_end=inventory.next_offset - 1)
    return RemotePartitionRow(summary, bounds, None, exists=True)


def print_rows(rows: Sequence[RemotePartitionRow], now_ms: int) -> None:
    cells = [tuple(str(cell) for cell in row.cells(now_ms)) for row in rows]
    widths = [width_of((row[column] for row in cells), len(HEADINGS[column])) for column in range(len(HEADINGS))]
    formats = [f"{{:<{width}}}" if column in (0, 9) else f"{{:>{width}}}" for column, width in enumerate(widths)]
    print_columns(HEADINGS, cells, formats)
    remote = sum(row.summary.size_bytes for row in rows)
    local = sum(row.local_bytes or 0 for row in rows)
    count = sum(row.summary.states[_FINISHED] for row in rows)
    click.echo(f"{len(rows)} partitions, {count} remote segments, {remote} bytes remote, {local} bytes local")


def _shown(value: int | None) -> str:
    return NOT_KNOWN if value is None else str(value)


def age(timestamp_ms: int | None, now_ms: int) -> str:
    """Return the time since `timestamp_ms` in its two largest units: 3d4h, 5m2s."""
    if timestamp_ms is None:
        return NOT_KNOWN
    seconds = max(now_ms - timestamp_ms, 0) // 1000
    parts: list[str] = []
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, unit)
        if count or parts or unit == 1:
            parts.append(f"{count}{name}")
    return "".join(parts[:2])

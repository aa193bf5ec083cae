"""The start of a node with a million remote segments: from the metadata topic alone, and with snapshots of it.

The logs of the topic and of the tiered partitions (empty, after their remote records) are written with the product's
code while the node is down; no objects exist. Then the node starts twice: it reads the topic and stops, and starts
again with the snapshots on its disk.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.builder import build_value_batch
from storage.config import LogConfig
from storage.directories.checkpoints import (
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    LeaderEpochEntry,
    TopicPartition,
    read_topic_id,
    write_offsets,
)
from storage.directories.formatting import random_id
from storage.files import OsFileSystem
from storage.log import Log
from storage.producer_state import ProducerState
from storage.remote_log_start import RemoteLogStart
from storage.tiered.catalog.metadata_partitioner import metadata_partition
from storage.tiered.catalog.metadata_records import encode_event
from storage.tiered.catalog.metadata_snapshot import DIRECTORY as SNAPSHOTS
from storage.tiered.segment_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tests.benchmarks.sides import Side
from tests.benchmarks.tiered.cluster import FAST, LATEST_TIERED, offsets, tiered
from tests.benchmarks.wire import first_acknowledged_produce
from tests.benchmarks.workloads import LOWER
from tests.support.processes.ottla_node import OttlaNode

TOPIC: Final = "remembered"
METADATA_TOPIC: Final = "__remote_log_metadata"
PARTITIONS: Final = 200
METADATA_PARTITIONS: Final = 50
SEGMENT_RECORDS: Final = 1000
BATCH_EVENTS: Final = 10
"""Records per batch in a busy cluster, where leaders publish several events at once."""
PATIENCE_S: Final = 600.0
POLL_S: Final = 0.1

Row = tuple[str, float | None, float | None, str, str]


def names(segments: int) -> list[str]:
    """Return the names of all rows of `measure`."""
    return [
        f"start with {segments:,} remote segments, {what}"
        for life in ("topic alone", "snapshots")
        for what in (f"{life}: first acknowledged produce", f"{life}: all known", f"{life}: anonymous memory")
    ]


def measure(directory: Path, segments: int, only: str) -> list[Row]:
    """Measure all rows if one of them has `only` in its name."""
    wanted = names(segments)
    if not any(only in name for name in wanted):
        return []
    known = KnownSegments(directory, segments)
    known.make()
    figures = [*known.started(), *known.started()]
    rows: list[Row] = []
    for name, figure, unit in zip(wanted, figures, ("s", "s", "MB") * 2, strict=True):
        rows.append((name, figure, None, unit, LOWER))
        print(f"{name}: {figure:.1f} {unit}", flush=True)
    return rows


def _create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its calls end when it is deleted
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=tiered(1024 * 1024))])[TOPIC].result(30)


class KnownSegments:
    """One node across its restarts."""

    def __init__(self, directory: Path, segments: int) -> None:
        self._each = segments // PARTITIONS
        self._now_ms = int(time.time() * 1000)
        self._fs = OsFileSystem()
        settings = {
            **FAST,
            "remote.log.storage.manager.class.name": "local",
            "rsm.config.storage.root": str(directory / "remote"),
            "rlmm.config.remote.log.metadata.topic.num.partitions": str(METADATA_PARTITIONS),
            # One scan only: the start is measured.
            "remote.log.manager.task.interval.ms": "60000",
        }
        (directory / "remote").mkdir(parents=True)
        self._node = OttlaNode(directory / "node", settings)

    # ---- generation

    def make(self) -> None:
        """Create topics with the node, and write their logs directly."""
        with self._node as node:
            _create_topic(node.bootstrap)
            self._await_hosted()
        shutil.rmtree(self._node.data / SNAPSHOTS, ignore_errors=True)
        topic_id = read_topic_id(self._fs, str(self._node.data / f"{TOPIC}-0"))
        assert topic_id is not None
        partitions = [TopicIdPartition(topic_id, TOPIC, number) for number in range(PARTITIONS)]
        for partition in partitions:
            self._begin_behind_the_tier(partition)
        ends_by_number = {number: self._write_events(number, partitions) for number in range(METADATA_PARTITIONS)}
        end = self._each * SEGMENT_RECORDS
        ends = {TopicPartition(TOPIC, number): end for number in range(PARTITIONS)}
        ends |= {TopicPartition(METADATA_TOPIC, number): next_offset for number, next_offset in ends_by_number.items()}
        write_offsets(self._fs, str(self._node.data / RECOVERY_POINT_FILE), ends)
        starts = {TopicPartition(TOPIC, number): 0 for number in range(PARTITIONS)}
        write_offsets(self._fs, str(self._node.data / LOG_START_OFFSET_FILE), starts)

    def _await_hosted(self) -> None:
        """Wait until the node has a log for every partition."""
        wanted = {f"{TOPIC}-{number}" for number in range(PARTITIONS)}
        wanted |= {f"{METADATA_TOPIC}-{number}" for number in range(METADATA_PARTITIONS)}
        deadline = time.monotonic() + PATIENCE_S
        while not all((self._node.data / name / "partition.metadata").exists() for name in wanted):
            assert time.monotonic() < deadline, "the node does not host its partitions"
            time.sleep(POLL_S)

    def _open(self, topic: str, number: int) -> Log:
        directory = str(self._node.data / f"{topic}-{number}")
        return Log.open(self._fs, directory, LogConfig(), now_ms=self._now_ms, clean_shutdown=True)

    def _begin_behind_the_tier(self, partition: TopicIdPartition) -> None:
        log, producers = self._open(TOPIC, partition.partition), ProducerState()
        producers.end_offset = end = self._each * SEGMENT_RECORDS
        start = RemoteLogStart(
            next_offset=end, log_start_offset=0, epochs=(LeaderEpochEntry(LeaderEpoch(0), 0),), producers=producers
        )
        log.start_behind_remote_log(start, now_ms=self._now_ms, checkpoint=lambda log: None)
        log.close()

    def _write_events(self, number: int, partitions: Sequence[TopicIdPartition]) -> int:
        """Write one partition of the metadata topic; return its end offset."""
        log = self._open(METADATA_TOPIC, number)
        own = [one for one in partitions if metadata_partition(one, METADATA_PARTITIONS) == number]
        events = self._events(own)
        while values := list(islice(events, BATCH_EVENTS)):
            batch = build_value_batch(values, self._now_ms, base_offset=0, leader_epoch=LeaderEpoch(0))
            log.append_as_leader(batch, LeaderEpoch(0), now_ms=self._now_ms)
        log.close()
        return log.log_end_offset

    def _events(self, partitions: Sequence[TopicIdPartition]) -> Iterator[bytes]:
        for index in range(self._each):
            for partition in partitions:
                segment = self._segment(RemoteSegmentId(partition, Uuid(random_id())), index * SEGMENT_RECORDS)
                yield encode_event(segment)
                yield encode_event(SegmentUpdate(segment.id, SegmentState.COPY_FINISHED, self._now_ms, BrokerId(1)))

    def _segment(self, segment_id: RemoteSegmentId, start: int) -> RemoteSegment:
        return RemoteSegment(
            id=segment_id,
            start_offset=start,
            end_offset=start + SEGMENT_RECORDS - 1,
            max_timestamp_ms=self._now_ms,
            broker_id=BrokerId(1),
            event_timestamp_ms=self._now_ms,
            size_bytes=SEGMENT_RECORDS * 1000,
            leader_epochs=(SegmentEpoch(LeaderEpoch(0), start),),
            txn_index_empty=True,
        )

    # ---- starts

    def started(self) -> tuple[float, float, float]:
        """Start the node; return the seconds until a produce is acknowledged and until all metadata is loaded, and MB
        then.
        """
        self._node.start_unready()
        side = Side("ottla", self._node.bootstrap, psutil.Process(self._node.pid))
        try:
            first_acknowledged_produce(side.bootstrap)
            served_s = side.age_s()
            self._await_known(self._each * SEGMENT_RECORDS - 1)
            return served_s, side.age_s(), side.rss_anon_mb()
        finally:
            self._node.terminate(PATIENCE_S)

    def _await_known(self, last_offset: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            known = offsets(self._node.bootstrap, TOPIC, LATEST_TIERED)
            if len(known) == PARTITIONS and set(known.values()) == {last_offset}:
                return
            assert time.monotonic() < deadline, f"of {PARTITIONS} partitions, {len(known)} are loaded"
            time.sleep(POLL_S)

"""Rewrites of the metadata topic, batch by batch (`broker.runtime.remote_metadata.pruning`)."""

from dataclasses import dataclass, field

from broker.runtime.remote_metadata.pruning import LedMetadataLog, RemoteMetadataPruning
from broker.runtime.remote_metadata.settings import parse_remote_metadata_settings
from broker.runtime.remote_metadata.tail import RemoteMetadataPartition
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_records import decode_event
from storage.tiered.segment_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

PARTITION = TopicIdPartition(Uuid(b"t" * 16), "t", 0)
SEGMENTS = 1_000
EVENTS = 4 * SEGMENTS


@dataclass
class Log:
    """A led partition of the metadata topic that keeps the appended values only."""

    leader_epoch: int = 0
    start_offset: int = 0
    end_offset: int = EVENTS
    max_batch_bytes: int = 1_000_000
    batches: list[list[bytes]] = field(default_factory=list)

    def append(self, values: list[bytes]) -> None:
        self.batches.append(values)
        self.end_offset += len(values)

    def delete_records(self, offset: int) -> None:
        self.start_offset = offset


class Logs:
    def __init__(self, log: Log) -> None:
        self._log = log

    def led(self) -> list[int]:
        return [0]

    def log(self, partition: int) -> LedMetadataLog:
        return self._log


def segment(number: int) -> RemoteSegment:
    return RemoteSegment(
        id=RemoteSegmentId(PARTITION, Uuid(number.to_bytes(16, "big"))),
        start_offset=number,
        end_offset=number,
        max_timestamp_ms=1,
        broker_id=BrokerId(1),
        event_timestamp_ms=1,
        size_bytes=1,
        leader_epochs=(SegmentEpoch(LeaderEpoch(0), number),),
    )


def test_rewrite_includes_every_segment_among_empty_rows() -> None:
    tail = RemoteMetadataPartition(0)
    tail.begin(MaterializedMetadata(), EVENTS, LeaderEpoch(0))
    for number in range(SEGMENTS):
        tail.metadata.apply(segment(number))
        tail.metadata.apply(SegmentUpdate(segment(number).id, SegmentState.COPY_FINISHED, 2, BrokerId(1)))
    for number in (*range(400), *range(450, 950)):
        for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
            tail.metadata.apply(SegmentUpdate(segment(number).id, state, 2, BrokerId(1)))
    log = Log()
    settings = parse_remote_metadata_settings({"ottla.prune.min.records": "1"})
    pruning = RemoteMetadataPruning(Logs(log), settings, lambda _: tail, lambda number, wanted: None)
    pruning.check()
    while log.start_offset == 0:
        tail.next_offset = log.end_offset
        pruning.on_progress(tail)
    assert log.start_offset == EVENTS
    repeated = MaterializedMetadata()
    for value in (value for batch in log.batches for value in batch):
        repeated.apply(decode_event(value))
    assert repeated.cache(PARTITION).segments() == tail.metadata.cache(PARTITION).segments()
    assert repeated.segment_count == 100

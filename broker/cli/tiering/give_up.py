"""Giving up of remote segments whose records are lost, for `ottla remote give-up`.

A segment is given up by DELETE_STARTED, as if it had expired. The leader ends the deletion; readers skip the hole. If
the records are still in the leader's local log, the leader copies them again.

A mark makes the hole known to brokers that start later: an entry of the same offsets without objects, which stays in
DELETE_STARTED until the log starts above it (`RemoteSegment.is_given_up_mark`). Brokers of Apache Kafka read it as a
deletion in progress.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from broker.cli.shared.failure import CommandFailed
from broker.cli.tiering.bucket import RemoteBucket
from protocol.primitives import Uuid, uuid_to_text
from storage.directories.formatting import random_id
from storage.tiered.bucket.audit import PartitionReport
from storage.tiered.bucket.reconcile import AuditedSegment, Finding
from storage.tiered.bucket.segment_check import SegmentCheck
from storage.tiered.catalog.metadata_journal import Event, KnownPartition, MetadataJournal
from storage.tiered.segment_metadata import (
    NO_TIMESTAMP,
    TOOL_BROKER_ID,
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)


class LostSegment(NamedTuple):
    """A finished segment that cannot be read, and why."""

    segment: RemoteSegment
    fault: str

    def line(self) -> str:
        segment = self.segment
        identity = uuid_to_text(segment.id.id)
        return f"{segment.id.partition}: offsets {segment.start_offset}-{segment.end_offset}, {identity}: {self.fault}"

    def document(self) -> dict[str, object]:
        segment = self.segment
        return {
            "topic": segment.id.partition.topic,
            "partition": segment.id.partition.partition,
            "segmentId": uuid_to_text(segment.id.id),
            "startOffset": segment.start_offset,
            "endOffset": segment.end_offset,
            "fault": self.fault,
        }


def lost_segments(bucket: RemoteBucket, report: PartitionReport, wanted: Collection[Uuid]) -> list[LostSegment]:
    """Return the lost segments of a partition: all with missing objects, or the `wanted` ones, which are read whole.

    Raises CommandFailed if a wanted segment is unknown or intact.
    """
    found = list(_lost(bucket, report, wanted))
    missing = set(wanted) - {lost.segment.id.id for lost in found}
    if missing:
        names = ", ".join(sorted(map(uuid_to_text, missing)))
        raise CommandFailed(f"{report.partition}: no finished segment {names} is lost or damaged; none was given up.")
    return found


def _lost(bucket: RemoteBucket, report: PartitionReport, wanted: Collection[Uuid]) -> Iterator[LostSegment]:
    check = SegmentCheck(bucket.reader, bucket.storage)
    for verdict in report.of(Finding.DANGLING, Finding.LIVE):
        if verdict.segment is None or (wanted and verdict.segment.id.id not in wanted):
            continue
        if verdict.finding is Finding.DANGLING or wanted:
            fault = fault_of(check, verdict, verdict.segment)
            if fault is not None:
                yield LostSegment(verdict.segment, fault)


def fault_of(check: SegmentCheck, verdict: AuditedSegment, segment: RemoteSegment) -> str | None:
    """Return why a finished segment cannot be read; None for an intact one. Reads objects unless some are missing."""
    if verdict.finding is Finding.DANGLING:
        return f"missing {', '.join(suffix.value for suffix in verdict.missing)}"
    faults = [] if verdict.objects is None else check.faults(segment, verdict.objects)
    return faults[0] if faults else None


class GivenUpOffsets(NamedTuple):
    """Offsets of one partition, both bounds included, with their leader epochs."""

    partition: TopicIdPartition
    first: int
    last: int
    leader_epochs: tuple[SegmentEpoch, ...]


def give_up(journal: MetadataJournal, lost: Collection[LostSegment], now_ms: Callable[[], int]) -> list[LostSegment]:
    """Mark the offsets and publish DELETE_STARTED of segments that are still finished; return them."""
    given_up: list[LostSegment] = []
    for each in lost:
        partition, segment = each.segment.id.partition, each.segment
        known = journal.catch_up(partition)
        now = known.segments.get(segment.id.id)
        if now is not None and now.state is SegmentState.COPY_FINISHED:
            offsets = GivenUpOffsets(partition, segment.start_offset, segment.end_offset, segment.leader_epochs)
            update = SegmentUpdate(segment.id, SegmentState.DELETE_STARTED, now_ms(), TOOL_BROKER_ID)
            journal.publish(partition, [*_marking(known, offsets, now_ms()), update])
            given_up.append(each)
    return given_up


def mark(journal: MetadataJournal, offsets: GivenUpOffsets, now_ms: int) -> None:
    """Publish a mark, unless the partition has the same one."""
    if events := _marking(journal.catch_up(offsets.partition), offsets, now_ms):
        journal.publish(offsets.partition, events)


def _marking(known: KnownPartition, offsets: GivenUpOffsets, now_ms: int) -> Sequence[Event]:
    """Return the events of a mark."""
    partition, first, last, leader_epochs = offsets
    marks = (each for each in known.segments.unfinished() if each.is_given_up_mark)
    if any((each.start_offset, each.end_offset, each.leader_epochs) == (first, last, leader_epochs) for each in marks):
        return ()
    segment = RemoteSegment(
        id=RemoteSegmentId(partition, random_id()),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=NO_TIMESTAMP,
        broker_id=TOOL_BROKER_ID,
        event_timestamp_ms=now_ms,
        size_bytes=0,
        leader_epochs=leader_epochs,
        txn_index_empty=True,
    )
    return segment, SegmentUpdate(segment.id, SegmentState.DELETE_STARTED, now_ms, TOOL_BROKER_ID)

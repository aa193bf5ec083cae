"""Giving up of remote segments whose records are lost, for `ottla remote give-up`.

A segment is given up by DELETE_STARTED, as if it had expired. The leader ends the deletion; readers skip the hole. If
the records are still in the leader's local log, the leader copies them again.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from broker.cli.shared.failure import CommandFailed
from broker.cli.tiering.bucket import RemoteBucket
from protocol.primitives import Uuid, uuid_to_text
from storage.tiered.bucket.audit import PartitionReport
from storage.tiered.bucket.reconcile import Finding
from storage.tiered.bucket.segment_check import SegmentCheck
from storage.tiered.catalog.metadata_journal import MetadataJournal
from storage.tiered.segment_metadata import TOOL_BROKER_ID, RemoteSegment, SegmentState, SegmentUpdate


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
        if verdict.finding is Finding.DANGLING:
            yield LostSegment(verdict.segment, f"missing {', '.join(suffix.value for suffix in verdict.missing)}")
        elif wanted and verdict.objects is not None:
            for fault in check.faults(verdict.segment, verdict.objects)[:1]:
                yield LostSegment(verdict.segment, fault)


def give_up(journal: MetadataJournal, lost: Collection[LostSegment], now_ms: Callable[[], int]) -> list[LostSegment]:
    """Publish DELETE_STARTED of segments that are still finished; return them."""
    given_up: list[LostSegment] = []
    for each in lost:
        partition = each.segment.id.partition
        now = journal.catch_up(partition).segments.get(each.segment.id.id)
        if now is not None and now.state is SegmentState.COPY_FINISHED:
            update = SegmentUpdate(each.segment.id, SegmentState.DELETE_STARTED, now_ms(), TOOL_BROKER_ID)
            journal.publish(partition, [update])
            given_up.append(each)
    return given_up

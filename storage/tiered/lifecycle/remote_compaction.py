"""Compaction of the remote part of a log: what is compacted, and why no record is lost.

Kafka refuses compacted topics in remote storage; KIP-1272 discusses them. Here a leader copies closed segments as they
are, and compacts remote segments in passes like those of the local cleaner: map the newest offset of each key in the
dirty part, as far as memory allows, then rewrite everything up to there, from the log start on.

    rewrite    a group of adjacent segments [a..b] is read, superseded records are dropped, and one new segment for the
               same offsets is made on the local disk; it records how far it was compacted (`compacted_to`)
    publish    COPY_STARTED -> the upload -> COPY_FINISHED: from here on look-ups find it instead of the old ones
    replace    DELETE_STARTED -> the objects -> DELETE_FINISHED, for each of the old ones

There is no other state. The clean part follows from `compacted_to` of the segments (`compaction_survey.py`), so any
leader resumes where another stopped, and the bucket alone is sufficient. Why this is sound:

1. *The last record of a key stays.* A record is dropped only if the map has a later one of its key, and the map
contains only records of finished remote segments. A superseding record is only removed because of one that is later
still. So it does not matter which of several segments serves an offset, old or new, nor what the local disk holds: a
reader finds the last record of every key, and some of the others, in order and at their offsets. And the bucket is
consistent without the disks; for that the local cleaner stays below the copied offset, too
(`storage.compaction.cleaner`). 2. *Deleted records do not come back.* A tombstone may be dropped only when no older
record of its key is readable anywhere. Local cleaners of tiered logs never drop one, and the local disk holds a suffix
of the log. A pass drops those with an expired delete horizon, which an earlier pass set; by then all segments below had
been compacted against them, since segments are published in offset order. The horizon starts when a tombstone has left
the leader's disk, where older records are readable until then, for readers that then continue remotely. (A replica
whose retention lags behind the leader's by delete.retention.ms could still return an older record to a reader that
continues elsewhere.) From then on older records could come back only from segments that were read before. A plain copy
never hides a compacted segment (`metadata_cache.py`); a compacted segment of a leader that was deposed meanwhile must
be published within `LEASE_MS` of its reading, or not at all; and while the copy of any segment that reaches below is in
progress, tombstones stay. 3. *Aborted transactions.* Their data are dropped, and their keys are not mapped. Aborted
transactions are known from the indexes of the compacted segments, and from the local ones for markers that are not
remote yet. The marker and its index entry stay in the pass that drops the data, so that a concurrent reader still
learns of the abort. 4. *Crashes.* Before COPY_FINISHED nothing has changed for readers: the started copy is collected
like any other. After it, the old segments are outside of the layout (`segment_spans.py`), and expiration collects them
if the leader did not. A segment is deleted only while a finished one holds all its offsets. Two concurrent leaders only
repeat work.

An unclean election loses superseded records with the records that superseded them: the log of a leader elected out of
sync may end within the compacted part. The same is true of local disks (Kafka's cleaner does not wait for out-of-sync
replicas).

Segments keep their ranges while any of their offsets is on the leader's disk: a follower that starts at the end of one
finds the producer state of that offset. Only segments completely below are merged, up to segment.bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from protocol.ids import BrokerId
from storage.config import LogConfig
from storage.segment import MAX_RELATIVE_OFFSET
from storage.tiered.catalog.lineage import Lineage, epochs_of
from storage.tiered.catalog.segment_spans import SegmentSpan
from storage.tiered.lifecycle.compaction_survey import CollectedSpans, CompactionSurvey, figures_of
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentState

LEASE_MS: Final = 20 * 60_000
"""Maximum time between reading the segments and publishing the rewritten one: below the grace time after which a copy
counts as abandoned, and below any sensible delete.retention.ms."""
MAX_SPANS_PER_GROUP: Final = 500
"""Each span is checked on the loop before and after, in some milliseconds. Later passes merge more, if they are small.
"""


class CompactionPlan(NamedTuple):
    """Plan of a pass: the first `taken` spans hold everything from the log start to below `end` without holes; keys are
    mapped from `first_dirty` on, unless both are equal. The other spans are the rest of the remote log.
    """

    spans: CollectedSpans
    taken: int
    first_dirty: int
    end: int


class SegmentGroup(NamedTuple):
    """Adjacent spans that become one segment. `replaced` are the segments that are obsolete afterwards: those whose end
    is in the group, so that no later span serves them.
    """

    spans: tuple[SegmentSpan, ...]
    replaced: tuple[RemoteSegment, ...]

    @property
    def start_offset(self) -> int:
        return self.spans[0].first

    @property
    def end_offset(self) -> int:
        return self.spans[-1].last

    @property
    def size_bytes(self) -> int:
        return sum(span.segment.size_bytes for span in self.spans)


def plan(spans: CollectedSpans, config: LogConfig, now_ms: int) -> CompactionPlan:
    """Plan a pass over the spans of a layout. Takes time in proportion to their number."""
    survey = CompactionSurvey(config, now_ms)
    for span in spans:
        if not survey.add(figures_of(span)):
            break
    return CompactionPlan(spans, survey.count, survey.first_dirty, survey.end)


def group_segments(spans: Iterable[SegmentSpan], config: LogConfig, local_start_offset: int) -> Iterator[SegmentGroup]:
    """Yield groups that become one segment each: small spans below the leader's disk are merged."""
    group: list[SegmentSpan] = []
    size_bytes = 0
    for span in spans:
        size_bytes += span.segment.size_bytes
        is_one_of_them = (
            span.last < local_start_offset
            and size_bytes <= config.segment_bytes
            and len(group) < MAX_SPANS_PER_GROUP
            and (not group or span.last - group[0].first <= MAX_RELATIVE_OFFSET)
        )
        if group and not is_one_of_them:
            yield _group_of(group)
            group, size_bytes = [], span.segment.size_bytes
        group.append(span)
    if group:
        yield _group_of(group)


def _group_of(spans: Sequence[SegmentSpan]) -> SegmentGroup:
    return SegmentGroup(tuple(spans), tuple(span.segment for span in spans if span.last == span.segment.end_offset))


def describe_group(
    group: SegmentGroup,
    lineage: Lineage,
    segment_id: RemoteSegmentId,
    *,
    compacted_to: int,
    size_bytes: int,
    max_timestamp_ms: int,
    txn_index_empty: bool,
    broker_id: BrokerId,
    now_ms: int,
) -> RemoteSegment:
    """Return the metadata of the new segment. `max_timestamp_ms` is -1 if it has no timestamp left."""
    newest_ms = max(span.segment.max_timestamp_ms for span in group.spans)
    return RemoteSegment(
        id=segment_id,
        start_offset=group.start_offset,
        end_offset=group.end_offset,
        max_timestamp_ms=max_timestamp_ms if max_timestamp_ms >= 0 else newest_ms,
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        size_bytes=size_bytes,
        leader_epochs=epochs_of(lineage.entries, group.start_offset, group.end_offset),
        txn_index_empty=txn_index_empty,
        compacted_to=compacted_to,
    )


def is_current(group: SegmentGroup, lineage: Lineage, metadata: RemoteLogMetadataManager) -> bool:
    """Whether no other leader has compacted a part of the group meanwhile. Raises RemoteMetadataNotReady."""
    for span in group.spans:
        first = max(span.first, lineage.start_offset or 0)
        epoch = lineage.epoch_for(first)
        found = None if epoch is None else metadata.segment_for(span.segment.id.partition, epoch, first)
        if found is None or (found.compacted_to or 0) > (span.segment.compacted_to or 0):
            return False
    return True


def final_below(segments: Sequence[RemoteSegment], group: SegmentGroup, local_start_offset: int) -> int:
    """Return the offset below which a group may drop tombstones: the leader's disk has older records, and so may a
    running copy; the copy of the group itself has not started yet.
    """
    is_copied = any(one.state is SegmentState.COPY_STARTED and one.start_offset <= group.end_offset for one in segments)
    return 0 if is_copied else local_start_offset

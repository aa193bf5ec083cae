"""Compaction of the remote part of a log: what is to be compacted, and why nothing is lost by it.

Kafka refuses compacted topics in remote storage; KIP-1272 discusses them. Here a leader copies closed segments as they
are, and compacts what is remote now and then, in passes as the local cleaner makes them: map the newest offset of each
key over the dirty part, as far as memory goes, then rewrite everything up to there, from the log's beginning on.

    rewrite    a group of adjacent segments [a..b] is read, what is superseded is dropped, and one new segment for the
               same offsets is made on the local disk; it tells how far it was compacted (`compacted_to`)
    publish    COPY_STARTED -> the upload -> COPY_FINISHED: from here on look-ups find it instead of the old ones
    replace    DELETE_STARTED -> the objects -> DELETE_FINISHED, for each of the old ones

There is no other state. What is clean follows from `compacted_to` of the segments (`compaction_survey.py`), so any
leader goes on where another stopped, and a bucket alone tells. Why that is sound:

1. *The last record of a key stays.* A record goes only where the map has a later one of its key, and the map knows only
   records of finished remote segments. Whoever takes a superseding record away has another one that is later still. So
   it does not matter which of several segments serves an offset, old or new, nor what this disk has: a reader meets the
   last record of every key, and of all others some, in their order and at their offsets. And the bucket makes sense
   without the disks; for that the local cleaner stays below what is copied, too (`storage.compaction.cleaner`).
2. *Nothing comes back.* A tombstone may go only when no older record of its key can be read any more, anywhere. Local
   cleaners of tiered logs never take one away, and what is on a disk is a suffix of the log. A pass takes away those
   whose delete horizon is over, which an earlier pass wrote; by then all segments below had been compacted against
   them, since segments are published in the order of their offsets. The time begins when a tombstone has left the
   leader's disk, where older records may be read until then, and go on remotely once it is gone. (A replica whose
   retention lags behind the leader's by delete.retention.ms could still show one to who then reads on elsewhere.) From
   then on older records could come back only out
   of segments that were read before. One as it was copied never hides a compacted one (`metadata_cache.py`); a
   compacted one by a leader that was deposed meanwhile must be published within `LEASE_MS` of its reading, or not at
   all; and while the copy of any segment is under way that reaches below, tombstones stay.
3. *Aborted transactions.* Their data goes, and their keys are not mapped. What was aborted is told by the indexes of
   the segments that are compacted, and by the local ones for markers that are not remote yet. The marker and its index
   entry stay with the pass that drops the data, so that a reader in the middle still learns of it.
4. *Crashes.* Before COPY_FINISHED nothing has changed for anybody: what was begun is collected as any copy is. After
   it, the old segments are outside of the chain (`segment_spans.py`) and expiration collects them if nobody else did.
   Whoever deletes a segment has a finished one that holds all its offsets. Two leaders at once only do work twice.

What an unclean election loses is lost with what it superseded: a leader elected out of sync may have a log that ends
within what was compacted. That is so on local disks, too (Kafka's cleaner does not wait for out-of-sync replicas).

Segments keep their ranges while any of their offsets is on the leader's disk: a follower that begins at the end of one
finds the producers of that moment. Only what lies wholly below is merged, up to segment.bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from storage.config import LogConfig
from storage.segment import MAX_RELATIVE_OFFSET
from storage.tiered.catalog.lineage import Lineage, epochs_of
from storage.tiered.catalog.segment_spans import SegmentSpan
from storage.tiered.lifecycle.compaction_survey import CollectedSpans, CompactionSurvey, figures_of
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentState

LEASE_MS: Final = 20 * 60_000
"""So long after it began to read its segments, a rewritten one may be published: below the grace time after which a
copy counts as abandoned, and below any sensible delete.retention.ms."""
MAX_SPANS_PER_GROUP: Final = 500
"""Each is looked at on the loop before and after; some milliseconds. Later passes join more, if they are that small."""


class CompactionPlan(NamedTuple):
    """The first `taken` of `spans` hold everything from the log's start to below `end`, without holes; keys are to be
    mapped from `first_dirty` on, if that is not the same. The other spans are what else is remote.
    """

    spans: CollectedSpans
    taken: int
    first_dirty: int
    end: int


class SegmentGroup(NamedTuple):
    """Adjacent spans that become one segment. `replaced` are the segments that nobody needs then: of which they have
    the end, so that no later span can have more."""

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
    """What a pass over the spans of a chain does. Takes time in proportion to their number."""
    survey = CompactionSurvey(config, now_ms)
    for span in spans:
        if not survey.add(figures_of(span)):
            break
    return CompactionPlan(spans, survey.count, survey.first_dirty, survey.end)


def group_segments(spans: Iterable[SegmentSpan], config: LogConfig, local_start_offset: int) -> Iterator[SegmentGroup]:
    """What becomes one segment each: spans below the leader's disk that fit together, every other one alone."""
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
    broker_id: int,
    now_ms: int,
) -> RemoteSegment:
    """What is said of the new segment. `max_timestamp_ms` is -1 where nothing of a time is left in it."""
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
    """Whether no other leader has compacted any of it meanwhile. Raises RemoteMetadataNotReady."""
    for span in group.spans:
        first = max(span.first, lineage.start_offset or 0)
        epoch = lineage.epoch_for(first)
        found = None if epoch is None else metadata.segment_for(span.segment.id.partition, epoch, first)
        if found is None or (found.compacted_to or 0) > (span.segment.compacted_to or 0):
            return False
    return True


def final_below(segments: Sequence[RemoteSegment], group: SegmentGroup, local_start_offset: int) -> int:
    """The offset below which a group may drop tombstones: what is on the leader's disk has older records, and so may a
    copy that is under way; `group` itself is not begun yet.
    """
    is_copied = any(one.state is SegmentState.COPY_STARTED and one.start_offset <= group.end_offset for one in segments)
    return 0 if is_copied else local_start_offset

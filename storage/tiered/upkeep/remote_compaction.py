"""Compaction of the remote part of a log: what is to be compacted, and why nothing is lost by it.

Kafka refuses compacted topics in remote storage; KIP-1272 discusses them. Here a leader copies closed segments as they
are, and compacts what is remote now and then, in passes as the local cleaner makes them: map the newest offset of each
key over the dirty part, as far as memory goes, then rewrite everything up to there, from the log's beginning on.

    rewrite    a run of adjacent segments [a..b] is read, what is superseded is dropped, and one new segment for the
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
   it, the old segments are outside of the chain (`segment_chain.py`) and expiration collects them if nobody else did.
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
from storage.tiered.catalog.segment_chain import Link
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentState
from storage.tiered.upkeep.compaction_survey import CompactionSurvey, GatheredLinks, figures_of

LEASE_MS: Final = 20 * 60_000
"""So long after it began to read its segments, a rewritten one may be published: below the grace time after which a
copy counts as abandoned, and below any sensible delete.retention.ms."""
LINKS_A_RUN: Final = 500
"""Each is looked at on the loop before and after; some milliseconds. Later passes join more, if they are that small."""


class Plan(NamedTuple):
    """The first `taken` of `links` hold everything from the log's start to below `end`, without holes; keys are to be
    mapped from `first_dirty` on, if that is not the same. The other links are what else is remote.
    """

    links: GatheredLinks
    taken: int
    first_dirty: int
    end: int


class Run(NamedTuple):
    """Adjacent links that become one segment. `replaced` are the segments that nobody needs then: of which they have
    the end, so that no later link can have more."""

    links: tuple[Link, ...]
    replaced: tuple[RemoteSegment, ...]

    @property
    def start_offset(self) -> int:
        return self.links[0].first

    @property
    def end_offset(self) -> int:
        return self.links[-1].last

    @property
    def size_bytes(self) -> int:
        return sum(link.segment.size_bytes for link in self.links)


def plan(links: GatheredLinks, config: LogConfig, now_ms: int) -> Plan:
    """What a pass over the links of a chain does. Takes time in proportion to their number."""
    survey = CompactionSurvey(config, now_ms)
    for link in links:
        if not survey.add(figures_of(link)):
            break
    return Plan(links, survey.count, survey.first_dirty, survey.end)


def runs_of(links: Iterable[Link], config: LogConfig, local_start_offset: int) -> Iterator[Run]:
    """What becomes one segment each: links below the leader's disk that fit together, every other one alone."""
    group: list[Link] = []
    size_bytes = 0
    for link in links:
        size_bytes += link.segment.size_bytes
        is_one_of_them = (
            link.last < local_start_offset
            and size_bytes <= config.segment_bytes
            and len(group) < LINKS_A_RUN
            and (not group or link.last - group[0].first <= MAX_RELATIVE_OFFSET)
        )
        if group and not is_one_of_them:
            yield _run_of(group)
            group, size_bytes = [], link.segment.size_bytes
        group.append(link)
    if group:
        yield _run_of(group)


def _run_of(links: Sequence[Link]) -> Run:
    return Run(tuple(links), tuple(link.segment for link in links if link.last == link.segment.end_offset))


def describe_run(
    run: Run,
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
    newest_ms = max(link.segment.max_timestamp_ms for link in run.links)
    return RemoteSegment(
        id=segment_id,
        start_offset=run.start_offset,
        end_offset=run.end_offset,
        max_timestamp_ms=max_timestamp_ms if max_timestamp_ms >= 0 else newest_ms,
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        size_bytes=size_bytes,
        leader_epochs=epochs_of(lineage.entries, run.start_offset, run.end_offset),
        txn_index_empty=txn_index_empty,
        compacted_to=compacted_to,
    )


def is_current(run: Run, lineage: Lineage, metadata: RemoteLogMetadataManager) -> bool:
    """Whether no other leader has compacted any of it meanwhile. Raises RemoteMetadataNotReady."""
    for link in run.links:
        first = max(link.first, lineage.start_offset or 0)
        epoch = lineage.epoch_for(first)
        found = None if epoch is None else metadata.segment_for(link.segment.id.partition, epoch, first)
        if found is None or (found.compacted_to or 0) > (link.segment.compacted_to or 0):
            return False
    return True


def final_below(segments: Sequence[RemoteSegment], run: Run, local_start_offset: int) -> int:
    """The offset below which a run may drop tombstones: what is on the leader's disk has older records, and so may a
    copy that is under way; `run` itself is not begun yet.
    """
    is_copied = any(one.state is SegmentState.COPY_STARTED and one.start_offset <= run.end_offset for one in segments)
    return 0 if is_copied else local_start_offset

"""Inventory of a partition from the bucket alone: segments, leader-epoch history, log start offset and end.

Manifests restore the metadata of each segment. KIP-405's rules for leaders decide which segments count, by the
leader-epoch history stored with each segment. The segment with the highest last leader epoch, and of those the one with
the highest end offset, defines the history of the log. Segments of other histories were copied by leaders that lost
their records in an unclean election; such a segment counts for the offsets up to which both histories agree.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

from protocol.ids import LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from storage.directories.checkpoints import LeaderEpochEntry
from storage.errors import CorruptCheckpoint
from storage.producer_state import ProducerState
from storage.tiered.bucket.listing import StoredPartition, StoredSegment, newest_log_start, newest_log_start_epoch
from storage.tiered.catalog.lineage import NO_OFFSET, Lineage, decode_epochs
from storage.tiered.errors import (
    CorruptRemoteData,
    ObjectNotFound,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from storage.tiered.format.log_start_object import LogStart, decode_log_start
from storage.tiered.format.manifest import SegmentManifest, decode_manifest
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.object_store import ObjectInfo, ObjectStore
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition

T = TypeVar("T")
R = TypeVar("R")

NO_PRODUCER_ID = -1


class OffsetRange(NamedTuple):
    """An offset range, both ends included."""

    first: int
    last: int


class IndexReader(Protocol):
    """The method of RemoteStorageManager that an inventory needs; it decrypts indexes."""

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes: ...


class MapAll(Protocol):
    """`map`, or a parallel version of it."""

    def __call__(self, function: Callable[[T], R], arguments: Iterable[T], /) -> Iterable[R]: ...


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInventory:
    """Complete `segments` by start offset; `needed` are the ones that make up the log.

    `history` is the leader-epoch history up to `next_offset`, where a recovered log resumes. `holes` are missing
    offsets between the log start offset and `next_offset`. `highest_epoch` is the highest leader epoch in any object,
    -1 if there is none. `faults` describe unreadable objects; `log_start_fault` a log start object, without which
    `log_start_offset` may be too low.
    """

    partition: TopicIdPartition
    segments: tuple[RemoteSegment, ...]
    needed: tuple[RemoteSegment, ...]
    history: tuple[LeaderEpochEntry, ...]
    log_start_offset: int
    next_offset: int
    holes: tuple[OffsetRange, ...]
    highest_epoch: LeaderEpoch
    highest_producer_id: int
    cluster_id: str | None
    incomplete: int
    faults: tuple[str, ...]
    log_start_fault: str | None = None

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.needed)

    @property
    def above_holes(self) -> int:
        """The lowest offset from which no offset is missing."""
        return max([self.log_start_offset, *(hole.last + 1 for hole in self.holes)])


class BucketReader:
    """Reader of object contents. Raises ObjectStoreError and RetriableRemoteStorageError."""

    def __init__(self, store: ObjectStore, keys: ObjectKeys, indexes: IndexReader, map_all: MapAll = map) -> None:
        self._store = store
        self._keys = keys
        self._indexes = indexes
        self._map_all = map_all

    def manifest(self, stored: StoredSegment) -> SegmentManifest:
        """Return the manifest. Raises CorruptRemoteData, RemoteStorageError, and ObjectNotFound if it was deleted."""
        return decode_manifest(b"".join(self._store.get(stored.objects[ObjectSuffix.MANIFEST].key)))

    def segment(self, stored: StoredSegment) -> RemoteSegment:
        """Return the metadata in the manifest, which must match the object key. Raises as `manifest`."""
        segment = self.manifest(stored).segment
        if segment is None:
            raise CorruptRemoteData(f"the manifest of {stored.id} does not say of what it is")
        if (segment.id, segment.start_offset) != (stored.id, stored.start_offset):
            raise CorruptRemoteData(f"the manifest of {stored.id} is that of {segment.id}")
        return segment

    def log_start(self, stored: StoredPartition) -> LogStart | None:
        """Return the newest log start object, None if there is none. Raises ValueError for a damaged one."""
        info = newest_log_start(self._keys, stored)
        try:
            return None if info is None else decode_log_start(self.content(info))
        except ValueError as error:
            raise ValueError(f"{info.key if info else ''}: {error}") from error

    def content(self, info: ObjectInfo) -> bytes:
        return b"".join(self._store.get(info.key))

    def inventory(self, stored: StoredPartition) -> PartitionInventory:
        """Return the inventory of a listed partition."""
        faults: list[str] = []
        whole = [segment for segment in stored.segments if segment.is_complete]
        segments = list(_good(self._map_all(self._segment_or_fault, whole), faults))
        log_start, log_start_fault = self._log_start_or_fault(stored)
        latest = latest_history(segments, self._indexes)
        inventory = inventory_of(
            stored.partition,
            segments,
            replace(latest, faults=(*faults, *latest.faults)),
            log_start,
            incomplete=len(stored.segments) - len(whole),
        )
        claimed = LeaderEpoch(newest_log_start_epoch(self._keys, stored))
        highest_epoch = max(inventory.highest_epoch, claimed)
        return replace(inventory, highest_epoch=highest_epoch, log_start_fault=log_start_fault)

    def _segment_or_fault(self, stored: StoredSegment) -> RemoteSegment | str:
        try:
            return self.segment(stored)
        except RetriableRemoteStorageError:
            raise
        except (RemoteStorageError, ObjectNotFound) as error:
            return f"{stored.id} cannot be read: {error}"

    def _log_start_or_fault(self, stored: StoredPartition) -> tuple[LogStart | None, str | None]:
        try:
            return self.log_start(stored), None
        except ValueError as error:
            return None, f"the log start offset of {stored.partition} cannot be read: {error}"


@lazy_dataclass(frozen=True, slots=True)
class LatestHistory:
    """Leader-epoch history and producer state at the end of the newest segment copied by the latest leader.

    `faults` describe newer segments that are unreadable, and unknown producer states.
    """

    lineage: Lineage
    producers: ProducerState
    faults: tuple[str, ...]


def latest_history(segments: Iterable[RemoteSegment], indexes: IndexReader) -> LatestHistory:
    """Return the history of the newest readable segment, else an empty one. Raises RetriableRemoteStorageError,
    RemoteStorageError."""
    faults: list[str] = []
    for segment in sorted(segments, key=recency, reverse=True):
        try:
            entries = decode_epochs(indexes.read_index(segment, IndexKind.LEADER_EPOCH))
            lineage = Lineage(entries, segment.end_offset + 1)
            return LatestHistory(lineage, _producers(segment, indexes, faults), tuple(faults))
        except (CorruptCheckpoint, CorruptRemoteData, RemoteResourceNotFound) as error:
            faults.append(f"the history of {segment.id} cannot be read: {error}")
    return LatestHistory(Lineage((), 0), ProducerState(), tuple(faults))


def _producers(segment: RemoteSegment, indexes: IndexReader, faults: list[str]) -> ProducerState:
    """Return the producer state at the segment's end; empty for logs older than producer snapshots (KIP-952)."""
    end_offset = segment.end_offset + 1
    unknown = ProducerState()
    unknown.end_offset = unknown.snapshot_offset = end_offset
    try:
        content = indexes.read_index(segment, IndexKind.PRODUCER_SNAPSHOT)
        return ProducerState.decode("the file", content, end_offset)
    except RemoteResourceNotFound:
        return unknown
    except (CorruptCheckpoint, CorruptRemoteData) as error:
        faults.append(f"the producers of {segment.id} cannot be read: {error}")
        return unknown


def recency(segment: RemoteSegment) -> tuple[int, int]:
    """Sort key: the last segment of the latest leader that copied sorts highest."""
    return segment.leader_epochs[-1].epoch, segment.end_offset


def _good(read: Iterable[RemoteSegment | str], faults: list[str]) -> Iterator[RemoteSegment]:
    for found in read:
        if isinstance(found, RemoteSegment):
            yield found
        else:
            faults.append(found)


def inventory_of(
    partition: TopicIdPartition,
    segments: Iterable[RemoteSegment],
    latest: LatestHistory,
    log_start: LogStart | None,
    *,
    incomplete: int = 0,
) -> PartitionInventory:
    """Return the inventory of complete segments."""
    ordered = tuple(sorted(segments, key=lambda each: (each.start_offset, each.end_offset)))
    history = latest.lineage
    needed = needed_segments(ordered, history)
    said = 0 if log_start is None else log_start.log_start_offset
    first = min((segment.start_offset for segment in needed), default=history.end_offset)
    log_start_offset = max(said, first)
    epochs = [segment.leader_epochs[-1].epoch for segment in ordered]
    return PartitionInventory(
        partition=partition,
        segments=ordered,
        needed=needed,
        history=history.entries,
        log_start_offset=log_start_offset,
        next_offset=max(history.end_offset, log_start_offset),
        holes=tuple(_holes(needed, history, log_start_offset)),
        highest_epoch=LeaderEpoch(max([*epochs, -1 if log_start is None else log_start.leader_epoch])),
        highest_producer_id=max(latest.producers.entries, default=NO_PRODUCER_ID),
        cluster_id=None if log_start is None else log_start.cluster_id,
        incomplete=incomplete,
        faults=latest.faults,
    )


def needed_segments(segments: Sequence[RemoteSegment], history: Lineage) -> tuple[RemoteSegment, ...]:
    """Return the segments within a history, plus those parting from it that alone hold some offsets.

    `segments` are sorted by start offset, and so is the result.
    """
    agreed = {segment.id: history.agreed_end(segment) for segment in segments}
    kept = [segment for segment in segments if agreed[segment.id] == segment.end_offset]
    parting = [each for each in segments if agreed[each.id] not in (NO_OFFSET, each.end_offset)]
    for segment in sorted(parting, key=lambda each: agreed[each.id], reverse=True):
        span = OffsetRange(segment.start_offset, agreed[segment.id])
        if next(_uncovered(kept, history, span), None) is not None:
            kept.append(segment)
    return tuple(sorted(kept, key=lambda each: (each.start_offset, each.end_offset)))


def _holes(needed: Sequence[RemoteSegment], history: Lineage, log_start_offset: int) -> Iterator[OffsetRange]:
    if log_start_offset < history.end_offset:
        yield from _uncovered(needed, history, OffsetRange(log_start_offset, history.end_offset - 1))


def _uncovered(segments: Iterable[RemoteSegment], history: Lineage, span: OffsetRange) -> Iterator[OffsetRange]:
    """Yield the parts of `span` that no segment holds in agreement with the history."""
    offset = span.first
    for first, last in sorted((segment.start_offset, history.agreed_end(segment)) for segment in segments):
        if first > span.last:
            break
        if first > offset:
            yield OffsetRange(offset, min(first - 1, span.last))
        offset = max(offset, last + 1)
    if offset <= span.last:
        yield OffsetRange(offset, span.last)

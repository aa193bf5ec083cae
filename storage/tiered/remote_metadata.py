"""The interface of remote metadata managers (KIP-405, "RemoteLogMetadataManager").

Implementations are loaded by name (`remote.log.metadata.manager.class.name`, see `loading/remote_metadata.py`). Methods
are called on the event loop; those that wait return an awaitable. `RemoteLogMetadataCache` answers look-ups from
memory.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from protocol.ids import LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentUpdate,
    TopicIdPartition,
)


class SegmentPage(NamedTuple):
    """Segments with their rows, and the next row; None at the end."""

    segments: Sequence[tuple[int, RemoteSegment]]
    next_row: int | None


class SegmentObserver(Protocol):
    """Observer of one partition, called synchronously. A row may stand for another segment after a deletion."""

    def on_available(self, row: int, segment: RemoteSegment) -> None:
        """Handle a segment that was finished and is readable."""
        ...

    def on_unavailable(self, row: int, segment: RemoteSegment) -> None:
        """Handle a readable segment that is about to be deleted."""
        ...


class KnownSegments(Protocol):
    """All metadata of one partition, for incremental processing: `RemoteLogMetadataCache`.

    Changes between two pages are reported to `observer`. An observer that finds another one, or None, in its place may
    have missed any change.
    """

    observer: SegmentObserver | None

    def __len__(self) -> int:
        """Return the number of segments in any state."""
        ...

    def get(self, segment_id: Uuid) -> RemoteSegment | None:
        """Return a segment in any state; None if there is none, or its deletion has finished."""
        ...

    def page(self, first_row: int, count: int) -> SegmentPage:
        """Return the segments in `count` rows."""
        ...

    def finished_at(self, row: int) -> RemoteSegment | None:
        """Return the segment of a row, None unless it is readable."""
        ...

    def is_finished(self, row: int) -> bool: ...

    def next_offset(self, epoch: LeaderEpoch, offset: int) -> int | None:
        """The first offset above `offset` at which a finished segment, or its part of `epoch`, begins."""
        ...

    def copies_of(self, epoch: LeaderEpoch, offset: int) -> Sequence[RemoteSegment]:
        """Return all finished segments that hold `offset` of `epoch`; none if a compacted one does: an older copy may
        hold records that compaction removed.
        """
        ...

    def given_up_to(self, epoch: LeaderEpoch, offset: int) -> int | None:
        """Return the last offset of the given-up range of `epoch` that includes `offset`; None if there is none.

        An operator gives ranges up. Brokers know them after a restart, too.
        """
        ...

    def offsets(self, row: int) -> tuple[int, int]:
        """Return the first and last offset of a row that stands for a segment."""
        ...

    def max_timestamp_ms(self, row: int) -> int:
        """Return the highest timestamp of a row that stands for a segment."""
        ...

    def compacted_to(self, row: int) -> int | None:
        """Return `RemoteSegment.compacted_to` of a row that stands for a segment."""
        ...

    def first_within(self, epoch: LeaderEpoch, first: int, last: int) -> int | None:
        """Return the first offset of `epoch` in the finished segments with offsets of it in [first, last]."""
        ...

    def newest(self) -> list[RemoteSegment]:
        """Return the finished segments of the latest leader epoch that end last: one, or several that overlap."""
        ...

    def ending_within(self, first: int, last: int) -> list[RemoteSegment]:
        """Return the finished segments whose last offset is in [first, last], by start and end offset."""
        ...

    def unfinished(self) -> list[RemoteSegment]:
        """Return the segments that are not copied yet or are being deleted: few."""
        ...


class RemoteLogMetadataManager(Protocol):
    """Look-ups raise RemoteMetadataNotReady for a partition that is not assigned, or not loaded yet."""

    def add(self, segment: RemoteSegment) -> Awaitable[None]:
        """Add a new segment in COPY_STARTED; done when the event is durable and visible to look-ups here.

        Raises RemoteMetadataNotReady and InvalidSegmentTransition; TimeoutError if the outcome is unknown.
        """
        ...

    def update(self, update: SegmentUpdate) -> Awaitable[None]:
        """Update a segment; otherwise as `add`."""
        ...

    def delete_partition(self, event: PartitionDelete) -> Awaitable[None]:
        """Publish an event in the removal of a partition; otherwise as `add`."""
        ...

    def segment_for(self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: int) -> RemoteSegment | None:
        """Return the finished segment that holds `offset` as written in `epoch`."""
        ...

    def highest_offset(self, partition: TopicIdPartition, epoch: LeaderEpoch) -> int | None:
        """Return the last offset of `epoch` in any finished segment."""
        ...

    def segments(self, partition: TopicIdPartition, epoch: LeaderEpoch | None = None) -> Sequence[RemoteSegment]:
        """Return the segments that are not deleted yet, in any state, by start offset, optionally only those with
        records of `epoch`. Takes time in proportion to their number.
        """
        ...

    def known(self, partition: TopicIdPartition) -> KnownSegments:
        """Return the segments for incremental processing. The result is the same object as long as a caller holds it,
        even while it is empty. It changes only when the metadata were loaded again, because callers then start over.
        """
        ...

    def next_with_aborted(self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: int) -> RemoteSegment | None:
        """Return the first finished segment with a transaction index, from `offset` of `epoch` on, within the epoch."""
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool: ...

    def wait_until_ready(self, partition: TopicIdPartition) -> Awaitable[None]: ...

    def assign(self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]) -> None:
        """Start to serve these partitions, which this broker hosts; some may be served already."""
        ...

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None: ...

    def held(self) -> Iterable[tuple[TopicIdPartition, PartitionDeleteState | None]]:
        """Return the partitions whose remote segments this broker must delete if their topic is deleted, with the state
        of that deletion. Empty if the implementation deletes partitions itself.
        """
        ...

    async def close(self) -> None:
        """Stop all updates."""
        ...


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMetadataContext:
    """Context of an implementation, beside its settings: `broker.id`, `cluster.id` and `log.dir` in Kafka.

    `bootstrap_server` returns the address of this broker as `host:port` of the listener
    `remote.log.metadata.manager.listener.name`; None until the metadata contain its registration.
    """

    broker_id: int
    cluster_id: str
    log_directory: str
    bootstrap_server: Callable[[], str | None]


class RemoteMetadataFactory(Protocol):
    """The type of an import path's target: a class or function with these arguments, called on the event loop.

    Settings are those under `remote.log.metadata.manager.impl.prefix`, without the prefix. Raises ValueError with one
    sentence that names the key.
    """

    def __call__(self, settings: Mapping[str, str], context: RemoteMetadataContext) -> RemoteLogMetadataManager: ...

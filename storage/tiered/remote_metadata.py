"""The seam to what is known of remote segments (KIP-405, "RemoteLogMetadataManager").

Implementations are loaded by name (`remote.log.metadata.manager.class.name`, see `metadata_loading.py`). Everything is
called on the event loop; what waits returns an awaitable. `RemoteLogMetadataCache` answers look-ups from memory.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentUpdate,
    TopicIdPartition,
)


class SegmentPage(NamedTuple):
    """Segments with the rows that stand for them, and the row to go on from; None at the end."""

    segments: Sequence[tuple[int, RemoteSegment]]
    next_row: int | None


class SegmentObserver(Protocol):
    """Told synchronously. A row stands for another segment after its own has been deleted."""

    def on_available(self, row: int, segment: RemoteSegment) -> None:
        """A segment has been finished and can be read."""
        ...

    def on_unavailable(self, row: int, segment: RemoteSegment) -> None:
        """A segment that could be read is to be deleted."""
        ...


class KnownSegments(Protocol):
    """All that is known of one partition, for who looks at a part of it at a time: `RemoteLogMetadataCache`.

    What changes between two pages is told to `observer`, which is somebody else's, or None, where this is not what it
    was before: then everything may have changed.
    """

    observer: SegmentObserver | None

    def __len__(self) -> int:
        """How many, in whatever state."""
        ...

    def page(self, first_row: int, count: int) -> SegmentPage:
        """The segments in `count` rows."""
        ...

    def finished_at(self, row: int) -> RemoteSegment | None:
        """None where the row stands for nothing that can be read."""
        ...

    def is_finished(self, row: int) -> bool: ...

    def next_offset(self, epoch: int, offset: int) -> int | None:
        """The first offset above `offset` at which a finished segment, or its part of `epoch`, begins."""
        ...

    def offsets(self, row: int) -> tuple[int, int]:
        """First and last, where there is a segment."""
        ...

    def max_timestamp_ms(self, row: int) -> int:
        """Of a segment, where there is one."""
        ...

    def compacted_to(self, row: int) -> int | None:
        """Of a segment, where there is one."""
        ...

    def first_within(self, epoch: int, first: int, last: int) -> int | None:
        """Of the finished segments with an offset in [first, last] as `epoch` wrote it, the first offset of `epoch`."""
        ...

    def newest(self) -> list[RemoteSegment]:
        """Of the latest leader that copied, the finished segments that end last: one, or several that overlap."""
        ...

    def ending_within(self, first: int, last: int) -> list[RemoteSegment]:
        """The finished segments whose last offset is in [first, last], by start and end offset: few, if that is a
        narrow range."""
        ...

    def unfinished(self) -> list[RemoteSegment]:
        """Those that are not copied yet, or are being deleted: few."""
        ...


class RemoteLogMetadataManager(Protocol):
    """Look-ups raise RemoteMetadataNotReady for a partition that is not assigned or not yet loaded here."""

    def add(self, segment: RemoteSegment) -> Awaitable[None]:
        """Notes a new segment, in COPY_STARTED; done when it is durable and look-ups here know of it.

        Raises RemoteMetadataNotReady and InvalidSegmentTransition; TimeoutError when it is not known whether it came
        to be.
        """
        ...

    def update(self, update: SegmentUpdate) -> Awaitable[None]:
        """As `add`, for what follows."""
        ...

    def delete_partition(self, event: PartitionDelete) -> Awaitable[None]:
        """As `add`, for the removal of a partition."""
        ...

    def segment_for(self, partition: TopicIdPartition, epoch: int, offset: int) -> RemoteSegment | None:
        """The finished segment that holds `offset` of the history in which `epoch` wrote it."""
        ...

    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """The last offset of `epoch` in any finished segment."""
        ...

    def segments(self, partition: TopicIdPartition, epoch: int | None = None) -> Sequence[RemoteSegment]:
        """All that are not yet deleted, in whatever state, by start offset; those that hold `epoch`, if given. Takes
        time in proportion to their number.
        """
        ...

    def known(self, partition: TopicIdPartition) -> KnownSegments:
        """The same, to be looked at little by little. The same object for as long as somebody holds it, though nothing
        be known yet; another one when it was learnt anew, and only then: who looks would begin again and again.
        """
        ...

    def next_with_aborted(self, partition: TopicIdPartition, epoch: int, offset: int) -> RemoteSegment | None:
        """The first finished segment from `offset` of `epoch` on, in that epoch, that has a transaction index."""
        ...

    def is_ready(self, partition: TopicIdPartition) -> bool: ...

    def wait_until_ready(self, partition: TopicIdPartition) -> Awaitable[None]: ...

    def assign(self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]) -> None:
        """This broker hosts these from now on (or goes on to)."""
        ...

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None: ...

    def held(self) -> Iterable[tuple[TopicIdPartition, PartitionDeleteState | None]]:
        """Every partition with anything left of which it is for this broker to remove what is remote, should its topic
        be deleted, and how far that is. Nothing where somebody else removes what is marked as deleted.
        """
        ...

    async def close(self) -> None:
        """Tell of nothing any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMetadataContext:
    """What an implementation is told beside its settings, `broker.id`, `cluster.id` and `log.dir` with Kafka.

    `bootstrap_server` tells where this broker is reached itself, as `host:port` of the listener named by
    `remote.log.metadata.manager.listener.name`; None for as long as the metadata do not have its registration.
    """

    broker_id: int
    cluster_id: str
    log_directory: str
    bootstrap_server: Callable[[], str | None]


class RemoteMetadataFactory(Protocol):
    """What an import path must name: a class, or a function, that takes these two; called on the event loop.

    Settings are those under `remote.log.metadata.manager.impl.prefix`, without it. Raises ValueError with one sentence
    that names the key.
    """

    def __call__(self, settings: Mapping[str, str], context: RemoteMetadataContext) -> RemoteLogMetadataManager: ...

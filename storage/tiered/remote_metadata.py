"""The seam to what is known of remote segments (KIP-405, "RemoteLogMetadataManager").

Implementations are loaded by name (`remote.log.metadata.manager.class.name`). Everything is called on the event loop;
what waits returns an awaitable. Look-ups answer from memory.
"""

from collections.abc import Awaitable, Iterable, Sequence
from typing import Protocol

from storage.tiered.segment_metadata import PartitionDelete, RemoteSegment, SegmentUpdate, TopicIdPartition


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
        """All that are not yet deleted, in whatever state, by start offset; those that hold `epoch`, if given."""
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

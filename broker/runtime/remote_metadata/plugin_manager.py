"""A RemoteLogMetadataManager that somebody else wrote, kept from harming the broker.

Whatever it raises that the seam does not know is told in the log, and passes for metadata that is not there yet: tasks
try again later, consumers are told to come again. It does not know what it keeps.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from broker.logs import EventLog
from storage.tiered.errors import InvalidSegmentTransition, RemoteMetadataNotReady, RemoteStorageError
from storage.tiered.remote_metadata import KnownSegments, RemoteLogMetadataManager
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentUpdate,
    TopicIdPartition,
)

T = TypeVar("T")

_EXPECTED: Final = (RemoteMetadataNotReady, InvalidSegmentTransition, RemoteStorageError, TimeoutError)

_log: Final = EventLog("broker.tiered.metadata")


class PluginRemoteMetadata:
    """Implements RemoteLogMetadataManager over another one."""

    def __init__(self, theirs: RemoteLogMetadataManager) -> None:
        self._theirs = theirs

    # ---- events

    def add(self, segment: RemoteSegment) -> Awaitable[None]:
        return _told(lambda: self._theirs.add(segment))

    def update(self, update: SegmentUpdate) -> Awaitable[None]:
        return _told(lambda: self._theirs.update(update))

    def delete_partition(self, event: PartitionDelete) -> Awaitable[None]:
        return _told(lambda: self._theirs.delete_partition(event))

    # ---- questions

    def segment_for(self, partition: TopicIdPartition, epoch: int, offset: int) -> RemoteSegment | None:
        return _judged(lambda: self._theirs.segment_for(partition, epoch, offset))

    def highest_offset(self, partition: TopicIdPartition, epoch: int) -> int | None:
        return _judged(lambda: self._theirs.highest_offset(partition, epoch))

    def segments(self, partition: TopicIdPartition, epoch: int | None = None) -> Sequence[RemoteSegment]:
        return _judged(lambda: self._theirs.segments(partition, epoch))

    def known(self, partition: TopicIdPartition) -> KnownSegments:
        return _judged(lambda: self._theirs.known(partition))

    def next_with_aborted(self, partition: TopicIdPartition, epoch: int, offset: int) -> RemoteSegment | None:
        return _judged(lambda: self._theirs.next_with_aborted(partition, epoch, offset))

    def held(self) -> Iterable[tuple[TopicIdPartition, PartitionDeleteState | None]]:
        return _tried(lambda: list(self._theirs.held()), [])

    # ---- assignment

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return _tried(lambda: self._theirs.is_ready(partition), False)

    def wait_until_ready(self, partition: TopicIdPartition) -> Awaitable[None]:
        return self._theirs.wait_until_ready(partition)

    def assign(self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]) -> None:
        _tried(lambda: self._theirs.assign(leaders, followers), None)

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        _tried(lambda: self._theirs.unassign(partitions), None)

    async def close(self) -> None:
        """See RemoteLogMetadataManager."""
        try:
            await self._theirs.close()
        except Exception as error:  # noqa: BLE001  anybody's code
            _tell(error)


async def _told(tell: Callable[[], Awaitable[None]]) -> None:
    try:
        await tell()
    except _EXPECTED:
        raise
    except Exception as error:
        raise _passing(error) from error


def _judged(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except _EXPECTED:
        raise
    except Exception as error:
        raise _passing(error) from error


def _tried(call: Callable[[], T], otherwise: T) -> T:
    try:
        return call()
    except Exception as error:  # noqa: BLE001  anybody's code
        _tell(error)
        return otherwise


def _passing(error: Exception) -> RemoteMetadataNotReady:
    _tell(error)
    return RemoteMetadataNotReady(f"the keeper of remote metadata failed: {error!r}")


def _tell(error: Exception) -> None:
    _log.error("The keeper of remote metadata failed", error)

"""A RemoteLogMetadataManager from a plug-in, isolated so that its errors do not harm the broker.

Unexpected errors are logged and become RemoteMetadataNotReady: tasks try again later, and consumers retry. The wrapper
knows nothing about the plug-in.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from broker.logs import EventLog
from protocol.ids import LeaderEpoch
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
    """Implements RemoteLogMetadataManager over a plug-in."""

    def __init__(self, plugin: RemoteLogMetadataManager) -> None:
        self._plugin = plugin

    # ---- events

    def add(self, segment: RemoteSegment) -> Awaitable[None]:
        return _publish(lambda: self._plugin.add(segment))

    def update(self, update: SegmentUpdate) -> Awaitable[None]:
        return _publish(lambda: self._plugin.update(update))

    def delete_partition(self, event: PartitionDelete) -> Awaitable[None]:
        return _publish(lambda: self._plugin.delete_partition(event))

    # ---- queries

    def segment_for(self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: int) -> RemoteSegment | None:
        return _query(lambda: self._plugin.segment_for(partition, epoch, offset))

    def highest_offset(self, partition: TopicIdPartition, epoch: LeaderEpoch) -> int | None:
        return _query(lambda: self._plugin.highest_offset(partition, epoch))

    def segments(self, partition: TopicIdPartition, epoch: LeaderEpoch | None = None) -> Sequence[RemoteSegment]:
        return _query(lambda: self._plugin.segments(partition, epoch))

    def known(self, partition: TopicIdPartition) -> KnownSegments:
        return _query(lambda: self._plugin.known(partition))

    def next_with_aborted(self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: int) -> RemoteSegment | None:
        return _query(lambda: self._plugin.next_with_aborted(partition, epoch, offset))

    def held(self) -> Iterable[tuple[TopicIdPartition, PartitionDeleteState | None]]:
        return _call_or_default(lambda: list(self._plugin.held()), [])

    # ---- assignment

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return _call_or_default(lambda: self._plugin.is_ready(partition), False)

    def wait_until_ready(self, partition: TopicIdPartition) -> Awaitable[None]:
        return self._plugin.wait_until_ready(partition)

    def assign(self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]) -> None:
        _call_or_default(lambda: self._plugin.assign(leaders, followers), None)

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        _call_or_default(lambda: self._plugin.unassign(partitions), None)

    async def close(self) -> None:
        """See RemoteLogMetadataManager."""
        try:
            await self._plugin.close()
        except Exception as error:  # noqa: BLE001  a plug-in may raise anything
            _log_error(error)


async def _publish(publish: Callable[[], Awaitable[None]]) -> None:
    try:
        await publish()
    except _EXPECTED:
        raise
    except Exception as error:
        raise _not_ready(error) from error


def _query(query: Callable[[], T]) -> T:
    try:
        return query()
    except _EXPECTED:
        raise
    except Exception as error:
        raise _not_ready(error) from error


def _call_or_default(call: Callable[[], T], default: T) -> T:
    try:
        return call()
    except Exception as error:  # noqa: BLE001  a plug-in may raise anything
        _log_error(error)
        return default


def _not_ready(error: Exception) -> RemoteMetadataNotReady:
    _log_error(error)
    return RemoteMetadataNotReady(f"the remote log metadata manager failed: {error!r}")


def _log_error(error: Exception) -> None:
    _log.error("The remote log metadata manager failed", error)

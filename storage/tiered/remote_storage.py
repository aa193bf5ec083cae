"""The interface of remote storage managers (KIP-405, "RemoteStorageManager"): copy, read and delete segments.

Implementations are loaded by name (`remote.log.storage.manager.class.name`). Their methods block and are thread-safe.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from typing import Protocol

from protocol.lazy_dataclass import lazy_dataclass
from storage.files import FileSystem
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.statistics import RemoteStorageStatistics


class IndexKind(Enum):
    """Files beside a segment's records; the value is the suffix of a cached copy."""

    OFFSET = "index"
    TIME = "timeindex"
    TRANSACTION = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCH = "leader-epoch-checkpoint"


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFiles:
    """Files of one segment to copy, as paths in `fs`. Without aborted transactions there is no transaction index.

    `leader_epochs` is a leader-epoch checkpoint: the history of the log up to the segment's end. `producer_snapshot` is
    the producer state at the segment's end; None if the log has none.
    """

    fs: FileSystem
    log: str
    offset_index: str
    time_index: str
    transaction_index: str | None
    producer_snapshot: str | None
    leader_epochs: bytes


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStorageContext:
    """Context of an implementation. It owns `cache_directory`, which may not exist yet, and may count its requests and
    look-ups in `statistics`.
    """

    fs: FileSystem
    cache_directory: str
    broker_id: int
    cluster_id: str
    statistics: RemoteStorageStatistics = field(default_factory=RemoteStorageStatistics)


class RemoteStorageManager(Protocol):
    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Copy everything durably, or leave nothing visible; return custom metadata, if there are any.

        Idempotent for one segment id. Raises RetriableRemoteStorageError, RemoteStorageError.
        """
        ...

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        """Yield the bytes of the log file from `first` to `last`, both included, in pieces; to the end if None.

        `last` may lie beyond the end. The iterator may be closed early. Raises RemoteResourceNotFound,
        RetriableRemoteStorageError, RemoteStorageError, CorruptRemoteData, at the call or while iterating.
        """
        ...

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """Return an index. Raises RemoteResourceNotFound if the segment has none, and as `read_segment`."""
        ...

    def read_soon(self, segment: RemoteSegment, first: int) -> None:
        """Prefetch hint: a read from position `first` follows soon.

        May do nothing. Raises as `read_segment`.
        """
        ...

    def discard(self, segment: RemoteSegment) -> None:
        """Drop all cached data of a segment because some of it was damaged. The next read goes to the store.

        Raises nothing.
        """
        ...

    def location(self, segment: RemoteSegment) -> str:
        """Return the object's location for messages to operators. No access, raises nothing."""
        ...

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete everything copied; missing objects are no error. Raises as `copy_segment`."""
        ...

    def close(self) -> None: ...


class RemoteStorageFactory(Protocol):
    """The type of an import path's target: a class or function with these arguments.

    Settings are those under `remote.log.storage.manager.impl.prefix`, without the prefix. Raises ValueError with one
    sentence that names the key.
    """

    def __call__(self, settings: Mapping[str, str], context: RemoteStorageContext) -> RemoteStorageManager: ...

"""The seam to remote storage (KIP-405, "RemoteStorageManager"): copy a segment, read it, delete it.

Implementations are loaded by name (`remote.log.storage.manager.class.name`). Their methods block and are called from
several threads at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from storage.files import FileSystem
from storage.tiered.segment_metadata import RemoteSegment


class IndexKind(Enum):
    """The files that go with a segment's records; the value is the suffix of a cached copy."""

    OFFSET = "index"
    TIME = "timeindex"
    TRANSACTION = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCH = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFiles:
    """What is copied of one segment: paths in `fs`. No transaction index where there are no aborted transactions.

    `leader_epochs` is the text of a leader-epoch checkpoint: the history of the log up to the end of the segment.
    `producer_snapshot` is of the state at the segment's end; None where the log has none.
    """

    fs: FileSystem
    log: str
    offset_index: str
    time_index: str
    transaction_index: str | None
    producer_snapshot: str | None
    leader_epochs: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStorageContext:
    """What an implementation is told beside its settings. `cache_directory` is its own; it may not exist yet."""

    fs: FileSystem
    cache_directory: str
    broker_id: int
    cluster_id: str


class RemoteStorageManager(Protocol):
    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Copies everything, durably, or nothing that anybody would find; returns custom metadata, if it has any.

        Repeating it for the same id is harmless. Raises RetriableRemoteStorageError, RemoteStorageError.
        """
        ...

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        """The bytes of the log file from position `first` to `last`, both included, in pieces; to the end if None.

        `last` may lie beyond the end. To close the iterator early is fine. Raises RemoteResourceNotFound,
        RetriableRemoteStorageError, RemoteStorageError, CorruptRemoteData, at the call or while iterating.
        """
        ...

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """Raises RemoteResourceNotFound where the segment has no such index, and as `read_segment`."""
        ...

    def read_soon(self, segment: RemoteSegment, first: int) -> None:
        """A hint: somebody is about to read from position `first` on. What makes that faster may begin now.

        May do nothing. Raises as `read_segment`.
        """
        ...

    def discard(self, segment: RemoteSegment) -> None:
        """Keep nothing of a segment at hand: what came of it was damaged. The next read asks the store.

        Raises nothing.
        """
        ...

    def location(self, segment: RemoteSegment) -> str:
        """What an operator would look for in the store, for messages. Asks nobody, raises nothing."""
        ...

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Deletes all that was copied; what is gone already is success. Raises as `copy_segment`."""
        ...

    def close(self) -> None: ...


class RemoteStorageFactory(Protocol):
    """What an import path must name: a class, or a function, that takes these two.

    Settings are those under `remote.log.storage.manager.impl.prefix`, without it. Raises ConfigError's cousin
    ValueError with one sentence that names the key.
    """

    def __call__(self, settings: Mapping[str, str], context: RemoteStorageContext) -> RemoteStorageManager: ...

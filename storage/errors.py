"""Exceptions of the storage package.

    StorageError
    ├── OffsetOutOfRange      a read outside the log
    │   └── OffsetMovedToTier a read of offsets that only remote storage has
    ├── UnexpectedOffset      replicated batches that do not follow the log end offset
    ├── CorruptBatch          bytes that fail their checksum or cannot be a batch (from a client or the disk)
    ├── InvalidRecords        a rejected batch, with a reason and perhaps errors by record
    ├── InconsistentTopicId   a directory of another topic with the same name
    ├── CorruptCheckpoint     a checkpoint file that does not parse
    ├── DamagedSnapshot       an incomplete or altered snapshot
    ├── SyncedRecordsLost     a log ends below its synced end
    └── LogDirFailure         an IO error: the log directory must go offline

Each caller that serves clients translates them once.
"""

from collections.abc import Sequence
from enum import Enum, auto


class StorageError(Exception):
    """Base class, never raised itself."""


class OffsetOutOfRange(StorageError):
    """The offset lies outside [log start offset, log end offset]."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside of the log's range {start} to {end}")
        self.offset = offset
        self.start = start
        self.end = end


class OffsetMovedToTier(OffsetOutOfRange):
    """The offset belongs to the log, but its record is in remote storage alone (KIP-405).

    A caller without remote storage handles it as OffsetOutOfRange.
    """

    def __init__(self, offset: int, log_start: int, local_start: int) -> None:
        super().__init__(offset, local_start, local_start)
        self.args = (
            f"offset {offset} is in remote storage: the log starts at {log_start}, the local log at {local_start}",
        )
        self.log_start = log_start
        self.local_start = local_start


class UnexpectedOffset(StorageError):
    """Batches with assigned offsets begin below the log end offset, or their offsets go backwards."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"batches must start at or after offset {expected}, these start at {found}")
        self.expected = expected
        self.found = found


class CorruptBatch(StorageError):
    """A batch fails its checksum, or has an impossible size or magic."""


class Rejection(Enum):
    """The reason for rejecting a batch, named after the Kafka error code of the response."""

    INVALID_RECORD = auto()
    INVALID_TIMESTAMP = auto()
    MESSAGE_TOO_LARGE = auto()
    RECORD_LIST_TOO_LARGE = auto()
    UNSUPPORTED_COMPRESSION_TYPE = auto()
    UNKNOWN_SERVER_ERROR = auto()
    """Kafka's answer to a failed decompression or an unknown codec."""
    OUT_OF_ORDER_SEQUENCE_NUMBER = auto()
    DUPLICATE_SEQUENCE_NUMBER = auto()
    """A success for clients: the log has the batch, at offsets that it has forgotten."""
    INVALID_PRODUCER_EPOCH = auto()
    INVALID_TXN_STATE = auto()
    TRANSACTION_COORDINATOR_FENCED = auto()


class InvalidRecords(StorageError):
    """A well-formed batch that the log rejects. `record_errors` lists (index within the batch, problem)."""

    def __init__(self, kind: Rejection, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.record_errors = tuple(record_errors)


class InconsistentTopicId(StorageError):
    """partition.metadata has another topic id than expected."""

    def __init__(self, directory: str, expected: str, found: str) -> None:
        super().__init__(f"{directory} belongs to topic id {found}, not {expected}")
        self.expected = expected
        self.found = found


class CorruptCheckpoint(StorageError):
    """A checkpoint, properties or snapshot file does not parse."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class DamagedSnapshot(StorageError):
    """A snapshot is cut short, altered, or was never finished."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class SyncedRecordsLost(StorageError):
    """The log cannot be read up to its synced end: the disk lost records, or changed them."""

    def __init__(self, path: str, position: int, offset: int, synced_end: int) -> None:
        super().__init__(
            f"{path} has no valid batch at offset {offset} (byte {position}), "
            f"although all records below offset {synced_end} were synced"
        )
        self.offset = offset


class LogDirFailure(StorageError):
    """The operating system failed a read, write or fsync, also for a full disk.

    The content of `path` is not trustworthy before a restart; the caller takes the log directory offline.
    """

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(f"{path}: {cause.strerror or cause}")
        self.path = path
        self.cause = cause

    def again(self) -> "LogDirFailure":
        """Return the same failure for another caller: raising one exception twice would collect tracebacks."""
        return LogDirFailure(self.path, self.cause)

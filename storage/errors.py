"""Everything storage raises on purpose.

    StorageError
    ├── OffsetOutOfRange      a read outside the log
    │   └── OffsetMovedToTier a read of what the log has, but no longer on this disk
    ├── UnexpectedOffset      prepared batches that do not follow the log's end
    ├── CorruptBatch          bytes that fail their checksum or make no sense (client or disk)
    ├── InvalidRecords        a batch that is refused, with a reason and perhaps record by record
    ├── InconsistentTopicId   the directory belongs to another topic of that name
    ├── CorruptCheckpoint     a checkpoint file that does not parse
    ├── DamagedSnapshot       a snapshot of a log's beginning that is not whole
    └── LogDirFailure         an IO error: the directory must go offline

Each is translated once, by whoever calls storage for a client.
"""

from collections.abc import Sequence
from enum import Enum, auto


class StorageError(Exception):
    """Never raised itself."""


class OffsetOutOfRange(StorageError):
    """The offset lies outside [start, end] of the log."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside of the log's range {start} to {end}")
        self.offset = offset
        self.start = start
        self.end = end


class OffsetMovedToTier(OffsetOutOfRange):
    """The offset belongs to the log, but what it stands for is in remote storage alone (KIP-405).

    Callers that know no remote storage are told what they are told of any offset that is not here.
    """

    def __init__(self, offset: int, log_start: int, local_start: int) -> None:
        super().__init__(offset, local_start, local_start)
        self.args = (f"offset {offset} is in remote storage: the log starts at {log_start}, here at {local_start}",)
        self.log_start = log_start
        self.local_start = local_start


class UnexpectedOffset(StorageError):
    """Batches whose offsets were assigned elsewhere do not follow on the log's end, or go backwards."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"batches must start at or after offset {expected}, these start at {found}")
        self.expected = expected
        self.found = found


class CorruptBatch(StorageError):
    """A batch fails its checksum or has a size or magic that cannot be."""


class Rejection(Enum):
    """Why a batch was refused. The names are those of Kafka's error codes, for the caller that answers with one."""

    INVALID_RECORD = auto()
    INVALID_TIMESTAMP = auto()
    MESSAGE_TOO_LARGE = auto()
    RECORD_LIST_TOO_LARGE = auto()
    UNSUPPORTED_COMPRESSION_TYPE = auto()
    UNKNOWN_SERVER_ERROR = auto()
    """What Kafka answers when a decompressor fails or the codec does not exist."""
    OUT_OF_ORDER_SEQUENCE_NUMBER = auto()
    INVALID_PRODUCER_EPOCH = auto()
    INVALID_TXN_STATE = auto()
    TRANSACTION_COORDINATOR_FENCED = auto()


class InvalidRecords(StorageError):
    """A well-formed batch that this log does not take. `record_errors` lists (index within the batch, what is
    wrong).
    """

    def __init__(self, kind: Rejection, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.record_errors = tuple(record_errors)


class InconsistentTopicId(StorageError):
    """partition.metadata names another topic id than the one expected."""

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
    """A snapshot that stands for the beginning of a log is cut short, altered, or was never finished."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


class LogDirFailure(StorageError):
    """The operating system failed a read, write or fsync (a full disk too). Nothing below `path` may be trusted or
    tried again until a restart; the caller takes the log directory offline.
    """

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(f"{path}: {cause.strerror or cause}")
        self.path = path
        self.cause = cause

    def again(self) -> "LogDirFailure":
        """The same failure for another caller: an exception that is raised twice would collect tracebacks."""
        return LogDirFailure(self.path, self.cause)

"""Offset lookups in hosted partitions: by timestamp, and the ends of the log (ListOffsets).

Timestamps are milliseconds; the negative ones below are special (KIP-734, KIP-405, KIP-1005, KIP-1023).
"""

import asyncio
from typing import Final, NamedTuple, Protocol

from broker.replication.epochs import UNKNOWN_EPOCH
from broker.replication.leader import LeaderRole
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import bound_of, check_reader
from broker.runtime.partitions.reads import UNKNOWN, FetchIsolation
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from storage.errors import CorruptBatch, LogDirFailure
from storage.log import Log
from storage.segment import FoundTimestamp

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

DEBUGGING_REPLICA_ID: Final = -2
"""The replica id of ListOffsets requests that followers answer, too."""


class OffsetQuery(NamedTuple):
    """A lookup in one partition."""

    timestamp: int
    current_leader_epoch: LeaderEpoch
    isolation: FetchIsolation
    needs_leader: bool = True


class FoundOffset(NamedTuple):
    """The result of a lookup. The ends of the log have no timestamp (-1); an unknown leader epoch is -1."""

    timestamp: int
    offset: int
    leader_epoch: LeaderEpoch


class RemoteLookups(Protocol):
    """`broker.runtime.remote_log.offsets.RemoteOffsets`."""

    def covers(self, partition: Partition, /) -> bool:
        """Whether a partition may have remote segments."""

    def list_offset(
        self, partition: Partition, query: OffsetQuery, timeout_ms: int, /
    ) -> "FoundOffset | asyncio.Future[FoundOffset]":
        """Look up an offset. Raises KafkaError, at once or from the future."""


NOT_FOUND: Final = FoundOffset(UNKNOWN, UNKNOWN, UNKNOWN_EPOCH)


def list_offset(partition: Partition, query: OffsetQuery) -> FoundOffset:
    """Return the offset for a timestamp, special or real; NOT_FOUND if there is none. Raises KafkaError.

    Right after an election the high watermark may be below the former leader's. Consumers must not move back there:
    OFFSET_NOT_AVAILABLE until the new leader has committed the start of its epoch.
    """
    check_reader(partition, query.current_leader_epoch, needs_leader=query.needs_leader)
    if query.timestamp == LATEST:
        if _lags(partition, query):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return FoundOffset(UNKNOWN, bound_of(partition.log, query.isolation), partition.role.epoch)
    return visible(partition, query, found_here(partition, query.timestamp))


def visible(partition: Partition, query: OffsetQuery, found: FoundOffset) -> FoundOffset:
    """Limit a result to the offsets that the reader may see. Raises KafkaError."""
    is_start = query.timestamp in (EARLIEST, EARLIEST_LOCAL)
    if is_start or UNKNOWN < found.offset < bound_of(partition.log, query.isolation):
        return found
    if _lags(partition, query):
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return NOT_FOUND


def found_here(partition: Partition, timestamp: int) -> FoundOffset:
    """Look up in the local log, regardless of isolation. Raises KafkaError."""
    try:
        return look_up(partition.log, timestamp)
    except LogDirFailure as failure:
        raise partition.offline(failure) from failure
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _lags(partition: Partition, query: OffsetQuery) -> bool:
    """Whether the former leader may have exposed a higher high watermark to consumers."""
    role = partition.role
    return (
        query.isolation is not FetchIsolation.LOG_END
        and isinstance(role, LeaderRole)
        and not role.has_committed_own_epoch(partition.log.high_watermark)
    )


def look_up(log: Log, timestamp: int) -> FoundOffset:
    """Look up anything but the latest offset in the local log, not in remote storage."""
    match timestamp:
        case -2:  # EARLIEST
            return _start(log, log.log_start_offset)
        case -3:  # MAX_TIMESTAMP
            return _found(log.offset_of_max_timestamp())
        case -4:  # EARLIEST_LOCAL
            return _start(log, log.local_log_start_offset)
        case -5 | -6:  # LATEST_TIERED, EARLIEST_PENDING_UPLOAD
            return NOT_FOUND
        case _:
            return _found(log.offset_for_timestamp(timestamp))


def _start(log: Log, offset: int) -> FoundOffset:
    epoch = log.epochs.epoch_for_offset(offset)
    return FoundOffset(UNKNOWN, offset, UNKNOWN_EPOCH if epoch is None else epoch)


def _found(record: FoundTimestamp | None) -> FoundOffset:
    return NOT_FOUND if record is None else FoundOffset(record.timestamp, record.offset, record.leader_epoch)

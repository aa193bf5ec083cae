"""Log lines about remote reads that fail: one for each outage, and the error level only where an operator is needed."""

from typing import Final

from cachetools import TTLCache

from broker.clock import Clock
from broker.fetch.remote_reads.read import RemoteRead
from broker.logs import EventLog
from broker.runtime.remote_log.locations import SegmentMissing
from broker.runtime.remote_log.outage import RemoteOutage
from protocol.primitives import Uuid
from storage.tiered.errors import RemoteResourceNotFound, RemoteStorageError, RetriableRemoteStorageError

MISSING_ATTEMPTS: Final = 4
"""Attempts for a missing segment before the error log: metadata may be late, or a deletion under way."""

REPLICA_LINE_MS: Final = 60_000
"""Time for which further reads of a partition from another replica are not logged."""
_PARTITIONS_MAX: Final = 1_000

_MISSING = (SegmentMissing, RemoteResourceNotFound)
_log = EventLog("broker.remote_reads")


class FailureLog:
    """Logs failures and the end of outages."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._outage = RemoteOutage()
        self._on_replicas: TTLCache[tuple[Uuid, int], bool] = TTLCache(
            _PARTITIONS_MAX, REPLICA_LINE_MS, clock.monotonic_ms
        )

    def note_failure(self, read: RemoteRead, error: Exception) -> None:
        """Log a retriable error once per outage, any other once per read; an unexpected one with its traceback."""
        where, offset = str(read.partition), read.key.offset
        if isinstance(error, RetriableRemoteStorageError):
            if self._outage.failed(self._clock.monotonic_ms()):
                _log.warning("Remote storage cannot be read now", partition=where, offset=offset, reason=error)
        elif isinstance(error, _MISSING):
            if read.attempts == MISSING_ATTEMPTS:
                _log.error("Remote storage lacks records of a log", partition=where, offset=offset, reason=error)
        elif not isinstance(error, RemoteStorageError):
            _log.error("Reading from remote storage failed", error, partition=where, offset=offset, reason=error)
        elif not read.attempts:
            _log.error("Reading from remote storage failed", partition=where, offset=offset, reason=error)

    def note_other_copy(self, read: RemoteRead, error: Exception) -> None:
        """Log that another segment is read in place of a lost or damaged one."""
        _log.error("A remote segment cannot be read; another copy is read", partition=str(read.partition), reason=error)

    def note_replica(self, read: RemoteRead, error: Exception) -> None:
        """Log that a follower's local log is read in place of a lost or damaged segment, once in a while."""
        key = read.key.topic_id, read.key.partition
        if key not in self._on_replicas:
            self._on_replicas[key] = True
            _log.error(
                "A remote segment cannot be read; the local log of a follower is read",
                partition=str(read.partition),
                offset=read.key.offset,
                reason=error,
            )

    def note_success(self) -> None:
        """Log the end of an outage."""
        now_ms = self._clock.monotonic_ms()
        failures = self._outage.succeeded(now_ms)
        if failures:
            seconds = round((now_ms - self._outage.began_ms) / 1000)
            _log.info("Remote storage can be read again", failures=failures, seconds=seconds)

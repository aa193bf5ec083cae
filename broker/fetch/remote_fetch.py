"""The remote reads of one fetch request (KIP-405).

All reads of a request run in parallel. The response leaves when all are done, or `LINGER_MS` after the first one is.
Local records that are enough never wait for remote reads, and a read that is done too late is kept for the next
request. The broker limits the time that a request waits for remote storage (`remote.fetch.max.wait.ms`, KIP-1018); the
request's own maximum wait time is meant for records that are not written yet.

A broker without remote storage never loads `broker.fetch.remote_reads`.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from broker.runtime.loop.waiters import Watches
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import FetchLimits, FetchParams
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget, LogReadResult
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.fetch.remote_reads.read import RemoteRead
    from broker.fetch.remote_reads.reads import RemoteReads

LINGER_MS: Final = 10
"""Time for which finished reads wait for the others: few responses for many partitions, none held up by the slowest."""


class RemoteFetch:
    """The remote reads that one request waits for, was refused, or has the records of.

    `size_bytes` counts the remote records of the present round.
    """

    __slots__ = ("_awaited", "_done", "_reads", "_refused", "size_bytes")

    def __init__(self, reads: "RemoteReads") -> None:
        self._reads = reads
        self._awaited: dict[FetchTarget, RemoteRead] = {}
        self._refused: dict[FetchTarget, tuple[Watches, ...]] = {}
        self._done: dict[FetchTarget, RemoteRead] = {}
        self.size_bytes = 0

    @property
    def is_awaited(self) -> bool:
        """Whether more records may come."""
        return bool(self._awaited or self._refused)

    @property
    def wait_max_ms(self) -> int:
        return self._reads.wait_max_ms

    def begin_round(self, due: Sequence[FetchTarget]) -> None:
        """Forget the reads of the targets that the round reads again."""
        self.size_bytes = 0
        for target in due:
            self._awaited.pop(target, None)
            self._done.pop(target, None)
            self._refused.pop(target, None)

    def read(
        self, partition: Partition, target: FetchTarget, reader: FetchParams, limits: FetchLimits, moved: LogReadResult
    ) -> LogReadResult:
        """Return the remote records of a target within the limits; no records while the read is under way.

        The result has the high watermark, last stable offset and log start offset of `moved`.
        """
        result = LogReadResult(
            ErrorCode.NONE,
            moved.high_watermark,
            moved.last_stable_offset,
            moved.log_start_offset,
            aborted=() if reader.isolation is FetchIsolation.LAST_STABLE else None,
        )
        read = self._reads.find_or_begin(partition, target, reader)
        if read is None:
            self._refused[target] = (self._reads.freed, partition.marks)
        elif read.is_done:
            result.records = read.records(max(0, limits.max_bytes), min_one=limits.min_one)
            result.size_bytes = len(result.records)
            result.aborted = read.aborted
            self.size_bytes += result.size_bytes
            if result.size_bytes:
                self._done[target] = read
        else:
            self._awaited[target] = read
        return result

    def bounds_of(self, target: FetchTarget) -> tuple[Watches, ...] | None:
        """Return the watches that an awaited or refused target rests on."""
        read = self._awaited.get(target)
        return self._refused.get(target) if read is None else read.bounds

    @property
    def bounds(self) -> Iterable[tuple[Watches, ...]]:
        """The watches of all awaited and refused targets."""
        yield from (read.bounds for read in self._awaited.values())
        yield from self._refused.values()

    @property
    def refused(self) -> Iterable[FetchTarget]:
        """The targets for which no read was begun because too many are under way."""
        return self._refused

    def is_enough(self, size_bytes: int, min_bytes: int) -> bool:
        """Whether to answer with `size_bytes`, which include the remote records."""
        if self.is_awaited:
            return size_bytes - self.size_bytes >= max(1, min_bytes)
        return self.size_bytes > 0 or size_bytes >= min_bytes

    def failures(self) -> list[tuple[FetchTarget, ErrorCode]]:
        """Return the errors of unfinished reads, for a request whose time is over."""
        if self.is_awaited:
            self._reads.note_expired()
        return [(target, read.error) for target, read in self._awaited.items() if read.error is not ErrorCode.NONE]

    def delivered(self, listed: Iterable[FetchTarget]) -> None:
        """Note that the response contains the records of `listed`."""
        for target in listed:
            read = self._done.get(target)
            if read is not None:
                read.delivered()

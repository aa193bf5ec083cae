"""The part of a fetch request that is in remote storage (KIP-405).

All its places are read at once. The answer leaves when all are done, or a moment after the first is; local records
that are enough never wait for it, and what is done too late is kept for the next request. How long a request waits for
remote storage is the broker's to say (KIP-1018), not the client's, whose time is meant for records yet to be written.

What reads, and how, is not known here: a broker that has no remote storage never loads it.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from broker.runtime.loop.waiters import Watches
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import FetchParams, ReadLimits
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget, LogReadResult
from protocol.errors import ErrorCode

LINGER_MS: Final = 10
"""For how long what is done waits for the rest: many places cost few requests, yet the slowest sets nobody's pace."""


class RemoteRead(Protocol):
    """One place being read. One of `bounds` fires when it is done, or when the partition is another."""

    @property
    def bounds(self) -> tuple[Watches, ...]: ...

    @property
    def error(self) -> ErrorCode:
        """While it is not done: what to tell a reader whose time is over."""

    @property
    def is_done(self) -> bool: ...

    @property
    def aborted(self) -> Sequence[tuple[int, int]] | None: ...

    def records(self, max_bytes: int, *, min_one: bool) -> memoryview: ...

    def delivered(self) -> None: ...


class RemoteReading(Protocol):
    """`broker.runtime.remote_log.reads.RemoteReads`."""

    @property
    def wait_max_ms(self) -> int: ...

    @property
    def freed(self) -> Watches:
        """Fires when one of those that were refused may try again."""

    def look(self, partition: Partition, target: FetchTarget, reader: FetchParams, /) -> RemoteRead | None:
        """The read from where a target stands; None if too many are under way."""

    def note_expired(self) -> None: ...


class RemotePart:
    """What one request wants of remote storage, and what of it is there. `size_bytes` is as of the present look."""

    __slots__ = ("_awaited", "_done", "_reading", "_refused", "size_bytes")

    def __init__(self, reading: RemoteReading) -> None:
        self._reading = reading
        self._awaited: dict[FetchTarget, RemoteRead] = {}
        self._refused: dict[FetchTarget, tuple[Watches, ...]] = {}
        self._done: dict[FetchTarget, RemoteRead] = {}
        self.size_bytes = 0

    @property
    def is_awaited(self) -> bool:
        """Whether something may come yet."""
        return bool(self._awaited or self._refused)

    @property
    def wait_max_ms(self) -> int:
        return self._reading.wait_max_ms

    def begin_look(self, due: Sequence[FetchTarget]) -> None:
        """These are looked at anew."""
        self.size_bytes = 0
        for target in due:
            self._awaited.pop(target, None)
            self._done.pop(target, None)
            self._refused.pop(target, None)

    def read(
        self, partition: Partition, target: FetchTarget, reader: FetchParams, limits: ReadLimits, moved: LogReadResult
    ) -> LogReadResult:
        """What was read for a target, within the limits, with the marks of `moved`; nothing as yet if it is awaited."""
        result = LogReadResult(
            ErrorCode.NONE,
            moved.high_watermark,
            moved.last_stable_offset,
            moved.log_start_offset,
            aborted=() if reader.isolation is FetchIsolation.LAST_STABLE else None,
        )
        read = self._reading.look(partition, target, reader)
        if read is None:
            self._refused[target] = (self._reading.freed, partition.marks)
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
        """What a target rests on that is awaited."""
        read = self._awaited.get(target)
        return self._refused.get(target) if read is None else read.bounds

    @property
    def refused(self) -> Iterable[FetchTarget]:
        """Those that nothing was begun for."""
        return self._refused

    def is_enough(self, size_bytes: int, min_bytes: int) -> bool:
        """Whether an answer of `size_bytes`, of which some are from here, should leave."""
        if self.is_awaited:
            return size_bytes - self.size_bytes >= max(1, min_bytes)
        return self.size_bytes > 0 or size_bytes >= min_bytes

    def failures(self) -> list[tuple[FetchTarget, ErrorCode]]:
        """What has to be told now that the time is over."""
        if self.is_awaited:
            self._reading.note_expired()
        return [(target, read.error) for target, read in self._awaited.items() if read.error is not ErrorCode.NONE]

    def delivered(self, listed: Iterable[FetchTarget]) -> None:
        """What was read for these is in the answer."""
        for target in listed:
            read = self._done.get(target)
            if read is not None:
                read.delivered()

"""One read from remote storage: its position, its state and its result."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from broker.runtime.loop.waiters import Watches
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.reads import FetchIsolation
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from storage.index.transaction import AbortedTxn
from storage.tiered.segments.batch_stream import RemoteBatches, whole_batches


class ReadKey(NamedTuple):
    """A position to read from. The leader epoch is part of it: another epoch may have another history."""

    topic_id: Uuid
    partition: int
    leader_epoch: LeaderEpoch
    offset: int
    isolation: FetchIsolation


class SegmentPosition(NamedTuple):
    """The byte position in a remote segment where the next batch of a sequential read begins."""

    segment: Uuid
    position: int


class RemoteReadResult(NamedTuple):
    """Batches, and the aborted transactions among them as (producer id, first offset); None for read_uncommitted."""

    data: memoryview
    aborted: list[tuple[int, int]] | None


class RemoteRead:
    """One read. `done` fires when `result` is set.

    Until then `error` is the error for a reader whose time is over. One of `bounds` fires when the read is done or the
    partition changes.
    """

    __slots__ = (
        "_on_delivered",
        "attempts",
        "bounds",
        "done",
        "error",
        "is_prefetch",
        "key",
        "max_bytes",
        "next",
        "partition",
        "position",
        "result",
        "task",
    )

    def __init__(
        self, key: ReadKey, partition: Partition, max_bytes: int, on_delivered: "Callable[[RemoteRead], None]"
    ) -> None:
        self._on_delivered = on_delivered
        self.key = key
        self.partition = partition
        self.max_bytes = max_bytes
        self.done = Watches()
        self.bounds = (self.done, partition.marks)
        self.result: RemoteReadResult | None = None
        self.error = ErrorCode.NONE
        self.attempts = 0
        self.position: SegmentPosition | None = None
        """Where the read begins, if that is known; the read is sequential then."""
        self.is_prefetch = False
        """Whether no request has asked for the read yet."""
        self.next: tuple[ReadKey, SegmentPosition] | None = None
        """The position after the block that contains the result."""
        self.task: asyncio.Task[None] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether a request waits for the read at the moment."""
        return bool(self.done.armed)

    @property
    def is_done(self) -> bool:
        return self.result is not None

    @property
    def aborted(self) -> list[tuple[int, int]] | None:
        """The result's aborted transactions as (producer id, first offset); None for read_uncommitted."""
        return None if self.result is None else self.result.aborted

    def records(self, max_bytes: int, *, min_one: bool) -> memoryview:
        """Return the result's batches that end within `max_bytes`; the first batch whole if `min_one`."""
        return memoryview(b"") if self.result is None else whole_batches(self.result.data, max_bytes, min_one=min_one)

    def delivered(self) -> None:
        """Note that a response contains the result."""
        self._on_delivered(self)


def read_result(offset: int, part: RemoteBatches, aborted: list[AbortedTxn] | None) -> RemoteReadResult:
    """Return the result of a read from `offset`, with the aborted transactions that have records in `part`.

    A transaction that ended before `offset` must be left out: the consumer would drop what the same producer wrote
    next.
    """
    if aborted is None:
        return RemoteReadResult(part.data, None)
    upper = part.next_offset
    overlapping = [
        (txn.producer_id, txn.first_offset) for txn in aborted if txn.last_offset >= offset and txn.first_offset < upper
    ]
    return RemoteReadResult(part.data, overlapping)

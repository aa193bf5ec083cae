"""The leader's accumulator of appends: one batch per append, several batches per write.

The first append to an idle log is written at once. Appends within the linger time after a write are accumulated and
share one write and one fsync. Each append is still committed or lost as a whole.
"""

from collections.abc import Sequence
from typing import NamedTuple

from broker.quorum.identity import Instant
from broker.quorum.settings import MAX_BATCH_BYTES
from protocol.ids import LeaderEpoch, Offset
from protocol.records.builder import Record, build_batch


class NotLeader(Exception):
    """An append in an epoch in which this node is not, or no longer, the leader."""


class BatchTooLarge(Exception):
    """The records of one append do not fit into a batch of MAX_BATCH_BYTES."""


class Appended(NamedTuple):
    """The offsets and timestamp of an appended batch, which is not committed yet."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class Appends:
    """The batches that a leader of one epoch has accepted and not yet written."""

    def __init__(self, epoch: LeaderEpoch, next_offset: Offset, linger_ms: int) -> None:
        self._epoch = epoch
        self._linger_ms = linger_ms
        self._batches: list[bytes] = []
        self._size = 0
        self._write_at = 0.0
        self.next_offset = next_offset
        """The offset that the next append gets."""

    def add(self, frames: Sequence[bytes], now: Instant) -> Appended:
        """Add framed records as one batch. Raise BatchTooLarge."""
        base_offset, time = self.next_offset, now.wall_ms
        records = [Record(time, None, frame) for frame in frames]
        batch = build_batch(records, base_offset=base_offset, leader_epoch=self._epoch)
        if len(batch) > MAX_BATCH_BYTES:
            raise BatchTooLarge(
                f"a batch of {len(frames)} records has {len(batch)} bytes, the limit is {MAX_BATCH_BYTES}"
            )
        self._batches.append(batch)
        self._size += len(batch)
        self.next_offset = Offset(self.next_offset + len(frames))
        return Appended(base_offset, Offset(self.next_offset - 1), time)

    @property
    def write_at(self) -> float | None:
        """The monotonic time at which to write the accumulated batches; None if there are none."""
        if not self._batches:
            return None
        return 0.0 if self._size > MAX_BATCH_BYTES else self._write_at

    def take(self, now: Instant) -> bytes:
        """Remove and return the accumulated batches for writing."""
        batches, self._batches, self._size = self._batches, [], 0
        self._write_at = now.monotonic_ms + self._linger_ms
        return batches[0] if len(batches) == 1 else b"".join(batches)

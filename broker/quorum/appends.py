"""Appends of a leader on their way into the log: each one batch, several of them one write.

The first append of an idle log is written at once. What comes within the linger time after a write began is gathered,
so that one write and one fsync serve all of it; each append still commits or vanishes as a whole.
"""

from collections.abc import Sequence
from typing import NamedTuple

from broker.quorum.identity import Instant
from broker.quorum.settings import MAX_BATCH_BYTES
from protocol.records.builder import Record, build_batch


class NotLeader(Exception):
    """An append at an epoch in which this node does not lead (any more)."""


class BatchTooLarge(Exception):
    """Records that cannot take effect as one: their batch exceeds MAX_BATCH_BYTES."""


class Appended(NamedTuple):
    """Where an append landed, and the time its batch carries. It promises nothing before its commit."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


class Appends:
    """What a leader of one epoch has accepted and not written yet."""

    def __init__(self, epoch: int, next_offset: int, linger_ms: int) -> None:
        self._epoch = epoch
        self._linger_ms = linger_ms
        self._batches: list[bytes] = []
        self._size = 0
        self._write_at = 0.0
        self.next_offset = next_offset
        """The offset that the next append gets."""

    def add(self, frames: Sequence[bytes], now: Instant) -> Appended:
        """One batch of framed records. Raises BatchTooLarge."""
        base_offset, time = self.next_offset, now.wall_ms
        records = [Record(time, None, frame) for frame in frames]
        batch = build_batch(records, base_offset=base_offset, leader_epoch=self._epoch)
        if len(batch) > MAX_BATCH_BYTES:
            raise BatchTooLarge(f"{len(frames)} records need {len(batch)} bytes")
        self._batches.append(batch)
        self._size += len(batch)
        self.next_offset += len(frames)
        return Appended(base_offset, self.next_offset - 1, time)

    @property
    def write_at(self) -> float | None:
        """When to write what is gathered, as a monotonic time; None if there is nothing."""
        if not self._batches:
            return None
        return 0.0 if self._size > MAX_BATCH_BYTES else self._write_at

    def take(self, now: Instant) -> bytes:
        """What is gathered, to be written now."""
        batches, self._batches, self._size = self._batches, [], 0
        self._write_at = now.monotonic_ms + self._linger_ms
        return batches[0] if len(batches) == 1 else b"".join(batches)

"""Leader epochs of the deleted records of a local segment, below the first epoch that the log still knows.

The log forgets the epochs below its start offset, but a segment that the start lies in still has the batches. A leader
with an older log start offset compares them with its own history, so the metadata of the copy need the true ones.
Epochs ascend, so each one's end is found by bisection; a copy begins on the event loop and must not read the segment.
"""

from collections.abc import Sequence
from typing import Final

from protocol.ids import LeaderEpoch
from protocol.records.batch import NO_LEADER_EPOCH, BatchHeader
from protocol.records.errors import MalformedBatch
from storage.directories.checkpoints import LeaderEpochEntry
from storage.segment import LogSegment

_MOST_EPOCHS: Final = 32
"""Segments with more epochs of deleted records are described as before: with the first known epoch."""


def with_deleted_epochs(history: Sequence[LeaderEpochEntry], segment: LogSegment) -> list[LeaderEpochEntry]:
    """Return `history` with the epochs of the segment's batches below it.

    Unchanged if those epochs do not ascend up to the first known one: no checksum covers them. Raises OSError.
    """
    if not history or history[0].start_offset <= segment.base_offset:
        return list(history)
    first = history[0]
    try:
        deleted = _epochs_below(segment, first.start_offset)
    except MalformedBatch:
        return list(history)
    epochs = [entry.epoch for entry in deleted]
    is_sound = 0 < len(epochs) <= _MOST_EPOCHS and epochs == sorted(set(epochs)) and epochs[-1] <= first.epoch
    if not is_sound or epochs[0] == NO_LEADER_EPOCH:
        return list(history)
    return [*deleted, *(history[1:] if epochs[-1] == first.epoch else history)]


def _epochs_below(segment: LogSegment, end: int) -> list[LeaderEpochEntry]:
    """Return the epochs of the batches that begin below `end`; one more than `_MOST_EPOCHS` at most."""
    found: list[LeaderEpochEntry] = []
    batch = _batch_at(segment, segment.base_offset)
    while batch is not None and batch.base_offset < end and len(found) <= _MOST_EPOCHS:
        epoch = LeaderEpoch(batch.leader_epoch)
        found.append(LeaderEpochEntry(epoch, batch.base_offset if found else segment.base_offset))
        batch = _batch_at(segment, _end_of_epoch(segment, batch, end))
    return found


def _end_of_epoch(segment: LogSegment, batch: BatchHeader, end: int) -> int:
    """Return the end of the last batch with the epoch of `batch`, at most `end` unless it reaches beyond."""
    low, high = batch.next_offset, end
    while low < high:
        middle = (low + high) // 2
        present = _batch_at(segment, middle)
        if present is not None and present.leader_epoch == batch.leader_epoch:
            low = present.next_offset
        else:
            high = middle
    return low


def _batch_at(segment: LogSegment, offset: int) -> BatchHeader | None:
    """Return the header of the first batch that ends at or above an offset."""
    position = segment.find(offset)
    return None if position is None else next((header for _, header in segment.headers(position)), None)

"""The leader epoch cache of a log: the start offset of each leader epoch (KIP-101, KIP-279).

Followers and consumers use it to find the offset where their history diverges from the leader's. The cache is in
memory; `save` writes the checkpoint file and must run before the recovery point passes the offsets it describes.
Recovery derives epochs above the recovery point from the batches.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from protocol.ids import LeaderEpoch
from storage.directories.checkpoints import LeaderEpochEntry, read_epochs, write_epochs
from storage.files import FileSystem

UNDEFINED_EPOCH = LeaderEpoch(-1)
UNDEFINED_OFFSET = -1


class EpochAndOffset(NamedTuple):
    """A leader epoch and its end offset (exclusive); (-1, -1) if unknown."""

    epoch: LeaderEpoch
    end_offset: int


def _epoch(entry: LeaderEpochEntry) -> LeaderEpoch:
    return entry.epoch


def _start(entry: LeaderEpochEntry) -> int:
    return entry.start_offset


class LeaderEpochs:
    """The epochs of one log.

    A change replaces the list, so that a concurrent `save` sees either the old or the new list.
    """

    def __init__(self, fs: FileSystem, path: str, entries: list[LeaderEpochEntry]) -> None:
        self._fs = fs
        self._path = path
        self.latest_epoch = UNDEFINED_EPOCH
        """The latest leader epoch; -1 without an entry. An attribute, because each append reads it."""
        self.entries = entries
        self._saved = entries

    @classmethod
    def load(cls, fs: FileSystem, path: str) -> "LeaderEpochs":
        """Load the checkpoint file. Raises CorruptCheckpoint."""
        return cls(fs, path, read_epochs(fs, path))

    @property
    def entries(self) -> list[LeaderEpochEntry]:
        """The epochs with their start offsets, ascending in both."""
        return self._entries

    @entries.setter
    def entries(self, entries: list[LeaderEpochEntry]) -> None:
        self._entries = entries
        self.latest_epoch = entries[-1].epoch if entries else UNDEFINED_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: int) -> None:
        """Start `epoch` at `start_offset` and drop contradicting later entries. Raises ValueError for negative
        arguments.
        """
        if self.entries and epoch == self.entries[-1].epoch and start_offset >= self.entries[-1].start_offset:
            return
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}")
        kept = min(bisect_left(self.entries, epoch, key=_epoch), bisect_left(self.entries, start_offset, key=_start))
        self.entries = [*self.entries[:kept], LeaderEpochEntry(epoch, start_offset)]

    def restore_below(self, history: Iterable[LeaderEpochEntry]) -> bool:
        """Add the epochs before the first known one from `history`, a copy that agrees with this log there.

        Return whether anything was added.
        """
        if not self.entries:
            return False
        first = self.entries[0]
        below = [one for one in history if one.start_offset < first.start_offset and one.epoch <= first.epoch]
        if not below:
            return False
        self.entries = [*below, *(one for one in self.entries if one.epoch > below[-1].epoch)]
        return True

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: int) -> EpochAndOffset:
        """Return the end offset of `epoch`, or of the greatest epoch below it; undefined above the latest epoch."""
        if epoch == UNDEFINED_EPOCH or epoch > self.latest_epoch:
            return EpochAndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest_epoch:
            return EpochAndOffset(epoch, log_end_offset)
        following = bisect_right(self.entries, epoch, key=_epoch)
        if following == 0:
            return EpochAndOffset(epoch, self.entries[0].start_offset)
        return EpochAndOffset(self.entries[following - 1].epoch, self.entries[following].start_offset)

    def epoch_for_offset(self, offset: int) -> LeaderEpoch | None:
        """Return the epoch of the record at `offset`; None before the first known epoch."""
        following = bisect_right(self.entries, offset, key=_start)
        return self.entries[following - 1].epoch if following else None

    def truncate_from_end(self, offset: int) -> None:
        """Drop the epochs that begin at or after `offset`."""
        kept = bisect_left(self.entries, offset, key=_start)
        if kept < len(self.entries):
            self.entries = self.entries[:kept]

    def truncate_from_start(self, offset: int) -> None:
        """Drop the epochs below `offset`; the epoch that spans `offset` then begins there."""
        gone = bisect_right(self.entries, offset, key=_start)
        if gone:
            spanning = LeaderEpochEntry(self.entries[gone - 1].epoch, offset)
            self.entries = [spanning, *self.entries[gone:]]

    def clear(self) -> None:
        self.entries = []

    def replace(self, entries: Iterable[LeaderEpochEntry]) -> None:
        """Replace the entries by others that ascend in both fields."""
        self.entries = list(entries)

    def save(self) -> None:
        """Write the checkpoint durably if the entries changed since the last save; may run beside changes."""
        entries = self.entries
        if entries != self._saved:
            write_epochs(self._fs, self._path, entries)
            self._saved = entries

"""The leader-epoch cache of a log: which leader wrote from which offset on (KIP-101, KIP-279).

Followers and consumers find with it where their history parts from the leader's. Held in memory; `save` writes the
checkpoint file, and must have run before the recovery point passes what it describes: everything above the
recovery point is learnt again from the batches themselves.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from storage.directories.checkpoints import EpochEntry, read_epochs, write_epochs
from storage.files import FileSystem

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochAndOffset(NamedTuple):
    """The last offset + 1 of an epoch; (-1, -1) where nothing is known."""

    epoch: int
    end_offset: int


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


def _start(entry: EpochEntry) -> int:
    return entry.start_offset


class LeaderEpochs:
    """`entries` ascend in both fields; a change puts a new list in the place of the old, so that a thread that saves
    sees one or the other.
    """

    def __init__(self, fs: FileSystem, path: str, entries: list[EpochEntry]) -> None:
        self._fs = fs
        self._path = path
        self.entries = entries
        self._saved = entries

    @classmethod
    def load(cls, fs: FileSystem, path: str) -> "LeaderEpochs":
        """Raises CorruptCheckpoint."""
        return cls(fs, path, read_epochs(fs, path))

    @property
    def latest_epoch(self) -> int:
        """-1 if there is none."""
        return self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`; what contradicts it further on is dropped. ValueError if
        negative.
        """
        if self.entries and epoch == self.entries[-1].epoch and start_offset >= self.entries[-1].start_offset:
            return
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}")
        kept = min(bisect_left(self.entries, epoch, key=_epoch), bisect_left(self.entries, start_offset, key=_start))
        self.entries = [*self.entries[:kept], EpochEntry(epoch, start_offset)]

    def restore_below(self, history: Iterable[EpochEntry]) -> bool:
        """Notes what was before the first epoch that is known, by the `history` of a copy that agrees with this log
        there; whether that is anything.
        """
        if not self.entries:
            return False
        first = self.entries[0]
        below = [one for one in history if one.start_offset < first.start_offset and one.epoch <= first.epoch]
        if not below:
            return False
        self.entries = [*below, *(one for one in self.entries if one.epoch > below[-1].epoch)]
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochAndOffset:
        """Where `epoch`, or the greatest epoch below it, ended; undefined for epochs that are not yet known."""
        if epoch == UNDEFINED_EPOCH or epoch > self.latest_epoch:
            return EpochAndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest_epoch:
            return EpochAndOffset(epoch, log_end_offset)
        following = bisect_right(self.entries, epoch, key=_epoch)
        if following == 0:
            return EpochAndOffset(epoch, self.entries[0].start_offset)
        return EpochAndOffset(self.entries[following - 1].epoch, self.entries[following].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None if it lies before the first known."""
        following = bisect_right(self.entries, offset, key=_start)
        return self.entries[following - 1].epoch if following else None

    def truncate_from_end(self, offset: int) -> None:
        """Drops the epochs that begin at or after `offset`."""
        kept = bisect_left(self.entries, offset, key=_start)
        if kept < len(self.entries):
            self.entries = self.entries[:kept]

    def truncate_from_start(self, offset: int) -> None:
        """Drops what lies below `offset`; the epoch that spans it begins there from now on."""
        gone = bisect_right(self.entries, offset, key=_start)
        if gone:
            spanning = EpochEntry(self.entries[gone - 1].epoch, offset)
            self.entries = [spanning, *self.entries[gone:]]

    def clear(self) -> None:
        self.entries = []

    def replace(self, entries: Iterable[EpochEntry]) -> None:
        """Puts another history, which ascends in both fields, in the place of this one."""
        self.entries = list(entries)

    def save(self) -> None:
        """Writes the checkpoint durably if anything changed since; may run beside changes in another thread."""
        entries = self.entries
        if entries != self._saved:
            write_epochs(self._fs, self._path, entries)
            self._saved = entries

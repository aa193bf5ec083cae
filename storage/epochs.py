"""The leader-epoch cache of a log: which leader wrote from which offset on (KIP-101, KIP-279).

Followers and consumers find with it where their history parts from the leader's. Held in memory; `save` writes the
checkpoint file, and must have run before the recovery point passes what it describes: everything above the
recovery point is learnt again from the batches themselves.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from storage.checkpoints import EpochStart, read_epochs, write_epochs
from storage.files import FileSystem

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEnd(NamedTuple):
    """The last offset + 1 of an epoch; (-1, -1) where nothing is known."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """Two parallel ascending lists."""

    def __init__(self, fs: FileSystem, path: str, entries: list[EpochStart]) -> None:
        self._fs = fs
        self._path = path
        self._epochs = [entry.epoch for entry in entries]
        self._starts = [entry.start_offset for entry in entries]
        self._changes = 0
        self._saved_changes = 0

    @classmethod
    def load(cls, fs: FileSystem, path: str) -> "LeaderEpochs":
        """Raises CorruptCheckpoint."""
        return cls(fs, path, read_epochs(fs, path))

    @property
    def latest_epoch(self) -> int:
        """-1 if there is none."""
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    @property
    def entries(self) -> list[EpochStart]:
        return [EpochStart(*entry) for entry in zip(self._epochs, self._starts, strict=True)]

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`; what contradicts it further on is dropped. ValueError if
        negative.
        """
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}")
        self._keep(min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset)))
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._changes += 1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where `epoch`, or the greatest epoch below it, ended; undefined for epochs that are not yet known."""
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        following = bisect_right(self._epochs, epoch)
        if following == 0:
            return EpochEnd(epoch, self._starts[0])
        return EpochEnd(self._epochs[following - 1], self._starts[following])

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None if it lies before the first known."""
        following = bisect_right(self._starts, offset)
        return self._epochs[following - 1] if following else None

    def truncate_from_end(self, offset: int) -> None:
        """Drops the epochs that begin at or after `offset`."""
        self._keep(bisect_left(self._starts, offset))

    def truncate_from_start(self, offset: int) -> None:
        """Drops what lies below `offset`; the epoch that spans it begins there from now on."""
        gone = bisect_right(self._starts, offset)
        if gone == 0 or (gone == 1 and self._starts[0] == offset):
            return
        del self._epochs[: gone - 1]
        del self._starts[: gone - 1]
        self._starts[0] = offset
        self._changes += 1

    def clear(self) -> None:
        self._keep(0)

    def _keep(self, count: int) -> None:
        if count < len(self._epochs):
            del self._epochs[count:]
            del self._starts[count:]
            self._changes += 1

    def save(self) -> None:
        """Writes the checkpoint durably if anything changed since; safe beside changes in another thread."""
        changes, entries = self._changes, self.entries
        if changes != self._saved_changes:
            write_epochs(self._fs, self._path, entries)
            self._saved_changes = changes

"""The producer snapshots of a log directory (`N.snapshot`): which there are, taking one, finding the best to load.

A snapshot is only an aid: one that is lost or torn costs a longer replay. It is written in place and synced by the
flush that moves the recovery point beyond it.
"""

from storage.errors import CorruptCheckpoint
from storage.files import FileSystem, join, read_file, sync_path, write_file
from storage.producer_state import ProducerState
from storage.segment import segment_file_name

SNAPSHOT_SUFFIX = ".snapshot"


class ProducerSnapshots:
    """`offsets` are those of the snapshots on disk, ascending."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        names = (name.removesuffix(SNAPSHOT_SUFFIX) for name in fs.list(directory) if name.endswith(SNAPSHOT_SUFFIX))
        self.offsets = sorted(int(name) for name in names if name.isdigit())
        self._unsynced: set[int] = set()

    def path(self, offset: int) -> str:
        return join(self._directory, segment_file_name(offset, SNAPSHOT_SUFFIX))

    def take(self, state: ProducerState) -> None:
        """Writes the state at its end offset, unless nothing was applied since the last snapshot."""
        offset = state.end_offset
        if offset == state.snapshot_offset:
            return
        self._write(state, sync=False)
        self._unsynced.add(offset)

    def put(self, state: ProducerState) -> None:
        """Writes a state that comes from elsewhere at its end offset, and syncs it; its name is not synced."""
        self._write(state, sync=True)

    def _write(self, state: ProducerState, *, sync: bool) -> None:
        offset = state.end_offset
        write_file(self._fs, self.path(offset), state.encode(), sync=sync)
        state.snapshot_offset = offset
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])

    def sync(self, up_to: int) -> None:
        """fsync of the snapshots written since, up to offset `up_to`; may run beside `take`."""
        for offset in [offset for offset in self._unsynced.copy() if offset <= up_to]:
            if self._fs.exists(self.path(offset)):
                sync_path(self._fs, self.path(offset))
            self._unsynced.discard(offset)

    def load_newest(self, up_to: int) -> ProducerState | None:
        """The newest readable snapshot at or below `up_to`; unreadable ones on the way are removed. None without
        one.
        """
        for offset in reversed([offset for offset in self.offsets if offset <= up_to]):
            try:
                return ProducerState.decode(self.path(offset), read_file(self._fs, self.path(offset)), offset)
            except CorruptCheckpoint:
                self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        self._fs.remove(self.path(offset))
        self.offsets = [other for other in self.offsets if other != offset]
        self._unsynced.discard(offset)

    def remove_above(self, offset: int, *, but: int | None = None) -> None:
        for other in [other for other in self.offsets if other > offset and other != but]:
            self.remove(other)

    def remove_below(self, offset: int) -> None:
        for other in [other for other in self.offsets if other < offset]:
            self.remove(other)

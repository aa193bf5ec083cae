"""The producer snapshots of a log directory (`N.snapshot`).

A snapshot only saves time: a lost or torn one costs a longer replay. A snapshot is written in place and synced by the
flush that moves the recovery point beyond it.
"""

from storage.errors import CorruptCheckpoint
from storage.files import FileSystem, join, read_file, sync_path, write_file
from storage.producer_state import ProducerState
from storage.segment import segment_file_name

SNAPSHOT_SUFFIX = ".snapshot"


class ProducerSnapshots:
    """The snapshots on disk. `offsets` ascend."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        names = (name.removesuffix(SNAPSHOT_SUFFIX) for name in fs.list(directory) if name.endswith(SNAPSHOT_SUFFIX))
        self.offsets = sorted(int(name) for name in names if name.isdigit())
        self._unsynced: set[int] = set()

    def path(self, offset: int) -> str:
        return join(self._directory, segment_file_name(offset, SNAPSHOT_SUFFIX))

    def take(self, state: ProducerState) -> None:
        """Write the state at its end offset, unless no batch was applied since the last snapshot."""
        offset = state.end_offset
        if offset == state.snapshot_offset:
            return
        self._write(state, sync=False)
        self._unsynced.add(offset)

    def put(self, state: ProducerState) -> None:
        """Write and sync a state that comes from another log at its end offset; the directory is not synced."""
        self._write(state, sync=True)

    def _write(self, state: ProducerState, *, sync: bool) -> None:
        offset = state.end_offset
        write_file(self._fs, self.path(offset), state.encode(), sync=sync)
        state.snapshot_offset = offset
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])

    def sync(self, up_to: int) -> None:
        """Sync the snapshots up to offset `up_to` that were written since the last call; may run beside `take`."""
        for offset in [offset for offset in self._unsynced.copy() if offset <= up_to]:
            if self._fs.exists(self.path(offset)):
                sync_path(self._fs, self.path(offset))
            self._unsynced.discard(offset)

    def load_newest(self, up_to: int) -> ProducerState | None:
        """Return the newest readable snapshot at or below `up_to`, or None; remove unreadable ones on the way."""
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

"""A node's disk, and at every moment what is on it: the metadata log batch by batch, snapshots, quorum-state.

The checker believes no replica's word about its log. It reads along as bytes are written, and knows which of them
would survive the worst crash: those that were synced, in files whose names were.
"""

import errno
import json
import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, Protocol

from broker.quorum.identity import LogPosition, SnapshotId
from broker.quorum.voters import VoterSet
from protocol.primitives import Buffer, Uuid, uuid_from_text
from protocol.records.batch import crc_is_valid
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.quorum_control import read_control_state
from storage.files import File, base_name, parent
from storage.log_snapshots import _OWN_MARK, PART_SUFFIX
from tests.simulation.world import PowerFailure
from tests.support.memory_files import (
    MemoryFile,
    MemoryFileSystem,
    Operation,
    _Cut,
    _Directory,
    _FileNode,
    _Node,
    _Write,
)

METADATA_DIRECTORY: Final = "/data/__cluster_metadata-0"
_HEADER: Final = struct.Struct(">qiibIhi")  # base offset, length, epoch, magic, crc, attributes, last offset delta
_CONTROL_FLAG: Final = 0x20
_LENGTH_PREFIX: Final = 12
_ID_DIGITS: Final = 20


class LoggedBatch(NamedTuple):
    """A batch as it lies in a segment; `voters` and `kraft_version` are what its control records say, if anything."""

    base_offset: int
    end_offset: int
    epoch: int
    crc: int
    end_position: int
    voters: VoterSet | None
    kraft_version: int | None

    def is_same(self, other: "LoggedBatch") -> bool:
        """Whether both are the same records of the same epoch at the same offsets."""
        return self[:4] == other[:4]


class PersistedElection(NamedTuple):
    """What a quorum-state file says; -1 is nobody."""

    epoch: int
    leader_id: int
    voted_id: int
    voted_directory_id: Uuid | None


class DiskWitness(Protocol):
    """Who checks what nodes do to their disks."""

    def on_removed(self, node_id: int, batches: Sequence[LoggedBatch]) -> None: ...

    def on_snapshot(self, node_id: int, snapshot_id: SnapshotId, content: bytes, *, is_fetched: bool) -> None: ...


@dataclass(slots=True, eq=False)
class _SegmentNode(_FileNode):
    """A log segment that knows its batches, both as written and as durable."""

    batches: list[LoggedBatch] = field(default_factory=list)
    durable_batches: list[LoggedBatch] = field(default_factory=list)
    same_count: int = 0
    """So many batches at the beginning are the same in both lists."""

    def crash(self, random: Random) -> None:
        _FileNode.crash(self, random)
        self.batches = list(_intact_batches(self.content))
        self.durable_batches = list(self.batches)
        self.same_count = len(self.batches)

    def note_write(self, position: int, data: bytes) -> None:
        self.note_cut(position)
        self.batches.extend(_batches(data, position))

    def note_cut(self, size: int) -> list[LoggedBatch]:
        """Returns the batches that this removes."""
        batches = self.batches
        if not batches or batches[-1].end_position <= size:
            return []
        keep = bisect_left(batches, size + 1, key=lambda batch: batch.end_position)
        removed = batches[keep:]
        del batches[keep:]
        self.same_count = min(self.same_count, keep)
        return removed

    def note_sync(self) -> None:
        durable, same = self.durable_batches, self.same_count
        del durable[same:]
        durable.extend(self.batches[same:])
        self.same_count = len(durable)


class _WatchedFile(MemoryFile):
    def __init__(self, disk: "SimulatedDisk", path: str, node: _FileNode) -> None:
        super().__init__(disk, path, node)
        self._disk = disk

    def _apply(self, change: _Write | _Cut) -> None:
        node = self._node
        if isinstance(node, _SegmentNode):
            if isinstance(change, _Cut):
                self._disk.tell_removed(node.note_cut(change.size))
            else:
                node.note_write(change.position, change.data)
            self._disk.version += 1
        super()._apply(change)

    def sync(self) -> None:
        super().sync()
        if isinstance(self._node, _SegmentNode):
            self._node.note_sync()


class SimulatedDisk(MemoryFileSystem):
    """`version` grows with every change that matters to the checker. `fail_after` operations the power fails."""

    def __init__(self, node_id: int, witness: DiskWitness) -> None:
        super().__init__()
        self.node_id = node_id
        self.version = 0
        self.fail_after: int | None = None
        self.error_after: int | None = None
        self.has_failed = False
        self.is_starting = False
        """While its node starts and mends it, what goes was never whole; nor is it where a write failed."""
        self._witness = witness
        self._segments: list[_SegmentNode] | None = None
        self._durable_segments: list[_SegmentNode] | None = None
        self._election: tuple[bytes, PersistedElection] | None = None
        self.controls: dict[SnapshotId, tuple[VoterSet | None, int]] = {}
        """Voters and kraft.version as the header of each snapshot says."""

    # Faults

    def maybe_fail(self, operation: Operation, path: str) -> None:
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                self.fail_after = None
                raise PowerFailure
        if self.error_after is not None and operation in ("write", "sync", "rename"):
            self.error_after -= 1
            if self.error_after < 0:
                self.error_after = None
                self.has_failed = True
                raise OSError(errno.EIO, "the disk failed", path)

    def crash(self, random: Random) -> None:
        self.fail_after = self.error_after = None
        super().crash(random)
        self._names_changed()

    def forget_process(self) -> None:
        """The process is gone, the page cache is not: files that it had open are of no more use."""
        self.generation += 1
        self.locked.clear()

    def tell_removed(self, batches: Sequence[LoggedBatch]) -> None:
        if batches and not self.is_starting and not self.has_failed:
            self._witness.on_removed(self.node_id, batches)

    # FileSystem

    def open(self, path: str) -> File:
        self.maybe_fail("open", path)
        directory = self._directory(parent(path))
        name = base_name(path)
        node = directory.entries.get(name)
        if node is None:
            node = _SegmentNode() if name.endswith(".log") else _FileNode()
            directory.change({name: node})
            self._names_changed()
        if isinstance(node, _Directory):
            raise OSError(errno.EISDIR, "is a directory", path)
        return _WatchedFile(self, path, node)

    def open_existing(self, path: str) -> File:
        self.maybe_fail("open", path)
        return _WatchedFile(self, path, self._file(path))

    def rename(self, source: str, target: str) -> None:
        gone = self._find(source)
        super().rename(source, target)
        self._names_changed()
        if isinstance(gone, _SegmentNode) and not target.endswith(".log"):
            self.tell_removed(gone.batches)
        if target.endswith(".checkpoint"):
            is_fetched = source.endswith(PART_SUFFIX) and _OWN_MARK not in source
            self._tell_snapshot(base_name(target), bytes(self._file(target).content), is_fetched=is_fetched)

    def remove(self, path: str) -> None:
        gone = self._find(path)
        super().remove(path)
        self._names_changed()
        if isinstance(gone, _SegmentNode) and path.endswith(".log"):
            self.tell_removed(gone.batches)

    def sync_directory(self, directory: str) -> None:
        super().sync_directory(directory)
        self._names_changed()

    def _names_changed(self) -> None:
        self.version += 1
        self._segments = self._durable_segments = None

    def _tell_snapshot(self, name: str, content: bytes, *, is_fetched: bool) -> None:
        snapshot_id = snapshot_id_of(name)
        if snapshot_id is not None:
            self.controls[snapshot_id] = control_of(content)
            self._witness.on_snapshot(self.node_id, snapshot_id, content, is_fetched=is_fetched)

    # What is on it

    @property
    def log_end(self) -> LogPosition:
        """Of the batches as written, synced or not; without any, of the newest snapshot."""
        for segment in reversed(self._all_segments()):
            if segment.batches:
                last = segment.batches[-1]
                return LogPosition(last.epoch, last.end_offset)
        newest = self._newest_snapshot()
        return LogPosition(0, 0) if newest is None else newest.position

    def batches_between(self, start: int, end: int) -> list[LoggedBatch]:
        """Those that begin in [start, end), as written."""
        found: list[LoggedBatch] = []
        for segment in self._all_segments():
            batches = segment.batches
            if batches and batches[-1].base_offset >= start:
                first = bisect_left(batches, start, key=_base_offset)
                found.extend(batch for batch in batches[first:] if batch.base_offset < end)
        return found

    def batch_ending_at(self, end: int, *, durable: bool = False) -> LoggedBatch | None:
        for segment in reversed(self._all_durable_segments() if durable else self._all_segments()):
            batches = segment.durable_batches if durable else segment.batches
            if batches and batches[0].base_offset < end:
                index = bisect_left(batches, end, key=_end_offset)
                return batches[index] if index < len(batches) and batches[index].end_offset == end else None
        return None

    @property
    def durable_end(self) -> int:
        """The end of what the worst crash would leave of the log."""
        for segment in reversed(self._all_durable_segments()):
            if segment.durable_batches:
                return segment.durable_batches[-1].end_offset
        return 0

    def replayed_voters(self) -> VoterSet | None:
        """The last voters record, in the log or before it; None if there is none."""
        for segment in reversed(self._all_segments()):
            for batch in reversed(segment.batches):
                if batch.voters is not None:
                    return batch.voters
        newest = self._newest_snapshot()
        return None if newest is None else self.controls[newest][0]

    def replayed_kraft_version(self) -> int:
        """The last kraft.version, in the log or before it."""
        for segment in reversed(self._all_segments()):
            for batch in reversed(segment.batches):
                if batch.kraft_version is not None:
                    return batch.kraft_version
        newest = self._newest_snapshot()
        return 0 if newest is None else self.controls[newest][1]

    def _newest_snapshot(self) -> SnapshotId | None:
        ids = self.snapshot_ids()
        return ids[-1] if ids else None

    def snapshot_ids(self, *, durable: bool = False) -> list[SnapshotId]:
        """Of the snapshots in place, 0-0 included, the oldest first."""
        directory = self._find(METADATA_DIRECTORY)
        if not isinstance(directory, _Directory):
            return []
        entries = directory.durable if durable else directory.entries
        found = [
            snapshot_id
            for name, node in entries.items()
            if name.endswith(".checkpoint")
            and (snapshot_id := snapshot_id_of(name)) is not None
            and not (durable and isinstance(node, _FileNode) and node.unsynced)
        ]
        return sorted(found, key=lambda snapshot_id: snapshot_id.position)

    def election(self) -> PersistedElection:
        """What quorum-state says for sure; epoch 0 without one."""
        directory = self._find(METADATA_DIRECTORY)
        node = directory.durable.get("quorum-state") if isinstance(directory, _Directory) else None
        if not isinstance(node, _FileNode):
            return PersistedElection(0, -1, -1, None)
        if self._election is None or self._election[0] is not node.durable:
            self._election = node.durable, _election_of(node.durable)
        return self._election[1]

    def _all_segments(self) -> list[_SegmentNode]:
        if self._segments is None:
            self._segments = self._find_segments(durable=False)
        return self._segments

    def _all_durable_segments(self) -> list[_SegmentNode]:
        if self._durable_segments is None:
            self._durable_segments = self._find_segments(durable=True)
        return self._durable_segments

    def _find_segments(self, *, durable: bool) -> list[_SegmentNode]:
        directory = self._find(METADATA_DIRECTORY)
        if not isinstance(directory, _Directory):
            return []
        entries: dict[str, _Node] = directory.durable if durable else directory.entries
        return [
            node for name, node in sorted(entries.items()) if isinstance(node, _SegmentNode) and name.endswith(".log")
        ]


def snapshot_id_of(name: str) -> SnapshotId | None:
    """The id in `<end offset>-<epoch>.checkpoint`; None for other names."""
    digits, _, epoch = name.removesuffix(".checkpoint").partition("-")
    if len(digits) != _ID_DIGITS or not digits.isdigit() or not epoch.isdigit():
        return None
    return SnapshotId(int(digits), int(epoch))


def control_of(snapshot: Buffer) -> tuple[VoterSet | None, int]:
    """Voters and kraft.version in the first batch of a snapshot."""
    try:
        state = read_control_state(snapshot, 0, None)
    except (MalformedBatch, MalformedRecords):
        return None, 0
    if state is None:
        return None, 0
    return None if state.voters is None else VoterSet.of_record(state.voters), state.kraft_version


def _batches(data: bytes, position: int) -> list[LoggedBatch]:
    """The batches of one write that begins at `position` of its file."""
    found: list[LoggedBatch] = []
    start = 0
    while start + _HEADER.size <= len(data):
        base, length, epoch, _, crc, attributes, delta = _HEADER.unpack_from(data, start)
        stop = start + length + _LENGTH_PREFIX
        if stop > len(data):
            break
        voters, version = _control(data, start) if attributes & _CONTROL_FLAG else (None, None)
        found.append(LoggedBatch(base, base + delta + 1, epoch, crc, position + stop, voters, version))
        start = stop
    return found


def _intact_batches(content: Buffer) -> list[LoggedBatch]:
    """The batches of a file up to the first that is damaged."""
    end = 0
    while end + _HEADER.size <= len(content):
        length = _HEADER.unpack_from(content, end)[1]
        size = length + _LENGTH_PREFIX
        if length <= 0 or end + size > len(content) or not crc_is_valid(content, end, size):
            break
        end += size
    return _batches(bytes(content[:end]), 0)


def _control(data: bytes, start: int) -> tuple[VoterSet | None, int | None]:
    state = read_control_state(data, start, None)
    if state is None:
        return None, None
    return None if state.voters is None else VoterSet.of_record(state.voters), state.kraft_version or None


def _election_of(content: bytes) -> PersistedElection:
    state = json.loads(content)
    directory = state.get("votedDirectoryId")
    return PersistedElection(
        state["leaderEpoch"],
        state["leaderId"],
        state["votedId"],
        None if directory is None else uuid_from_text(directory),
    )


def _base_offset(batch: LoggedBatch) -> int:
    return batch.base_offset


def _end_offset(batch: LoggedBatch) -> int:
    return batch.end_offset

"""The disk of a quorum node, with its content at every moment: the metadata log, snapshots and quorum-state."""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from broker.quorum.identity import LogPosition, SnapshotId
from broker.quorum.membership.voters import VoterSet
from protocol.ids import LeaderEpoch, Offset
from protocol.primitives import Buffer, Uuid, uuid_from_text
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.quorum_control import read_control_state
from storage.files import base_name
from storage.log_snapshots import _IMPORT_MARK, _OWN_MARK, PART_SUFFIX
from tests.simulation.watched_disk import LoggedBatch, SegmentNode, WatchedDisk
from tests.support.fakes.memory_files import _Directory, _FileNode

METADATA_DIRECTORY: Final = "/data/__cluster_metadata-0"
_ID_DIGITS: Final = 20


class PersistedElection(NamedTuple):
    """Content of a quorum-state file; -1 means none."""

    epoch: int
    leader_id: int
    voted_id: int
    voted_directory_id: Uuid | None


class DiskWitness(Protocol):
    """Checker of changes of disks."""

    def on_removed(self, node_id: int, batches: Sequence[LoggedBatch]) -> None: ...

    def on_snapshot(self, node_id: int, snapshot_id: SnapshotId, content: bytes, *, is_fetched: bool) -> None: ...

    def on_imported(self, node_id: int) -> None: ...


class SimulatedDisk(WatchedDisk):
    """Simulated disk. `version` increases with every change that matters to the checker."""

    def __init__(self, node_id: int, witness: DiskWitness) -> None:
        super().__init__(node_id)
        self._witness = witness
        self._election: tuple[bytes, PersistedElection] | None = None
        self.controls: dict[SnapshotId, tuple[VoterSet | None, int]] = {}
        """Voters and kraft.version from the header of each snapshot."""

    def on_removed(self, path: str, batches: Sequence[LoggedBatch]) -> None:
        if batches and not self.is_starting and not self.has_failed:
            self._witness.on_removed(self.node_id, batches)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target.endswith(".checkpoint"):
            is_fetched = source.endswith(PART_SUFFIX) and _OWN_MARK not in source
            self._report_snapshot(base_name(target), bytes(self._file(target).content), is_fetched=is_fetched)
            if _IMPORT_MARK in source:
                self._witness.on_imported(self.node_id)

    def _report_snapshot(self, name: str, content: bytes, *, is_fetched: bool) -> None:
        snapshot_id = snapshot_id_of(name)
        if snapshot_id is not None:
            self.controls[snapshot_id] = control_of(content)
            self._witness.on_snapshot(self.node_id, snapshot_id, content, is_fetched=is_fetched)

    def note_rot(self) -> None:
        """Forget what was read from the content before it rotted."""
        self._election = None
        self._names_changed()

    # Content

    @property
    def log_end(self) -> LogPosition:
        """Return the end of the written log, synced or not, or of the newest snapshot if the log is empty."""
        for segment in reversed(self._all_segments()):
            if segment.batches:
                last = segment.batches[-1]
                return LogPosition(LeaderEpoch(last.epoch), Offset(last.end_offset))
        newest = self._newest_snapshot()
        return LogPosition(LeaderEpoch(0), Offset(0)) if newest is None else newest.position

    def batches_between(self, start: int, end: int) -> list[LoggedBatch]:
        """Return the batches that begin in [start, end), as written."""
        return self.logged_between(METADATA_DIRECTORY, start, end)

    def batch_ending_at(self, end: int, *, durable: bool = False) -> LoggedBatch | None:
        return self.logged_ending_at(METADATA_DIRECTORY, end, durable=durable)

    @property
    def durable_end(self) -> int:
        """Return the end of the log that remains after the worst possible crash."""
        for segment in reversed(self._all_durable_segments()):
            if segment.durable_batches:
                return segment.durable_batches[-1].end_offset
        return 0

    def replayed_voters(self) -> VoterSet | None:
        """Return the last voters record, in the log or before it; None without one."""
        for segment in reversed(self._all_segments()):
            for batch in reversed(segment.batches):
                if batch.voters is not None:
                    return batch.voters
        newest = self._newest_snapshot()
        return None if newest is None else self.controls[newest][0]

    @property
    def has_partial_snapshot(self) -> bool:
        """Whether a snapshot is being received or written."""
        directory = self._find(METADATA_DIRECTORY)
        return isinstance(directory, _Directory) and any(name.endswith(PART_SUFFIX) for name in directory.entries)

    @property
    def size_of_log(self) -> int:
        """Return the size of the segments in bytes."""
        return sum(len(segment.content) for segment in self._all_segments())

    def voter_sets(self) -> list[tuple[int, VoterSet]]:
        """Return all voters records with their offsets in order; the first may be that of the newest snapshot."""
        newest = self._newest_snapshot()
        voters = None if newest is None else self.controls[newest][0]
        found = [] if newest is None or voters is None else [(newest.end_offset - 1, voters)]
        logged = [batch for segment in self._all_segments() for batch in segment.batches]
        return found + [(each.end_offset - 1, each.voters) for each in logged if each.voters is not None]

    def replayed_kraft_version(self) -> int:
        """Return the last kraft.version, in the log or before it."""
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
        """Return the ids of all complete snapshots, 0-0 included, the oldest first."""
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
        """Return the durable content of quorum-state; epoch 0 without a file."""
        directory = self._find(METADATA_DIRECTORY)
        node = directory.durable.get("quorum-state") if isinstance(directory, _Directory) else None
        if not isinstance(node, _FileNode):
            return PersistedElection(0, -1, -1, None)
        if self._election is None or self._election[0] is not node.durable:
            try:
                self._election = node.durable, _election_of(node.durable)
            except (ValueError, KeyError):  # rotten; the node must not start with it
                self._election = node.durable, PersistedElection(0, -1, -1, None)
        return self._election[1]

    def _all_segments(self) -> list[SegmentNode]:
        return self.segments(METADATA_DIRECTORY)

    def _all_durable_segments(self) -> list[SegmentNode]:
        return self.segments(METADATA_DIRECTORY, durable=True)


def snapshot_id_of(name: str) -> SnapshotId | None:
    """Return the id in `<end offset>-<epoch>.checkpoint`; None for other names."""
    digits, _, epoch = name.removesuffix(".checkpoint").partition("-")
    if len(digits) != _ID_DIGITS or not digits.isdigit() or not epoch.isdigit():
        return None
    return SnapshotId(Offset(int(digits)), LeaderEpoch(int(epoch)))


def control_of(snapshot: Buffer) -> tuple[VoterSet | None, int]:
    """Return voters and kraft.version from the first batch of a snapshot."""
    try:
        state = read_control_state(snapshot, 0, None)
    except (MalformedBatch, MalformedRecords):
        return None, 0
    if state is None:
        return None, 0
    return None if state.voters is None else VoterSet.of_record(state.voters), state.kraft_version


def _election_of(content: bytes) -> PersistedElection:
    state = json.loads(content)
    directory = state.get("votedDirectoryId")
    return PersistedElection(
        state["leaderEpoch"],
        state["leaderId"],
        state["votedId"],
        None if directory is None else uuid_from_text(directory),
    )

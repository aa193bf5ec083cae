"""Steps of a snapshot import that the core requests from the importer, and their outcomes.

Each step except a refusal has a `serial`, which its outcome repeats. Outcomes with an old serial are ignored.
"""

from typing import Final, TypeAlias

from broker.quorum.identity import SnapshotId
from protocol.ids import LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass

TIMED_BYTES: Final = 64 * 1024 * 1024
"""Snapshot bytes per import timeout; a larger snapshot may take proportionally longer."""


def allowed_ms(timeout_ms: int, size: int) -> int:
    """Return the time limit for loading `size` bytes: one timeout per started `TIMED_BYTES`."""
    return timeout_ms * (1 + size // TIMED_BYTES)


@lazy_dataclass(frozen=True, slots=True)
class FindImport:
    """Find the newest snapshot with an end offset from `least` to `most` inclusive and an epoch up to `epoch`.

    Refused snapshots are skipped. The outcome is ImportFound.
    """

    serial: int
    least: int
    most: int
    epoch: LeaderEpoch


@lazy_dataclass(frozen=True, slots=True)
class LoadImport:
    """Load and check the found snapshot, which belongs to this log's history, into a file for FinishPart.

    The outcome is ImportLoaded or ImportFailed.
    """

    serial: int
    snapshot_id: SnapshotId


@lazy_dataclass(frozen=True, slots=True)
class RefuseImport:
    """Log why the found snapshot is not of this log's history, and do not find it again. Has no outcome."""

    snapshot_id: SnapshotId
    reason: str


@lazy_dataclass(frozen=True, slots=True)
class EndImport:
    """Cancel a step and delete its file. `is_late`: the step exceeded its time limit."""

    serial: int
    is_late: bool


@lazy_dataclass(frozen=True, slots=True)
class ImportFound:
    """The snapshot found; None if there is none or the store does not respond. `size` in bytes, from the manifest."""

    serial: int
    snapshot_id: SnapshotId | None
    size: int = 0


@lazy_dataclass(frozen=True, slots=True)
class ImportLoaded:
    """All `size` bytes are in the import file and match the manifest."""

    serial: int
    size: int


@lazy_dataclass(frozen=True, slots=True)
class ImportFailed:
    """The import file is deleted. `is_refused`: the snapshot is invalid; another one may be valid."""

    serial: int
    is_refused: bool


ImportStep: TypeAlias = FindImport | LoadImport | RefuseImport | EndImport
ImportOutcome: TypeAlias = ImportFound | ImportLoaded | ImportFailed

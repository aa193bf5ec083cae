"""What a replica and whoever knows a store of snapshots say to each other: steps wanted, and what came of them.

Each step but a refusal has a `serial`; the outcome bears the same. What comes under an old one is ignored.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from broker.quorum.identity import SnapshotId

TIMED_BYTES: Final = 64 * 1024 * 1024
"""Of a snapshot, for each of which there is the timeout: a large one out of a slow store is worth more patience."""


def allowed_ms(timeout_ms: int, size: int) -> int:
    """What `size` bytes out of a store may take, until the next `TIMED_BYTES` are whole."""
    return timeout_ms * (1 + size // TIMED_BYTES)


@dataclass(frozen=True, slots=True)
class FindImport:
    """Look for the newest snapshot that ends from `least` to `most`, both included, in no later epoch than `epoch`, and
    was not refused before. The outcome is ImportFound.
    """

    serial: int
    least: int
    most: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LoadImport:
    """The snapshot found is part of this log's history: get it, check it, and leave it aside for a FinishPart. The
    outcome is ImportLoaded or ImportFailed.
    """

    serial: int
    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class RefuseImport:
    """The snapshot found is not of this log: tell people why, and do not find it again."""

    snapshot_id: SnapshotId
    reason: str


@dataclass(frozen=True, slots=True)
class EndImport:
    """Nobody waits for this step any more: stop, and leave nothing aside. `is_late`: because it took too long."""

    serial: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class ImportFound:
    """None: there is nothing of use, or the store does not answer. `size` in bytes, as the store says."""

    serial: int
    snapshot_id: SnapshotId | None
    size: int = 0


@dataclass(frozen=True, slots=True)
class ImportLoaded:
    """All `size` bytes are aside, and are what their manifest says."""

    serial: int
    size: int


@dataclass(frozen=True, slots=True)
class ImportFailed:
    """Nothing is aside. `is_refused`: the snapshot was no good, and there may be another."""

    serial: int
    is_refused: bool


ImportStep: TypeAlias = FindImport | LoadImport | RefuseImport | EndImport
ImportOutcome: TypeAlias = ImportFound | ImportLoaded | ImportFailed

"""Commits of the state: the end offset of the fold, and the files of the state.

A commit is written after all its files. The newest commit is authoritative; Spark's checkpoint only holds the position
to continue from, and may be lost.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.metadata.image.metadata_version import MINIMUM_METADATA_VERSION
from protocol.ids import EPOCH_ZERO, LeaderEpoch
from spark_jobs.metadata_source.position import NO_EPOCH, MetadataPosition

VERSION: Final = 1
COMMITS: Final = "commits/"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.json")


class InvalidCommit(ValueError):
    """The JSON is not a valid commit; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Since:
    """Work since the last snapshot: bytes of folded frames, and changed or removed records (KIP-630)."""

    bytes: int = 0
    changed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit of the state before the exclusive `end`; `epoch` and `timestamp_ms` belong to the batch before it.

    `open_since`: begin of a metadata transaction that was open at the commit, or -1; its rows wait, no snapshot can be
    taken, and `epoch` is that of the last batch read. `control`: the state of the control records, from
    `control_to_bytes`. `files`: the state's files by section, without empty sections. `metadata_version`: level for
    writing a snapshot. `snapshot_records`: records of the last snapshot, or -1; `since` counts the work after it.
    """

    cluster_id: str
    end: int
    epoch: LeaderEpoch
    timestamp_ms: int
    open_since: int = -1
    control: bytes = b""
    files: Mapping[int, str] = field(default_factory=dict)
    metadata_version: int = 0
    snapshot_records: int = -1
    since: Since = Since()

    @property
    def name(self) -> str:
        return f"{COMMITS}{self.end:020d}-{self.epoch:010d}.json"

    @property
    def is_open(self) -> bool:
        return self.open_since >= 0

    @property
    def position(self) -> MetadataPosition:
        """The position to continue from."""
        return MetadataPosition(self.end, NO_EPOCH if self.is_open or not self.end else self.epoch, self.cluster_id)

    def to_json(self) -> bytes:
        fields: dict[str, object] = {
            "version": VERSION,
            "clusterId": self.cluster_id,
            "end": self.end,
            "epoch": self.epoch,
            "timestamp": self.timestamp_ms,
            "openSince": self.open_since,
            "control": base64.b64encode(self.control).decode(),
            "files": {str(section): self.files[section] for section in sorted(self.files)},
            "metadataVersion": self.metadata_version,
            "snapshotRecords": self.snapshot_records,
            "bytesSince": self.since.bytes,
            "changedSince": self.since.changed,
        }
        return json.dumps(fields, indent=1).encode() + b"\n"

    @classmethod
    def from_json(cls, content: bytes) -> "Commit":
        """Parse a commit. Raises InvalidCommit."""
        try:
            fields = json.loads(content)
            if fields["version"] != VERSION:
                raise InvalidCommit(
                    f"a commit has version {fields['version']}, but this program supports version {VERSION}"
                )
            return cls(
                cluster_id=str(fields["clusterId"]),
                end=int(fields["end"]),
                epoch=LeaderEpoch(int(fields["epoch"])),
                timestamp_ms=int(fields["timestamp"]),
                open_since=int(fields["openSince"]),
                control=base64.b64decode(fields["control"], validate=True),
                files={int(section): str(file) for section, file in fields["files"].items()},
                metadata_version=int(fields["metadataVersion"]),
                snapshot_records=int(fields["snapshotRecords"]),
                since=Since(int(fields["bytesSince"]), int(fields["changedSince"])),
            )
        except InvalidCommit:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidCommit(f"a commit does not parse: {type(error).__name__}: {error}") from error


def empty(cluster_id: str) -> Commit:
    """Return the commit of a cluster's log that begins at 0 and was not read yet."""
    return Commit(
        cluster_id=cluster_id, end=0, epoch=EPOCH_ZERO, timestamp_ms=-1, metadata_version=int(MINIMUM_METADATA_VERSION)
    )


def commit_end(name: str) -> int | None:
    """Return the end in the name of a commit, below COMMITS; None for another name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])

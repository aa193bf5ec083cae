"""What a commit of the state says: up to which offset the log was folded, and in which files the state lies.

A commit is written when all that it names is in place. The newest one is the truth; Spark's checkpoint only says where
to go on reading, and may be lost.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.metadata.image.metadata_version import MINIMUM_METADATA_VERSION
from spark_jobs.metadata_source.position import NO_EPOCH, MetadataPosition

VERSION: Final = 1
COMMITS: Final = "commits/"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.json")


class InvalidCommit(ValueError):
    """One sentence about what is no commit."""


@dataclass(frozen=True, slots=True)
class Since:
    """What was folded since the last snapshot: bytes of frames, and records that became others (KIP-630)."""

    bytes: int = 0
    changed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """`end` is exclusive; `epoch` and `timestamp_ms` are those of the batch before it.

    `open_since`: where a metadata transaction began that was open when this was written, and is held back; -1 if none
    was. No snapshot can be cut then, and `epoch` is only the last one heard of. `control` is what the control records
    established, as `control_to_bytes` gives it. `files` has the state's files by section, for those that have one;
    `metadata_version` is the level by which a snapshot of it is written. `snapshot_records` is how many records the
    last snapshot had, -1 before there was one, and `since` what came after.
    """

    cluster_id: str
    end: int
    epoch: int
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
        """Where to read on."""
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
        """Raises InvalidCommit."""
        try:
            fields = json.loads(content)
            if fields["version"] != VERSION:
                raise InvalidCommit(f"a commit has version {fields['version']}, this program knows {VERSION}")
            return cls(
                cluster_id=str(fields["clusterId"]),
                end=int(fields["end"]),
                epoch=int(fields["epoch"]),
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
    """Where a log begins at 0 and nothing was read yet."""
    return Commit(
        cluster_id=cluster_id, end=0, epoch=0, timestamp_ms=-1, metadata_version=int(MINIMUM_METADATA_VERSION)
    )


def commit_end(name: str) -> int | None:
    """The end in what a commit is called, below COMMITS; None for another name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[1])

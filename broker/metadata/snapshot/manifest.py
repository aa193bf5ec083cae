"""What lies beside a metadata snapshot in a store of objects and says what it is: a small JSON document.

A snapshot is put first, `<end offset>-<epoch>.checkpoint`, then its manifest under the same name with `.json`, then the
same manifest as `latest.json`. So whoever finds a manifest finds the whole snapshot, unless it was removed meanwhile.
What it says is a claim by whoever may write to the store: nothing here knows whether it is true.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

VERSION: Final = 1
LATEST: Final = "latest.json"
MANIFEST_SUFFIX: Final = ".json"
MAX_MANIFEST_BYTES: Final = 16 * 1024
"""Many times what one has; whoever reads one need read no more."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.json")


class InvalidManifest(ValueError):
    """One sentence, fit for a log, about what is not the manifest of a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotManifest:
    """`end_offset` is exclusive, `epoch` that of the last record before it; `size` in bytes of the snapshot, `sha256`
    of all of them in lower-case hexadecimal digits, `records` without the control records,
    `last_contained_log_timestamp` in milliseconds, as its header says it.

    Raises InvalidManifest for values that no snapshot has.
    """

    cluster_id: str
    end_offset: int
    epoch: int
    size: int
    sha256: str
    records: int
    last_contained_log_timestamp: int

    def __post_init__(self) -> None:
        _check_range("endOffset", self.end_offset, 1, _MAX_INT64)
        _check_range("epoch", self.epoch, 0, _MAX_INT32)
        _check_range("size", self.size, 1, _MAX_INT64)
        _check_range("records", self.records, 0, _MAX_INT64)
        _check_range("lastContainedLogTimestamp", self.last_contained_log_timestamp, -1, _MAX_INT64)
        if not _SHA256.fullmatch(self.sha256):
            raise InvalidManifest("sha256 is not 64 hexadecimal digits in lower case")
        if not _CLUSTER_ID.fullmatch(self.cluster_id):
            raise InvalidManifest("clusterId is not the id of a cluster")

    @property
    def stem(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}"

    @property
    def file(self) -> str:
        """What the snapshot is called beside this."""
        return f"{self.stem}.checkpoint"

    @property
    def name(self) -> str:
        """What this is called itself."""
        return self.stem + MANIFEST_SUFFIX

    def to_json(self) -> bytes:
        """The same bytes for the same manifest."""
        fields: dict[str, object] = {
            "version": VERSION,
            "file": self.file,
            "clusterId": self.cluster_id,
            "endOffset": self.end_offset,
            "epoch": self.epoch,
            "size": self.size,
            "sha256": self.sha256,
            "records": self.records,
            "lastContainedLogTimestamp": self.last_contained_log_timestamp,
        }
        return json.dumps(fields, indent=2).encode() + b"\n"

    @classmethod
    def from_json(cls, content: bytes) -> "SnapshotManifest":
        """Fields that are not known are let be. Raises InvalidManifest, whatever the bytes are."""
        fields = _parse(content)
        version = _integer(fields, "version")
        if version != VERSION:
            raise InvalidManifest(f"its version is {version}, this program knows {VERSION}")
        manifest = cls(
            cluster_id=_text(fields, "clusterId"),
            end_offset=_integer(fields, "endOffset"),
            epoch=_integer(fields, "epoch"),
            size=_integer(fields, "size"),
            sha256=_text(fields, "sha256"),
            records=_integer(fields, "records"),
            last_contained_log_timestamp=_integer(fields, "lastContainedLogTimestamp"),
        )
        if _text(fields, "file") != manifest.file:
            raise InvalidManifest(f"file is not {manifest.file}, which its offset and epoch make it")
        return manifest


def parse_manifest_name(name: str) -> tuple[int, int] | None:
    """End offset and epoch in what a manifest is called; None for any other name, `latest.json` among them."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    end_offset, epoch = int(match[1]), int(match[2])
    return (end_offset, epoch) if 1 <= end_offset <= _MAX_INT64 and epoch <= _MAX_INT32 else None


def _parse(content: bytes) -> Mapping[str, object]:
    if len(content) > MAX_MANIFEST_BYTES:
        raise InvalidManifest(f"it has more than {MAX_MANIFEST_BYTES} bytes")
    try:
        document: object = json.loads(content)
    except (ValueError, RecursionError):  # the words of the parser may repeat what it read, which nobody vouches for
        raise InvalidManifest("it is not JSON") from None
    if not isinstance(document, dict):
        raise InvalidManifest("it is not a JSON object")
    return document


def _integer(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidManifest(f"{name} is not an integer")
    return value


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise InvalidManifest(f"{name} is not a string")
    return value


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidManifest(f"{name} is not between {least} and {most}")

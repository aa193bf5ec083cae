"""The manifest of a metadata snapshot in an object store: a small JSON document beside the snapshot.

The snapshot `<end offset>-<epoch>.checkpoint` is stored first, then its manifest under the same name with `.json`, then
the same manifest as `latest.json`. A reader that finds a manifest therefore finds the whole snapshot, unless it was
removed meanwhile. The content is a claim of any writer to the store; this module does not verify it.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from protocol.ids import LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass

VERSION: Final = 1
LATEST: Final = "latest.json"
MANIFEST_SUFFIX: Final = ".json"
MAX_MANIFEST_BYTES: Final = 16 * 1024
"""Many times the size of a manifest; readers need not read more."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.json")


class InvalidManifest(ValueError):
    """The reason, as one sentence for a log, why bytes are not a snapshot manifest."""


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotManifest:
    """A manifest. `end_offset` is exclusive, `epoch` the leader epoch of the last record before it.

    `size` counts the snapshot's bytes, `sha256` is their digest in lower-case hexadecimal digits, `records` excludes
    control records, and `last_contained_log_timestamp` is the header's, in milliseconds. Raises InvalidManifest for
    values that no snapshot has.
    """

    cluster_id: str
    end_offset: int
    epoch: LeaderEpoch
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
            raise InvalidManifest("clusterId is not a valid cluster id")

    @property
    def stem(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}"

    @property
    def file(self) -> str:
        """The name of the snapshot object."""
        return f"{self.stem}.checkpoint"

    @property
    def name(self) -> str:
        """The name of the manifest object."""
        return self.stem + MANIFEST_SUFFIX

    def to_json(self) -> bytes:
        """Return the JSON document; equal manifests give equal bytes."""
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
        """Return a manifest from JSON, ignoring unknown fields. Raises InvalidManifest."""
        fields = _parse(content)
        version = _integer(fields, "version")
        if version != VERSION:
            raise InvalidManifest(f"version {version} is not supported, only {VERSION}; upgrade Ottla")
        manifest = cls(
            cluster_id=_text(fields, "clusterId"),
            end_offset=_integer(fields, "endOffset"),
            epoch=LeaderEpoch(_integer(fields, "epoch")),
            size=_integer(fields, "size"),
            sha256=_text(fields, "sha256"),
            records=_integer(fields, "records"),
            last_contained_log_timestamp=_integer(fields, "lastContainedLogTimestamp"),
        )
        if _text(fields, "file") != manifest.file:
            raise InvalidManifest(f"file is not {manifest.file}, the name for this offset and epoch")
        return manifest


def parse_manifest_name(name: str) -> tuple[int, LeaderEpoch] | None:
    """Return end offset and epoch of a manifest's name; None for any other name, including `latest.json`."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    end_offset, epoch = int(match[1]), LeaderEpoch(int(match[2]))
    return (end_offset, epoch) if 1 <= end_offset <= _MAX_INT64 and epoch <= _MAX_INT32 else None


def _parse(content: bytes) -> Mapping[str, object]:
    if len(content) > MAX_MANIFEST_BYTES:
        raise InvalidManifest(f"the document has more than {MAX_MANIFEST_BYTES} bytes")
    try:
        document: object = json.loads(content)
    except (ValueError, RecursionError):  # the parser's message may quote untrusted content
        raise InvalidManifest("the document is not JSON") from None
    if not isinstance(document, dict):
        raise InvalidManifest("the document is not a JSON object")
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

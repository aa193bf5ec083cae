"""Manifests of snapshots: the written document, and the refusal of invalid ones."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metadata.snapshot.manifest import (
    MAX_MANIFEST_BYTES,
    InvalidManifest,
    SnapshotManifest,
    parse_manifest_name,
)
from protocol.ids import LeaderEpoch

MANIFEST = SnapshotManifest(
    cluster_id="vPeOCWypqUOSepEvx0cbog",
    end_offset=1234,
    epoch=LeaderEpoch(7),
    size=4096,
    sha256="0123456789abcdef" * 4,
    records=17,
    last_contained_log_timestamp=1_700_000_000_000,
)


def document(**changes: object) -> bytes:
    return json.dumps(json.loads(MANIFEST.to_json()) | changes).encode()


def test_manifest_document_has_the_documented_fields() -> None:
    assert json.loads(MANIFEST.to_json()) == {
        "version": 1,
        "file": "00000000000000001234-0000000007.checkpoint",
        "clusterId": "vPeOCWypqUOSepEvx0cbog",
        "endOffset": 1234,
        "epoch": 7,
        "size": 4096,
        "sha256": "0123456789abcdef" * 4,
        "records": 17,
        "lastContainedLogTimestamp": 1_700_000_000_000,
    }
    assert MANIFEST.name == "00000000000000001234-0000000007.json"
    assert SnapshotManifest.from_json(MANIFEST.to_json()) == MANIFEST


def test_unknown_fields_are_ignored() -> None:
    assert SnapshotManifest.from_json(document(comment="made on a Tuesday")) == MANIFEST


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"version": 2}, "version 2 is not supported"),
        ({"version": True}, "version"),
        ({"file": "../../etc/passwd"}, "file is not 0000"),
        ({"file": None}, "file"),
        ({"clusterId": "a\nb"}, "clusterId"),
        ({"clusterId": ""}, "clusterId"),
        ({"clusterId": 5}, "clusterId"),
        ({"endOffset": 0}, "endOffset"),
        ({"endOffset": 2**63}, "endOffset"),
        ({"endOffset": 1234.0}, "endOffset"),
        ({"epoch": -1}, "epoch"),
        ({"epoch": 2**31}, "epoch"),
        ({"size": 0}, "size"),
        ({"sha256": "0123456789ABCDEF" * 4}, "sha256"),
        ({"sha256": "0123456789abcdef" * 4 + "\n"}, "sha256"),
        ({"records": -1}, "records"),
        ({"lastContainedLogTimestamp": "now"}, "lastContainedLogTimestamp"),
    ],
)
def test_invalid_field_is_named(changes: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidManifest, match=word):
        SnapshotManifest.from_json(document(**changes))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"\xff\xfe",
        b'"' * 3,
        b"[" * (MAX_MANIFEST_BYTES - 1),
        b" " * MAX_MANIFEST_BYTES + b"{}",
        b'{"version": ' + b"9" * 5000 + b"}",
        b'{"version": NaN}',
    ],
)
def test_hostile_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidManifest) as raised:
        SnapshotManifest.from_json(content)
    assert "\n" not in str(raised.value)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidManifest):
        SnapshotManifest.from_json(content)


def test_every_valid_manifest_is_read_back() -> None:
    for changes in ({"end_offset": 0}, {"sha256": "x"}, {"size": -1}):
        with pytest.raises(InvalidManifest):
            replace(MANIFEST, **changes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (MANIFEST.name, (1234, 7)),
        ("latest.json", None),
        ("00000000000000001234-0000000007.checkpoint", None),
        ("00000000000000000000-0000000000.json", None),
        ("99999999999999999999-0000000000.json", None),
        ("00000000000000001234-9999999999.json", None),
        ("00000000000000001234-0000000007.json\n", None),
        ("x/00000000000000001234-0000000007.json", None),
        ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١٢٣٤-٠٠٠٠٠٠٠٠٠٧.json", None),
    ],
)
def test_manifest_names_are_parsed(name: str, expected: tuple[int, int] | None) -> None:
    assert parse_manifest_name(name) == expected

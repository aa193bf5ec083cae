"""Snapshots of the metadata log in an object store, as written by a Spark job: listing, validation, loading. Blocks.

The content of the store is not trusted. A manifest is limited to a few kilobytes and must match its name. A snapshot is
limited to its manifest's size and to `max_bytes`; its digest, checksums, offsets and records are validated while it
loads. A valid snapshot with wrong content is not detected: only the snapshot's id is compared with the leader's log.
"""

from collections import deque
from collections.abc import Callable, Container, Iterator
from hashlib import sha256
from itertools import islice
from typing import Final, NamedTuple, Protocol

from broker.metadata.snapshot.codec import InvalidSnapshot
from broker.metadata.snapshot.manifest import (
    MAX_MANIFEST_BYTES,
    InvalidManifest,
    SnapshotManifest,
    parse_manifest_name,
)
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from storage.tiered.errors import ObjectNotFound
from storage.tiered.loading.store_uri import StoreAt
from storage.tiered.object_store import ObjectInfo

MAX_LISTED: Final = 100_000
"""Objects listed per import."""
MAX_CANDIDATES: Final = 32
"""Manifests read per import, the newest first."""


class Cancelled(Exception):
    """The load was cancelled."""


class SnapshotRefused(Exception):
    """An object in the store is not a snapshot for this node; the message is the reason, without the name."""


class StoredManifest(NamedTuple):
    """A manifest in the store. A rewritten manifest of equal name is a different value."""

    name: str
    size: int
    modified_ms: int
    end_offset: int
    epoch: LeaderEpoch


class FoundSnapshot(NamedTuple):
    """A usable snapshot: its listed manifest and the manifest's content."""

    listed: StoredManifest
    manifest: SnapshotManifest


class RecordCheck(Protocol):
    """Validates the bytes of a snapshot as they arrive. Both methods raise InvalidSnapshot."""

    def feed(self, piece: Buffer) -> None: ...

    def end(self) -> None: ...


class Sink(Protocol):
    """Receives the bytes of a snapshot."""

    def append(self, data: bytes) -> None: ...


class SnapshotObjectStore:
    """Opens the store at the first use. `check_records` creates the validation for an epoch."""

    def __init__(
        self,
        open_store: Callable[[], StoreAt],
        cluster_id: str,
        max_bytes: int,
        check_records: Callable[[LeaderEpoch], RecordCheck],
    ) -> None:
        self._open_store = open_store
        self._at: StoreAt | None = None
        self._cluster_id = cluster_id
        self._max_bytes = max_bytes
        self._check_records = check_records

    def find(
        self,
        least: int,
        most: int,
        epoch: LeaderEpoch,
        refused: Container[StoredManifest],
        refuse: Callable[[StoredManifest, str], None],
    ) -> FoundSnapshot | None:
        """Return the newest valid snapshot with an end offset from `least` to `most` and an epoch up to `epoch`.

        `refuse` is called with each unusable manifest. Raise ObjectStoreError.
        """
        for listed in reversed(self._listeds(least)):
            if listed in refused:
                continue
            if listed.end_offset > most or listed.epoch > epoch:
                refuse(listed, f"it is ahead of the committed log: the high watermark is {most}, the epoch {epoch}")
                continue
            try:
                return FoundSnapshot(listed, self._read_manifest(listed))
            except SnapshotRefused as refusal:
                refuse(listed, str(refusal))
        return None

    def _listeds(self, least: int) -> "deque[StoredManifest]":
        """Return the newest manifests in ascending order.

        The listing starts at the prefix "0", with which every 64-bit offset in 20 digits starts, to skip other objects.
        """
        at = self._opened()
        listed = at.store.list(at.key("0"), at.key(f"{least:020d}"))
        return deque(self._parsed(at, islice(listed, MAX_LISTED)), MAX_CANDIDATES)

    def _parsed(self, at: StoreAt, listed: Iterator[ObjectInfo]) -> Iterator[StoredManifest]:
        for info in listed:
            parsed = parse_manifest_name(at.name(info.key))
            if parsed is not None:
                yield StoredManifest(at.name(info.key), info.size, info.modified_ms, *parsed)

    def _read_manifest(self, listed: StoredManifest) -> SnapshotManifest:
        at = self._opened()
        try:
            content = b"".join(at.store.get(at.key(listed.name), 0, MAX_MANIFEST_BYTES))
            manifest = SnapshotManifest.from_json(content)
        except (InvalidManifest, ObjectNotFound) as error:
            raise SnapshotRefused(f"its manifest cannot be used: {error}") from error
        if manifest.name != listed.name:
            raise SnapshotRefused(f"its manifest names {manifest.file}")
        if manifest.cluster_id != self._cluster_id:
            raise SnapshotRefused(f"its cluster id is {manifest.cluster_id}, this cluster is {self._cluster_id}")
        if manifest.size > self._max_bytes:
            raise SnapshotRefused(f"it has {manifest.size} bytes, the limit is {self._max_bytes}")
        return manifest

    def load(self, manifest: SnapshotManifest, sink: Sink, is_cancelled: Callable[[], bool]) -> None:
        """Load and validate a snapshot into `sink`. Raise SnapshotRefused, ObjectStoreError, Cancelled."""
        at, digest, size = self._opened(), sha256(), 0
        check = self._check_records(manifest.epoch)
        try:
            for piece in at.store.get(at.key(manifest.file)):
                if is_cancelled():
                    raise Cancelled
                size += len(piece)
                if size > manifest.size:
                    raise SnapshotRefused(f"it has more than the {manifest.size} bytes in its manifest")
                digest.update(piece)
                sink.append(piece)
                _guarded(check.feed, piece)
        except ObjectNotFound as error:
            raise SnapshotRefused("its manifest exists, but the snapshot does not") from error
        if size != manifest.size:
            raise SnapshotRefused(f"it has {size} bytes instead of the {manifest.size} in its manifest")
        if digest.hexdigest() != manifest.sha256:
            raise SnapshotRefused("its SHA-256 differs from the one in its manifest")
        _guarded(lambda _: check.end(), b"")

    def _opened(self) -> StoreAt:
        if self._at is None:
            self._at = self._open_store()
        return self._at

    def close(self) -> None:
        """Close the store, which aborts pending requests if it can."""
        if self._at is not None:
            self._at.store.close()


def _guarded(check: Callable[[bytes], None], piece: bytes) -> None:
    try:
        check(piece)
    except InvalidSnapshot as error:
        raise SnapshotRefused(str(error)) from error
    except Exception as error:
        raise SnapshotRefused(f"its records cannot be read: {error!r}") from error

"""Snapshots of the metadata log in a store of objects, as a job leaves them: found, judged, brought here. Blocks.

Nothing in a store is taken at its word. A manifest is read up to a few kilobytes and must be what its name says; of a
snapshot as many bytes are taken as its manifest promises, no more than `max_bytes`, and their digest, checksums,
offsets and records are checked as they pass. Whoever may write to the store can still put a well-made lie there: only
the id of a snapshot can be held against the leader's log, not what is in it.
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
from protocol.primitives import Buffer
from storage.tiered.errors import ObjectNotFound
from storage.tiered.loading.store_uri import StoreAt
from storage.tiered.object_store import ObjectInfo

MAX_LISTED: Final = 100_000
"""Objects that are looked at for one import."""
MAX_CANDIDATES: Final = 32
"""Manifests that are read for one import, the newest first."""


class Cancelled(Exception):
    """Nobody wants it any more."""


class SnapshotRefused(Exception):
    """Something in the store is no snapshot for this node; the message is why, without the name."""


class StoredManifest(NamedTuple):
    """A manifest in the store, by its name; one that is put again is another offer."""

    name: str
    size: int
    modified_ms: int
    end_offset: int
    epoch: int


class FoundSnapshot(NamedTuple):
    offer: StoredManifest
    manifest: SnapshotManifest


class RecordCheck(Protocol):
    """Looks at the bytes of a snapshot as they come. Both methods raise InvalidSnapshot."""

    def feed(self, piece: Buffer) -> None: ...

    def end(self) -> None: ...


class Sink(Protocol):
    """Where the bytes of a snapshot go."""

    def append(self, data: bytes) -> None: ...


class SnapshotObjectStore:
    """`open_store` is called when the store is first used; `check_records` makes a check for an epoch."""

    def __init__(
        self,
        open_store: Callable[[], StoreAt],
        cluster_id: str,
        max_bytes: int,
        check_records: Callable[[int], RecordCheck],
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
        epoch: int,
        refused: Container[StoredManifest],
        refuse: Callable[[StoredManifest, str], None],
    ) -> FoundSnapshot | None:
        """The newest whose manifest is sound, of those that end from `least` to `most` in no later epoch than `epoch`.

        `refuse` is told of what cannot be used. Raises ObjectStoreError.
        """
        for offer in reversed(self._offers(least)):
            if offer in refused:
                continue
            if offer.end_offset > most or offer.epoch > epoch:
                refuse(offer, f"it is ahead of what is committed: the high watermark is {most}, the epoch {epoch}")
                continue
            try:
                return FoundSnapshot(offer, self._read_manifest(offer))
            except SnapshotRefused as refusal:
                refuse(offer, str(refusal))
        return None

    def _offers(self, least: int) -> "deque[StoredManifest]":
        """Ascending, the newest of those there are. Offsets of 64 bits in 20 digits begin with a 0, and nothing else
        that a job keeps in the same place needs to be listed.
        """
        at = self._opened()
        listed = at.store.list(at.key("0"), at.key(f"{least:020d}"))
        return deque(self._parsed(at, islice(listed, MAX_LISTED)), MAX_CANDIDATES)

    def _parsed(self, at: StoreAt, listed: Iterator[ObjectInfo]) -> Iterator[StoredManifest]:
        for info in listed:
            parsed = parse_manifest_name(at.name(info.key))
            if parsed is not None:
                yield StoredManifest(at.name(info.key), info.size, info.modified_ms, *parsed)

    def _read_manifest(self, offer: StoredManifest) -> SnapshotManifest:
        at = self._opened()
        try:
            content = b"".join(at.store.get(at.key(offer.name), 0, MAX_MANIFEST_BYTES))
            manifest = SnapshotManifest.from_json(content)
        except (InvalidManifest, ObjectNotFound) as error:
            raise SnapshotRefused(f"its manifest cannot be used: {error}") from error
        if manifest.name != offer.name:
            raise SnapshotRefused(f"its manifest is that of {manifest.file}")
        if manifest.cluster_id != self._cluster_id:
            raise SnapshotRefused(f"it is of cluster {manifest.cluster_id}, this one is {self._cluster_id}")
        if manifest.size > self._max_bytes:
            raise SnapshotRefused(f"it has {manifest.size} bytes, and {self._max_bytes} are the most that are taken")
        return manifest

    def load(self, manifest: SnapshotManifest, sink: Sink, is_cancelled: Callable[[], bool]) -> None:
        """All bytes into `sink`, checked. Raises SnapshotRefused, ObjectStoreError, Cancelled, and as `sink` does."""
        at, digest, size = self._opened(), sha256(), 0
        check = self._check_records(manifest.epoch)
        try:
            for piece in at.store.get(at.key(manifest.file)):
                if is_cancelled():
                    raise Cancelled
                size += len(piece)
                if size > manifest.size:
                    raise SnapshotRefused(f"it has more than the {manifest.size} bytes that its manifest promises")
                digest.update(piece)
                sink.append(piece)
                _guarded(check.feed, piece)
        except ObjectNotFound as error:
            raise SnapshotRefused("there is a manifest of it, and nothing else") from error
        if size != manifest.size:
            raise SnapshotRefused(f"it has {size} bytes instead of the {manifest.size} that its manifest promises")
        if digest.hexdigest() != manifest.sha256:
            raise SnapshotRefused("its SHA-256 is not the one in its manifest")
        _guarded(lambda _: check.end(), b"")

    def _opened(self) -> StoreAt:
        if self._at is None:
            self._at = self._open_store()
        return self._at

    def close(self) -> None:
        """Whoever waits for the store gives up, as far as the store can."""
        if self._at is not None:
            self._at.store.close()


def _guarded(check: Callable[[bytes], None], piece: bytes) -> None:
    try:
        check(piece)
    except InvalidSnapshot as error:
        raise SnapshotRefused(str(error)) from error
    except Exception as error:
        raise SnapshotRefused(f"its records cannot be read: {error!r}") from error

"""Snapshots in an object store: a file and then its manifest for each, and `latest.json`.

A snapshot is written to a temporary name, read back and checked, then put in place. A manifest therefore proves a
complete and valid snapshot, and every step may be repeated.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from broker.metadata.snapshot.manifest import LATEST, InvalidManifest, SnapshotManifest, parse_manifest_name
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from spark_jobs.metadata.snapshot_file import read_back
from spark_jobs.metadata_snapshots.state_store import LEFT_MS, STATE, StateStore
from storage.tiered.errors import ObjectNotFound
from storage.tiered.loading.store_uri import StoreUri

ASIDE: Final = f"{STATE}aside/"
PIECE_BYTES: Final = 1024 * 1024
_SUFFIX: Final = ".checkpoint"
_ANY: Final = "0"
"""Common prefix of all manifest names, because 20 digits are more than an offset needs."""


class WrongSnapshot(Exception):
    """A snapshot differs from its manifest or from the bytes written; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class ObjectSnapshotStore:
    """The snapshots in one location. Raises the exceptions of `ObjectStore`."""

    uri: StoreUri

    @property
    def _files(self) -> StateStore:
        return StateStore(self.uri, "")

    def manifest(self, end: int, epoch: LeaderEpoch) -> SnapshotManifest | None:
        """Return the manifest of the snapshot with this id, or None."""
        return self._read(f"{end:020d}-{epoch:010d}.json")

    def manifest_at(self, end: int) -> SnapshotManifest | None:
        """Return the manifest of a snapshot that ends at this offset, or None."""
        found = self._names(f"{end:020d}-")
        return self._read(found[-1]) if found else None

    def newest_at_most(self, end: int) -> SnapshotManifest | None:
        """Return the manifest of the latest snapshot at or before an offset, or None."""
        found = [name for name in self._names(_ANY) if name[:20] <= f"{end:020d}"]
        return self._read(max(found)) if found else None

    def latest(self) -> SnapshotManifest | None:
        """Return the manifest in `latest.json`, or None."""
        return self._read(LATEST)

    def latest_ms(self) -> int | None:
        """Return the time at which `latest.json` was written, by the store's clock, or None."""
        found = [each for each in self._files.listed(LATEST) if each.key == LATEST]
        return found[0].modified_ms if found else None

    def write(self, cluster_id: str, end: int, epoch: LeaderEpoch, pieces: Iterable[Buffer]) -> SnapshotManifest:
        """Write or rewrite a snapshot. Raises WrongSnapshot, InvalidSnapshot; then no snapshot is left."""
        files, aside = self._files, f"{ASIDE}{end:020d}-{epoch:010d}.checkpoint"
        digest = hashlib.sha256()
        size = files.put(aside, _digested(_gathered(pieces), digest))
        manifest = self._validated(cluster_id, end, epoch, aside, digest.hexdigest(), size)
        files.put(manifest.file, self._checked(aside, manifest))
        files.put(manifest.name, [manifest.to_json()])
        files.delete([aside])
        self.update_latest(manifest)
        return manifest

    def update_latest(self, manifest: SnapshotManifest) -> None:
        """Write a manifest to `latest.json`, unless a later snapshot is there."""
        latest = self.latest()
        if latest is None or latest.cluster_id != manifest.cluster_id or latest.end_offset < manifest.end_offset:
            self._files.put(LATEST, [manifest.to_json()])

    def pieces(self, manifest: SnapshotManifest) -> Iterator[bytes]:
        """Yield the bytes of a snapshot. Raises WrongSnapshot at the end if they differ from the manifest."""
        return self._checked(manifest.file, manifest)

    def remove_old(self, keep: int) -> None:
        """Remove all but the newest `keep` snapshots, manifests first, and older files without manifest."""
        names = sorted(self._names(_ANY))
        self._files.delete(names[:-keep])
        oldest = names[-keep:][0] if names else ""
        files = [_manifest_of(each.key) for each in self._files.listed(_ANY)]
        self._files.delete([_file_of(name) for name in files if name is not None and name < oldest])

    def remove_left(self, now_ms: int) -> None:
        """Remove files of interrupted writers after the time limit of a write."""
        for found in list(self._files.listed(ASIDE)):
            name = _manifest_of(found.key.removeprefix(ASIDE))
            if name is not None and now_ms - found.modified_ms > LEFT_MS:
                if self._read(name) is None:
                    self._files.delete([_file_of(name)])
                self._files.delete([found.key])

    def _names(self, prefix: str) -> list[str]:
        return [each.key for each in self._files.listed(prefix) if parse_manifest_name(each.key) is not None]

    def _read(self, name: str) -> SnapshotManifest | None:
        """Read a manifest; None for a missing one, or for one that does not parse and is then rewritten."""
        try:
            return SnapshotManifest.from_json(self._files.read(name))
        except (ObjectNotFound, InvalidManifest):
            return None

    def _validated(
        self, cluster_id: str, end: int, epoch: LeaderEpoch, aside: str, sha256: str, size: int
    ) -> SnapshotManifest:
        digest = hashlib.sha256()
        found = read_back(_digested(self._files.get(aside), digest))
        if (digest.hexdigest(), found.size, found.epoch) != (sha256, size, epoch):
            raise WrongSnapshot(f"the snapshot that ends at {end} differs after reading it back from the bytes written")
        return SnapshotManifest(
            cluster_id=cluster_id,
            end_offset=end,
            epoch=epoch,
            size=size,
            sha256=sha256,
            records=found.records,
            last_contained_log_timestamp=found.last_contained_log_timestamp,
        )

    def _checked(self, name: str, manifest: SnapshotManifest) -> Iterator[bytes]:
        """Yield an object's bytes; raise at the end, before it counts as put, if they differ from the manifest."""
        digest, size = hashlib.sha256(), 0
        for piece in self._files.get(name):
            digest.update(piece)
            size += len(piece)
            yield piece
        if (digest.hexdigest(), size) != (manifest.sha256, manifest.size):
            raise WrongSnapshot(f"{manifest.file} differs from its manifest")


def _manifest_of(file: str) -> str | None:
    """Return the name of the manifest of a snapshot's file; None for another file."""
    name = file.removesuffix(_SUFFIX) + ".json"
    return name if file.endswith(_SUFFIX) and parse_manifest_name(name) is not None else None


def _file_of(manifest: str) -> str:
    return manifest.removesuffix(".json") + _SUFFIX


def _gathered(pieces: Iterable[Buffer]) -> Iterator[bytes]:
    """Join the pieces into larger ones, because each batch has two."""
    waiting: list[Buffer] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _digested(pieces: Iterable[Buffer], digest: "hashlib._Hash") -> Iterator[Buffer]:
    for piece in pieces:
        digest.update(piece)
        yield piece

"""Snapshots in a store: each a file and then its manifest, and `latest.json`. Written aside, read back, then put.

So whoever finds a manifest finds a snapshot that was whole and right when it was written, and all may be done again.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from broker.metadata.snapshot.manifest import LATEST, InvalidManifest, SnapshotManifest, parse_manifest_name
from protocol.primitives import Buffer
from spark_jobs.metadata.snapshot_file import read_back
from spark_jobs.metadata_snapshots.state_store import LEFT_MS, STATE, StateStore
from storage.tiered.errors import ObjectNotFound
from storage.tiered.loading.store_uri import StoreUri

ASIDE: Final = f"{STATE}aside/"
PIECE_BYTES: Final = 1024 * 1024
_SUFFIX: Final = ".checkpoint"
_ANY: Final = "0"
"""What all names of manifests begin with, for 20 digits are more than an offset has."""


class WrongSnapshot(Exception):
    """What was written is not what was meant: one sentence."""


@dataclass(frozen=True, slots=True)
class ObjectSnapshotStore:
    """The snapshots at a place. Raises as `ObjectStore` does."""

    uri: StoreUri

    @property
    def _files(self) -> StateStore:
        return StateStore(self.uri, "")

    def manifest(self, end: int, epoch: int) -> SnapshotManifest | None:
        """Of the snapshot with this id, if there is one."""
        return self._read(f"{end:020d}-{epoch:010d}.json")

    def manifest_at(self, end: int) -> SnapshotManifest | None:
        """Of a snapshot that ends at this offset, if there is one."""
        found = self._names(f"{end:020d}-")
        return self._read(found[-1]) if found else None

    def newest_at_most(self, end: int) -> SnapshotManifest | None:
        """Of the snapshot that ends last, at or before an offset."""
        found = [name for name in self._names(_ANY) if name[:20] <= f"{end:020d}"]
        return self._read(max(found)) if found else None

    def latest(self) -> SnapshotManifest | None:
        """Of the snapshot that ends last, as `latest.json` has it."""
        return self._read(LATEST)

    def latest_ms(self) -> int | None:
        """When `latest.json` was written, by the store's clock."""
        found = [each for each in self._files.listed(LATEST) if each.key == LATEST]
        return found[0].modified_ms if found else None

    def write(self, cluster_id: str, end: int, epoch: int, pieces: Iterable[Buffer]) -> SnapshotManifest:
        """Write a snapshot, or the same one again. Raises WrongSnapshot, InvalidSnapshot, and then leaves none."""
        files, aside = self._files, f"{ASIDE}{end:020d}-{epoch:010d}.checkpoint"
        digest = hashlib.sha256()
        size = files.put(aside, _digested(_gathered(pieces), digest))
        manifest = self._validated(cluster_id, end, epoch, aside, digest.hexdigest(), size)
        files.put(manifest.file, self._checked(aside, manifest))
        files.put(manifest.name, [manifest.to_json()])
        files.delete([aside])
        self.tell(manifest)
        return manifest

    def tell(self, manifest: SnapshotManifest) -> None:
        """Name a snapshot in `latest.json`, unless that names a later one."""
        latest = self.latest()
        if latest is None or latest.cluster_id != manifest.cluster_id or latest.end_offset < manifest.end_offset:
            self._files.put(LATEST, [manifest.to_json()])

    def pieces(self, manifest: SnapshotManifest) -> Iterator[bytes]:
        """The bytes of a snapshot. Raises WrongSnapshot at their end if they are not those of the manifest."""
        return self._checked(manifest.file, manifest)

    def remove_old(self, keep: int) -> None:
        """All but the newest so many, manifests first, and older files whose manifests are gone."""
        names = sorted(self._names(_ANY))
        self._files.delete(names[:-keep])
        oldest = names[-keep:][0] if names else ""
        files = [_manifest_of(each.key) for each in self._files.listed(_ANY)]
        self._files.delete([_file_of(name) for name in files if name is not None and name < oldest])

    def remove_left(self, now_ms: int) -> None:
        """What writers left that did not come to their end, once they cannot be at it any more."""
        for found in list(self._files.listed(ASIDE)):
            name = _manifest_of(found.key.removeprefix(ASIDE))
            if name is not None and now_ms - found.modified_ms > LEFT_MS:
                if self._read(name) is None:
                    self._files.delete([_file_of(name)])
                self._files.delete([found.key])

    def _names(self, prefix: str) -> list[str]:
        return [each.key for each in self._files.listed(prefix) if parse_manifest_name(each.key) is not None]

    def _read(self, name: str) -> SnapshotManifest | None:
        """None also for one that does not parse, which is then written again."""
        try:
            return SnapshotManifest.from_json(self._files.read(name))
        except (ObjectNotFound, InvalidManifest):
            return None

    def _validated(self, cluster_id: str, end: int, epoch: int, aside: str, sha256: str, size: int) -> SnapshotManifest:
        digest = hashlib.sha256()
        found = read_back(_digested(self._files.get(aside), digest))
        if (digest.hexdigest(), found.size, found.epoch) != (sha256, size, epoch):
            raise WrongSnapshot(f"the snapshot that ends at {end} was read back as other bytes than were written")
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
        """An object again, as the manifest has it; raises at its end, before it counts as put, if it is not."""
        digest, size = hashlib.sha256(), 0
        for piece in self._files.get(name):
            digest.update(piece)
            size += len(piece)
            yield piece
        if (digest.hexdigest(), size) != (manifest.sha256, manifest.size):
            raise WrongSnapshot(f"{manifest.file} is not what its manifest says")


def _manifest_of(file: str) -> str | None:
    """What the manifest of a snapshot's file is called; None for another file."""
    name = file.removesuffix(_SUFFIX) + ".json"
    return name if file.endswith(_SUFFIX) and parse_manifest_name(name) is not None else None


def _file_of(manifest: str) -> str:
    return manifest.removesuffix(".json") + _SUFFIX


def _gathered(pieces: Iterable[Buffer]) -> Iterator[bytes]:
    """The same bytes in larger pieces, for there are two of each batch."""
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

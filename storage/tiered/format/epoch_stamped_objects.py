"""Small objects written by one leader after another; the object of the highest leader epoch counts.

Object stores know no leader epochs, and few support conditional writes: a deposed leader that does not know it yet
would replace its successor's object. So each writer has its own object, with its leader epoch in the key. Readers take
the object with the highest epoch, whenever the others were written. A writer removes its predecessors' objects after it
has written its own; an object that a deposed leader restores afterwards is never read.
"""

from typing import NamedTuple

from storage.tiered.errors import ObjectNotFound
from storage.tiered.object_store import ObjectInfo, ObjectStore

_DIGITS = 10
_TRIES = 5
"""An object may be removed between list and get because a newer one exists; this happens once per leader change."""


class EpochStampedContent(NamedTuple):
    epoch: int
    content: bytes


class EpochStampedObject:
    """An object with one version per leader epoch; `stem` is the common beginning of their keys."""

    def __init__(self, store: ObjectStore, stem: str) -> None:
        self._store = store
        self.stem = stem

    def key(self, epoch: int) -> str:
        return f"{self.stem}-{epoch:0{_DIGITS}d}"

    def epochs(self) -> list[int]:
        """Return the epochs of the existing versions, ascending. Raises ObjectStoreError."""
        found = (epoch_in_key(self.stem, info.key) for info in self._store.list(f"{self.stem}-"))
        return sorted(epoch for epoch in found if epoch is not None)

    def read(self) -> EpochStampedContent | None:
        """Return the version of the highest epoch, None if there is none. Raises ObjectStoreError."""
        for _ in range(_TRIES):
            epochs = self.epochs()
            if not epochs:
                return None
            try:
                return EpochStampedContent(epochs[-1], b"".join(self._store.get(self.key(epochs[-1]))))
            except ObjectNotFound:
                continue
        raise ObjectNotFound(f"{self.stem} keeps changing")

    def write(self, epoch: int, content: bytes) -> None:
        """Store the version of an epoch. Raises ObjectStoreError."""
        self._store.put(self.key(epoch), (content,))

    def remove_before(self, epoch: int) -> None:
        """Remove the versions of lower epochs. Raises ObjectStoreError."""
        if older := [self.key(other) for other in self.epochs() if other < epoch]:
            self._store.delete(older)

    def remove_up_to(self, epoch: int) -> None:
        """Remove the versions of an epoch and of lower ones. Raises ObjectStoreError."""
        self.remove_before(epoch + 1)

    def remove(self) -> None:
        """Remove all versions, after their subject was deleted. Raises ObjectStoreError."""
        if found := [self.key(epoch) for epoch in self.epochs()]:
            self._store.delete(found)


def epoch_in_key(stem: str, key: str) -> int | None:
    """Return the leader epoch in a key with this stem; None for any other key."""
    beginning, dash, epoch = key.rpartition("-")
    return int(epoch) if dash and beginning == stem and len(epoch) == _DIGITS and epoch.isdigit() else None


def newest(stem: str, objects: list[ObjectInfo]) -> ObjectInfo | None:
    """Return the listed object with the highest epoch."""
    stamped = [(epoch, info) for info in objects if (epoch := epoch_in_key(stem, info.key)) is not None]
    return max(stamped)[1] if stamped else None

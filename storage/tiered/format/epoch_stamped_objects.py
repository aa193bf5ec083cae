"""Small objects that one writer after another keeps up to date: the newest writer's is the one that counts.

Stores of objects know no leader epochs, and few of them a put with a condition: a leader that was deposed and does not
know it yet would replace what its successor wrote. So each writer has an object of its own, with its epoch (a leader
epoch) in the key. Readers take the object with the highest epoch, however late the others were written. A writer
removes its predecessors' once its own is there; one that a deposed leader puts back afterwards is never read again.
"""

from typing import NamedTuple

from storage.tiered.errors import ObjectNotFound
from storage.tiered.object_store import ObjectInfo, ObjectStore

_DIGITS = 10
_TRIES = 5
"""Between a list and a get the object may go, because there is a newer one; that happens once per change of leader."""


class EpochStampedContent(NamedTuple):
    epoch: int
    content: bytes


class EpochStampedObject:
    """What all writers of one thing call it: `stem` is their common beginning of the key."""

    def __init__(self, store: ObjectStore, stem: str) -> None:
        self._store = store
        self.stem = stem

    def key(self, epoch: int) -> str:
        return f"{self.stem}-{epoch:0{_DIGITS}d}"

    def epochs(self) -> list[int]:
        """Of the objects there are, ascending. Raises ObjectStoreError."""
        found = (epoch_in_key(self.stem, info.key) for info in self._store.list(f"{self.stem}-"))
        return sorted(epoch for epoch in found if epoch is not None)

    def read(self) -> EpochStampedContent | None:
        """The newest writer's; None where nobody wrote. Raises ObjectStoreError."""
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
        """Raises ObjectStoreError."""
        self._store.put(self.key(epoch), (content,))

    def remove_before(self, epoch: int) -> None:
        """Raises ObjectStoreError."""
        if older := [self.key(other) for other in self.epochs() if other < epoch]:
            self._store.delete(older)

    def remove(self) -> None:
        """All of them: what they are about is gone. Raises ObjectStoreError."""
        if found := [self.key(epoch) for epoch in self.epochs()]:
            self._store.delete(found)


def epoch_in_key(stem: str, key: str) -> int | None:
    """The epoch in the key of an object with this stem; None for any other key."""
    beginning, dash, epoch = key.rpartition("-")
    return int(epoch) if dash and beginning == stem and len(epoch) == _DIGITS and epoch.isdigit() else None


def newest(stem: str, objects: list[ObjectInfo]) -> ObjectInfo | None:
    """Of a listing, the object with the highest epoch."""
    stamped = [(epoch, info) for info in objects if (epoch := epoch_in_key(stem, info.key)) is not None]
    return max(stamped)[1] if stamped else None

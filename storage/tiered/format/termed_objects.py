"""Small objects that one writer after another keeps up to date: the newest writer's is the one that counts.

Stores of objects know no leader epochs, and few of them a put with a condition: a leader that was deposed and does not
know it yet would replace what its successor wrote. So each writer has an object of its own, with its term (a leader
epoch) in the key. Readers take the object with the highest term, however late the others were written. A writer
removes its predecessors' once its own is there; one that a deposed leader puts back afterwards is never read again.
"""

from typing import NamedTuple

from storage.tiered.errors import ObjectNotFound
from storage.tiered.object_store import ObjectInfo, ObjectStore

_DIGITS = 10
_TRIES = 5
"""Between a list and a get the object may go, because there is a newer one; that happens once per change of leader."""


class Termed(NamedTuple):
    term: int
    content: bytes


class TermedObject:
    """What all writers of one thing call it: `stem` is their common beginning of the key."""

    def __init__(self, store: ObjectStore, stem: str) -> None:
        self._store = store
        self.stem = stem

    def key(self, term: int) -> str:
        return f"{self.stem}-{term:0{_DIGITS}d}"

    def terms(self) -> list[int]:
        """Of the objects there are, ascending. Raises ObjectStoreError."""
        found = (term_of(self.stem, info.key) for info in self._store.list(f"{self.stem}-"))
        return sorted(term for term in found if term is not None)

    def read(self) -> Termed | None:
        """The newest writer's; None where nobody wrote. Raises ObjectStoreError."""
        for _ in range(_TRIES):
            terms = self.terms()
            if not terms:
                return None
            try:
                return Termed(terms[-1], b"".join(self._store.get(self.key(terms[-1]))))
            except ObjectNotFound:
                continue
        raise ObjectNotFound(f"{self.stem} keeps changing")

    def write(self, term: int, content: bytes) -> None:
        """Raises ObjectStoreError."""
        self._store.put(self.key(term), (content,))

    def remove_before(self, term: int) -> None:
        """Raises ObjectStoreError."""
        if older := [self.key(other) for other in self.terms() if other < term]:
            self._store.delete(older)

    def remove(self) -> None:
        """All of them: what they are about is gone. Raises ObjectStoreError."""
        if found := [self.key(term) for term in self.terms()]:
            self._store.delete(found)


def term_of(stem: str, key: str) -> int | None:
    """The term in the key of an object with this stem; None for any other key."""
    beginning, dash, term = key.rpartition("-")
    return int(term) if dash and beginning == stem and len(term) == _DIGITS and term.isdigit() else None


def newest(stem: str, objects: list[ObjectInfo]) -> ObjectInfo | None:
    """Of a listing, the object with the highest term."""
    termed = [(term, info) for info in objects if (term := term_of(stem, info.key)) is not None]
    return max(termed)[1] if termed else None

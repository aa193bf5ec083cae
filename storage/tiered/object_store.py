"""The seam to object storage: put, get, delete, list, nothing more. Methods block, from several threads at once.

An object is there whole or not at all, and a put over another replaces it in one go. A listing may be stale by a while.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from protocol.primitives import Buffer


class ObjectInfo(NamedTuple):
    key: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """Every method may raise StoreUnavailable, StoreThrottled and, where it will never work, ObjectStoreError."""

    def put(self, key: str, parts: Iterable[Buffer]) -> int:
        """Stores what `parts` give one after another, held in memory by bounded pieces; returns the size in bytes.

        An error, also one that `parts` raises, leaves no object and nothing half-written behind, as far as the store
        can still be reached.
        """
        ...

    def get(self, key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        """The bytes from `first` to `last`, both included, in pieces; `last` may lie beyond the end.

        Raises ObjectNotFound, also for a `first` at or beyond the end of an object that is not empty.
        """
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """What is not there is deleted already. Raises if any could not be deleted; some may be gone then."""
        ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose keys begin with `prefix` and sort after `start_after`, sorted by the bytes of their keys."""
        ...

    def close(self) -> None: ...

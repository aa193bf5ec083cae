"""The interface of object stores: put, get, delete, list. Methods block and are thread-safe.

An object exists completely or not at all, and a put replaces an object atomically. A listing may be stale for a while.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from protocol.primitives import Buffer


class ObjectInfo(NamedTuple):
    key: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """Every method may raise StoreUnavailable, StoreThrottled and, for permanent failures, ObjectStoreError."""

    def put(self, key: str, parts: Iterable[Buffer]) -> int:
        """Store the concatenated `parts`, with bounded memory; return the size in bytes.

        After an error, also one raised by `parts`, no object and no partial upload remains, unless the store is
        unreachable.
        """
        ...

    def get(self, key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `first` to `last`, both included, in pieces; `last` may lie beyond the end.

        Raises ObjectNotFound, also for a `first` at or beyond the end of a non-empty object.
        """
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones count as deleted. Raises if any deletion failed; some may have succeeded."""
        ...

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with `prefix` and sort after `start_after`, sorted by the bytes of the
        keys.
        """
        ...

    def close(self) -> None: ...


class ConditionalStore(ObjectStore, Protocol):
    """An object store that decides between concurrent writers of one object."""

    def put_new(self, key: str, content: Buffer) -> bool:
        """Store an object unless one exists under the key; return whether this call stored it.

        After StoreUnavailable the object may exist. False may also mean that an earlier attempt of the same call stored
        it, so callers that need to know compare the content.
        """
        ...

"""Object store in memory that records its requests."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from protocol.primitives import Buffer
from storage.tiered.errors import ObjectNotFound
from storage.tiered.object_store import ConditionalStore, ObjectInfo

Operation: TypeAlias = Literal["put", "get", "delete", "list"]


class StoreCall(NamedTuple):
    """One request. `key` is the prefix of a list; a delete of several keys is several calls."""

    operation: Operation
    key: str
    first: int = 0
    last: int | None = None


class _Stored(NamedTuple):
    content: bytes
    modified_ms: int


class MemoryObjectStore:
    def __init__(self, piece_bytes: int = 64 * 1024) -> None:
        self._objects: dict[str, _Stored] = {}
        self._lock = threading.Lock()
        self._piece_bytes = piece_bytes
        self.now_ms = 0
        """Modification time of objects put from now on."""
        self.calls: list[StoreCall] = []
        self.is_closed = False

    # -- access for tests
    # ------------------------------------------------------------------------------------------------

    def keys(self) -> list[str]:
        return sorted(self._objects)

    def content(self, key: str) -> bytes:
        return self._objects[key].content

    def info(self, key: str) -> ObjectInfo | None:
        stored = self._objects.get(key)
        return stored and ObjectInfo(key, len(stored.content), stored.modified_ms)

    def replace(self, key: str, content: bytes) -> None:
        """Replace an existing object without a request and without a new modification time."""
        self._objects[key] = self._objects[key]._replace(content=content)

    def lose(self, key: str) -> None:
        """Remove an existing object without a request."""
        del self._objects[key]

    # -- ObjectStore ------------------------------------------------------------------------------------------------

    def put(self, key: str, parts: Iterable[Buffer]) -> int:
        self._note(StoreCall("put", key))
        content = b"".join(parts)
        with self._lock:
            self._objects[key] = _Stored(content, self.now_ms)
        return len(content)

    def put_new(self, key: str, content: Buffer) -> bool:
        self._note(StoreCall("put", key))
        with self._lock:
            is_new = key not in self._objects
            if is_new:
                self._objects[key] = _Stored(bytes(content), self.now_ms)
        return is_new

    def get(self, key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        assert last is None or first <= last, "a range has at least one byte"
        self._note(StoreCall("get", key, first, last))
        stored = self._objects.get(key)
        if stored is None:
            raise ObjectNotFound(f"object {key} does not exist")
        if stored.content and first >= len(stored.content):
            raise ObjectNotFound(f"{key} ends at {len(stored.content)}, before {first}")
        return self._pieces(stored.content[first : None if last is None else last + 1])

    def _pieces(self, content: bytes) -> Iterator[bytes]:
        for start in range(0, len(content), self._piece_bytes):
            yield content[start : start + self._piece_bytes]

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._note(StoreCall("delete", key))
            with self._lock:
                self._objects.pop(key, None)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        self._note(StoreCall("list", prefix))
        with self._lock:
            found = sorted(key for key in self._objects if key.startswith(prefix) and key > start_after)
        return self._infos(found)

    def _infos(self, keys: Iterable[str]) -> Iterator[ObjectInfo]:
        """Yield the listed objects that still exist."""
        for key in keys:
            if info := self.info(key):
                yield info

    def close(self) -> None:
        self.is_closed = True

    def _note(self, call: StoreCall) -> None:
        assert not self.is_closed, f"{call} after the store was closed"
        self.calls.append(call)


def checked(store: MemoryObjectStore) -> ConditionalStore:
    """Prove to the type checker that the fake is a ConditionalStore."""
    return store

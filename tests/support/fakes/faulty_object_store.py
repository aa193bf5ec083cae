"""Object store wrapper that injects the faults of a remote store.

Faults are random, from a seed and a probability for each kind, or planned (`fail`) for the next matching requests. The
whole store can be unavailable for a while (`vanish`). `injected` records the faults.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from random import Random
from typing import NamedTuple, TypeVar

from protocol.primitives import Buffer
from storage.tiered.errors import StoreThrottled, StoreUnavailable
from storage.tiered.object_store import ConditionalStore, ObjectInfo
from tests.support.fakes.memory_object_store import MemoryObjectStore, Operation

T = TypeVar("T")


class FaultKind(Enum):
    UNAVAILABLE = "the request fails without effect"
    THROTTLED = "the request fails without effect, with an error that demands a lower rate"
    SLOW = "`pause` is called before the request succeeds"
    TIMEOUT_AFTER_SUCCESS = "the request fails after it took effect"
    PARTIAL_UPLOAD = "the request fails after some parts; the object stays absent or as before"
    PARTIAL_DELETE = "the request fails after some of several deletions"
    SHORT_BODY = "the body ends early with StoreUnavailable"
    CORRUPT_BYTES = "one bit of the body is flipped; the object is unchanged"
    LOST_OBJECT = "the object is lost permanently"
    STALE_LIST = "a listing shows an earlier state, undoing recent changes through this wrapper"


STRIKES: dict[FaultKind, tuple[Operation, ...]] = {
    FaultKind.UNAVAILABLE: ("put", "get", "delete", "list"),
    FaultKind.THROTTLED: ("put", "get", "delete", "list"),
    FaultKind.SLOW: ("put", "get", "delete", "list"),
    FaultKind.TIMEOUT_AFTER_SUCCESS: ("put", "delete"),
    FaultKind.PARTIAL_UPLOAD: ("put",),
    FaultKind.PARTIAL_DELETE: ("delete",),
    FaultKind.SHORT_BODY: ("get",),
    FaultKind.CORRUPT_BYTES: ("get",),
    FaultKind.LOST_OBJECT: ("get",),
    FaultKind.STALE_LIST: ("list",),
}
"""Operations that a fault can hit."""

_KINDS: dict[Operation, tuple[FaultKind, ...]] = {
    operation: tuple(kind for kind in FaultKind if operation in STRIKES[kind])
    for operation in ("put", "get", "delete", "list")
}

_OF_OBJECTS = {FaultKind.SHORT_BODY, FaultKind.CORRUPT_BYTES, FaultKind.LOST_OBJECT}
"""Faults that hit existing objects only."""


class Injected(NamedTuple):
    kind: FaultKind
    operation: Operation
    key: str


@dataclass(slots=True)
class _Planned:
    kind: FaultKind
    operation: Operation | None
    key_part: str
    skip: int
    times: int

    def matches(self, operation: Operation, key: str) -> bool:
        wanted = self.operation in (None, operation)
        return wanted and operation in STRIKES[self.kind] and self.key_part in key


class _Change(NamedTuple):
    key: str
    before: ObjectInfo | None


class FaultyObjectStore:
    def __init__(
        self,
        inner: ConditionalStore,
        seed: int = 0,
        probabilities: Mapping[FaultKind, float] | None = None,
        *,
        pause: Callable[[], None] = lambda: None,
        max_staleness: int = 8,
    ) -> None:
        """`pause` is called in the requesting thread when the store is slow; a test may block there."""
        self.inner = inner
        self.probabilities = dict(probabilities or {})
        self.injected: list[Injected] = []
        self._random = Random(seed)
        self._pause = pause
        self._max_staleness = max_staleness
        self._planned: list[_Planned] = []
        self._changes: list[_Change] = []
        self._gone_for: float = 0
        self._lock = threading.RLock()

    # -- planned faults
    # --------------------------------------------------------------------------------------------------

    def fail(
        self,
        kind: FaultKind,
        operation: Operation | None = None,
        *,
        key_part: str = "",
        skip: int = 0,
        times: int = 1,
    ) -> None:
        """Fail `times` requests whose key or prefix contains `key_part`, after the first `skip` of them."""
        assert operation is None or operation in STRIKES[kind], f"{kind} does not apply to {operation}"
        self._planned.append(_Planned(kind, operation, key_part, skip, times))

    def vanish(self, requests: int | None = None) -> None:
        """Fail every request and break open bodies, for a number of requests or until `come_back`."""
        with self._lock:
            self._gone_for = float("inf") if requests is None else requests

    def come_back(self) -> None:
        with self._lock:
            self._gone_for = 0

    def heal(self) -> None:
        """Stop all faults, planned and random."""
        with self._lock:
            self.come_back()
            self._planned.clear()
            self.probabilities.clear()

    def forget_planned(self) -> None:
        """Cancel the planned faults that have not hit yet."""
        with self._lock:
            self._planned.clear()

    @property
    def planned_count(self) -> int:
        """Number of planned faults that have not hit yet."""
        return sum(planned.times for planned in self._planned)

    # -- ObjectStore -------------------------------------------------------------------------------------------------

    def put(self, key: str, parts: Iterable[Buffer]) -> int:
        kinds = self._begin("put", key)
        if FaultKind.PARTIAL_UPLOAD in kinds:
            for _ in islice(iter(parts), 1):
                pass
            raise StoreUnavailable(f"put {key}: connection reset")
        size = self._change([key], lambda: self.inner.put(key, parts))
        if FaultKind.TIMEOUT_AFTER_SUCCESS in kinds:
            raise StoreUnavailable(f"put {key}: timed out")
        return size

    def put_new(self, key: str, content: Buffer) -> bool:
        kinds = self._begin("put", key)
        if FaultKind.PARTIAL_UPLOAD in kinds:
            raise StoreUnavailable(f"put {key}: connection reset")
        is_new = self._change([key], lambda: self.inner.put_new(key, content))
        if FaultKind.TIMEOUT_AFTER_SUCCESS in kinds:
            raise StoreUnavailable(f"put {key}: timed out")
        return is_new

    def get(self, key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        kinds = self._begin("get", key)
        if FaultKind.LOST_OBJECT in kinds:
            self.inner.delete([key])
        return self._body(self.inner.get(key, first, last), key, kinds)

    def _body(self, pieces: Iterator[bytes], key: str, kinds: set[FaultKind]) -> Iterator[bytes]:
        for piece in pieces:
            if self._gone_for:
                raise StoreUnavailable(f"get {key}: connection reset")
            if FaultKind.SHORT_BODY in kinds:
                yield piece[: len(piece) // 2]
                raise StoreUnavailable(f"get {key}: connection reset")
            if FaultKind.CORRUPT_BYTES in kinds and piece:
                kinds.discard(FaultKind.CORRUPT_BYTES)
                yield self._flip_a_bit(piece)
            else:
                yield piece

    def _flip_a_bit(self, piece: bytes) -> bytes:
        flipped = bytearray(piece)
        with self._lock:
            flipped[self._random.randrange(len(piece))] ^= 1 << self._random.randrange(8)
        return bytes(flipped)

    def delete(self, keys: Sequence[str]) -> None:
        kinds = self._begin("delete", " ".join(keys))
        if FaultKind.PARTIAL_DELETE in kinds:
            some = keys[: len(keys) // 2]
            self._change(some, lambda: self.inner.delete(some))
            raise StoreUnavailable(f"delete of {len(keys)}: {len(keys) - len(some)} remain")
        self._change(keys, lambda: self.inner.delete(keys))
        if FaultKind.TIMEOUT_AFTER_SUCCESS in kinds:
            raise StoreUnavailable(f"delete of {len(keys)}: timed out")

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        kinds = self._begin("list", prefix)
        if FaultKind.STALE_LIST in kinds:
            return self._stale_list(prefix, start_after)
        return self.inner.list(prefix, start_after)

    def _stale_list(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        with self._lock:
            found = {info.key: info for info in self.inner.list(prefix, start_after)}
            known = min(len(self._changes), self._max_staleness)
            undone = self._changes[len(self._changes) - self._random.randint(min(1, known), known) :]
            for change in reversed(undone):
                if not (change.key.startswith(prefix) and change.key > start_after):
                    continue
                if change.before is None:
                    found.pop(change.key, None)
                else:
                    found[change.key] = change.before
        return iter([found[key] for key in sorted(found)])

    def close(self) -> None:
        self.inner.close()

    # -- selection of faults
    # ---------------------------------------------------------------------------------------------

    def _begin(self, operation: Operation, key: str) -> set[FaultKind]:
        """Return the faults of this request; raise those that end it."""
        with self._lock:
            if self._gone_for:
                self._gone_for -= 1
                raise StoreUnavailable(f"{operation} {key}: connection refused")
            kinds = {kind for kind in _KINDS[operation] if self._strikes(kind, operation, key)}
            if kinds & _OF_OBJECTS and self._info(key) is None:
                kinds -= _OF_OBJECTS
            if kinds:
                self.injected += [Injected(kind, operation, key) for kind in FaultKind if kind in kinds]
        if FaultKind.SLOW in kinds:
            self._pause()
        if FaultKind.THROTTLED in kinds:
            raise StoreThrottled(f"{operation} {key}: slow down")
        if FaultKind.UNAVAILABLE in kinds:
            raise StoreUnavailable(f"{operation} {key}: service unavailable")
        return kinds

    def _strikes(self, kind: FaultKind, operation: Operation, key: str) -> bool:
        planned = bool(self._planned) and self._is_planned(kind, operation, key)
        return planned or self._random.random() < self.probabilities.get(kind, 0.0)

    def _is_planned(self, kind: FaultKind, operation: Operation, key: str) -> bool:
        for planned in self._planned:
            if planned.kind is kind and planned.matches(operation, key):
                if planned.skip:
                    planned.skip -= 1
                    continue
                planned.times -= 1
                if not planned.times:
                    self._planned.remove(planned)
                return True
        return False

    def _change(self, keys: Sequence[str], change: Callable[[], T]) -> T:
        """Remember the former state for stale lists."""
        before = [_Change(key, self._info(key)) for key in keys]
        done = change()
        with self._lock:
            self._changes += before
            del self._changes[: -self._max_staleness]
        return done

    def _info(self, key: str) -> ObjectInfo | None:
        if isinstance(self.inner, MemoryObjectStore):
            return self.inner.info(key)  # a lookup that is not recorded as a call
        return next((info for info in self.inner.list(key) if info.key == key), None)


def checked(store: FaultyObjectStore) -> ConditionalStore:
    """Return `store`; the type checker verifies that it is a ConditionalStore."""
    return store

"""The bucket of a history: objects in memory behind the faults of a remote store.

All access uses the real segment store. Each broker has its own connection, which ends in the middle of a request when
the process dies. `truth` reads without faults and returns the real content.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from protocol.primitives import Buffer, Uuid
from storage.tiered.bucket.inventory import BucketReader
from storage.tiered.cache.chunk_cache import ChunkCache, ChunkReader, UncachedChunkReader
from storage.tiered.cache.chunk_storage import MemoryChunkStorage
from storage.tiered.cache.download_pool import Download
from storage.tiered.errors import StoreUnavailable
from storage.tiered.format.log_start_object import LOG_START_STEM
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.object_store import ObjectInfo, ObjectStore
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.store import ObjectSegmentStore
from storage.tiered.settings import CacheSettings, parse_settings
from tests.support.fakes.faulty_object_store import FaultKind, FaultyObjectStore
from tests.support.fakes.memory_object_store import MemoryObjectStore, Operation

KEY_PREFIX: Final = "tier/"
NAMES: Final[Mapping[FaultKind, str]] = {
    FaultKind.UNAVAILABLE: "requests refused",
    FaultKind.THROTTLED: "requests throttled",
    FaultKind.SLOW: "slow requests",
    FaultKind.TIMEOUT_AFTER_SUCCESS: "timeouts after success",
    FaultKind.PARTIAL_UPLOAD: "partial uploads",
    FaultKind.PARTIAL_DELETE: "partial deletes",
    FaultKind.SHORT_BODY: "bodies cut short",
    FaultKind.CORRUPT_BYTES: "corrupt bodies",
    FaultKind.LOST_OBJECT: "lost objects",
    FaultKind.STALE_LIST: "stale lists",
}
_OFTEN: Final[Mapping[FaultKind, float]] = {FaultKind.STALE_LIST: 2.0, FaultKind.PARTIAL_DELETE: 0.5}
"""Weights of rarer faults."""


class TimedObjectStore(MemoryObjectStore):
    """An object store that records when objects were put, and applies some requests late.

    `late_s` returns the delay of a PUT whose client gives up; None if there is none. `on_put` is called with the key of
    each object that appears, `version` changes with the set of objects.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._clock_ms = now_ms
        self.late_s: Callable[[], float | None] = lambda: None
        self.call_later: Callable[[float, Callable[[], None]], object] = _call_later
        """Calls a function after some seconds."""
        self.on_put: Callable[[str], None] = lambda key: None
        self.landed: set[str] = set()
        """Keys of objects that appeared late."""
        self.late_puts = 0
        self.version = 0

    def put(self, key: str, parts: Iterable[Buffer]) -> int:
        content = b"".join(parts)
        late_s = self.late_s()
        if late_s is None:
            return self._apply(key, content)
        self.late_puts += 1
        self.call_later(late_s, partial(self._land, key, content))
        raise StoreUnavailable(f"put {key}: timed out")

    def put_at_once(self, key: str, content: bytes) -> None:
        """Put an object without faults."""
        self._apply(key, content)

    def _land(self, key: str, content: bytes) -> None:
        self.landed.add(key)
        self._apply(key, content)

    def _apply(self, key: str, content: bytes) -> int:
        self.on_put(key)
        self.now_ms = self._clock_ms()
        self.version += 1
        return super().put(key, (content,))

    def delete(self, keys: Sequence[str]) -> None:
        self.version += 1
        super().delete(keys)


def _call_later(delay_s: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(delay_s, call)


class SimulatedStore(FaultyObjectStore):
    """A faulty store whose listings of log start objects are never stale: a fence cannot rest on stale listings."""

    def _begin(self, operation: Operation, key: str) -> set[FaultKind]:
        kinds = super()._begin(operation, key)
        return kinds - {FaultKind.STALE_LIST} if LOG_START_STEM in key else kinds


class Connection:
    """An ObjectStore over another, until its process dies."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._left: int | None = None
        self._died: Callable[[], None] = lambda: None

    def die_after(self, requests: int, died: Callable[[], None]) -> None:
        """Let the process die instead of sending the request after `count` more; call `died` then."""
        self._left, self._died = requests, died

    def revive(self) -> None:
        """Start as another process."""
        self._left = None

    def put(self, key: str, parts: Iterable[Buffer]) -> int:
        self._pass()
        return self._store.put(key, parts)

    def get(self, key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        self._pass()
        return self._store.get(key, first, last)

    def delete(self, keys: Sequence[str]) -> None:
        self._pass()
        self._store.delete(keys)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        self._pass()
        return self._store.list(prefix, start_after)

    def close(self) -> None:
        """Leave the shared store open."""

    def _pass(self) -> None:
        if self._left is None:
            return
        self._left -= 1
        if self._left < 0:
            self._died()
            raise StoreUnavailable("this process is dead")


class _AtOnce:
    """A pool that downloads without threads."""

    def submit(self, download: Download, *, is_prefetch: bool) -> bool:
        return True

    def prioritize(self, download: Download) -> None:
        download.run()

    def close(self) -> None:
        """Do nothing: no work is running."""


class Weather:
    """The store and its faults: about the share `failing` of requests fails, and some requests lose an object."""

    def __init__(
        self,
        random: Random,
        now_ms: Callable[[], int],
        *,
        slow_s: tuple[float, float] = (1.0, 20.0),
        loses_objects: bool = True,
    ) -> None:
        """Draw the faults; `slow_s` are the shortest and the longest delay of a slow request."""
        self.random = random
        self._slow_s = slow_s
        self._loses_objects = loses_objects
        self.failing = random.choice([0.0, 0.05, 0.3])
        self.is_calm = not self.failing
        self.keys = ObjectKeys(KEY_PREFIX)
        self.memory = TimedObjectStore(now_ms)
        self.faulty = SimulatedStore(self.memory, random.getrandbits(32), self._chances(), pause=self._be_slow)
        self.is_down = False
        self._now_ms = now_ms
        self._late_s = 0.0
        self._lost: set[str] = set()
        self._missing: dict[str, bytes] = {}
        """The content of objects that `lose` has removed."""
        self._gone: set[str] = set()
        """The keys of objects that `lose_for_good` has removed."""
        self._rotten: dict[str, bytes] = {}
        self._restored = 0
        self._sound: dict[str, bytes] = {}
        """The former content of rotten objects."""
        self._keys_of: dict[Uuid, tuple[str, ...]] = {}
        self._seen = 0
        self.memory.late_s = self._late_put_s
        self.latest_s = 0.0
        """Longest delay of a late PUT."""
        self._truth = self.segment_store(self.memory, UncachedChunkReader())

    def _chances(self) -> dict[FaultKind, float]:
        chances = {kind: self.failing / 4 * _OFTEN.get(kind, 1.0) for kind in NAMES}
        chances[FaultKind.LOST_OBJECT] = self.random.choice([0.0, self.failing / 20])
        if not self._loses_objects:
            del chances[FaultKind.LOST_OBJECT]
        return chances

    def segment_store(self, store: ObjectStore, chunks: ChunkReader) -> ObjectSegmentStore:
        settings = {
            "key.prefix": KEY_PREFIX,
            "chunk.size": str(self.random.choice([200, 100_000])),
            "compression.enabled": self.random.choice(["true", "false"]),
        }
        return ObjectSegmentStore(store, parse_settings(settings).settings, chunks, monotonic_ms=self._monotonic_ms)

    def connect(self, store: ObjectStore) -> ObjectSegmentStore:
        """Return a broker's segment store, with or without a chunk cache."""
        limits = CacheSettings(size=5_000, idle_ms=30_000, wait_ms=0)
        cached = ChunkCache(
            MemoryChunkStorage(limits, self._monotonic_ms), _AtOnce(), wait_ms=0, now_ms=self._monotonic_ms
        )
        chunks: ChunkReader = cached if self.random.random() < 0.5 else UncachedChunkReader()
        return self.segment_store(store, chunks)

    def bucket_reader(self, store: ObjectStore) -> BucketReader:
        return BucketReader(store, self.keys, self.segment_store(store, UncachedChunkReader()))

    def _monotonic_ms(self) -> float:
        return float(self._now_ms())

    # ---- ---- schedule

    def toggle(self) -> None:
        """Make the whole store unavailable, or available again."""
        self.is_down = not self.is_down
        if self.is_down:
            self.faulty.vanish()
        else:
            self.faulty.come_back()

    def hide_log_starts(self) -> None:
        """Fail all reads of log start objects until `heal`."""
        self.faulty.fail(FaultKind.UNAVAILABLE, "get", key_part=LOG_START_STEM, times=1_000_000)

    def rot(self) -> bool:
        """Flip a bit of an object of a segment, or of a log start; return whether there was one."""
        suffixes = tuple(each.value for each in ObjectSuffix)
        keys = [key for key in self.memory.keys() if key.endswith(suffixes) or LOG_START_STEM in key]  # noqa: SIM118
        whole = [key for key in keys if key not in self._rotten and self.memory.content(key)]
        if not whole:
            return False
        key = self.random.choice(whole)
        content = bytearray(self.memory.content(key))
        self._sound[key] = bytes(content)
        content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        self.memory.replace(key, bytes(content))
        self._rotten[key] = bytes(content)
        return True

    def lose(self) -> bool:
        """Remove an object of a segment, as no broker asked to; return whether there was one."""
        suffixes = tuple(each.value for each in ObjectSuffix)
        keys = [key for key in self.memory.keys() if key.endswith(suffixes) and key not in self._rotten]  # noqa: SIM118
        if not keys:
            return False
        key = self.random.choice(keys)
        self._missing[key] = bytes(self.memory.content(key))
        self._lost.add(key)
        self.memory.delete([key])
        return True

    def lose_for_good(self, segment: RemoteSegment) -> None:
        """Remove an object of a segment, as no broker asked to; mostly its log. No operator finds it again."""
        log, *others = self.keys_of(segment)
        key = log if self.random.random() < 0.6 else self.random.choice(others)
        self._lost.add(key)
        self._gone.add(key)
        self.memory.delete([key])

    def is_gone(self, segment: RemoteSegment) -> bool:
        """Whether an object of a segment is lost for good."""
        return bool(self._gone) and any(key in self._gone for key in self.keys_of(segment))

    def find_again(self) -> None:
        """Bring back the lost objects, as an operator does; those of deleted segments do no harm."""
        for key, content in self._missing.items():
            if self.memory.info(key) is None:
                self.memory.put_at_once(key, content)
        self._missing.clear()

    def restore_log_starts(self) -> None:
        """Replace rotten log start objects by their former versions, as an operator does.

        A partition with a damaged one counts as foreign, so that no command collects or recovers its segments.
        """
        self.restore(LOG_START_STEM)

    def restore(self, key_part: str = "") -> None:
        """Replace rotten objects whose keys contain `key_part` by their former versions."""
        for key, content in self._sound.items():
            if key_part in key and self.is_rotten(key):
                self.memory.replace(key, content)
                self._restored += 1

    def is_rotten(self, key: str) -> bool:
        """Whether an object has a flipped bit."""
        rotten = self._rotten.get(key)
        return rotten is not None and self.memory.info(key) is not None and self.memory.content(key) == rotten

    def _late_put_s(self) -> float | None:
        if not self.latest_s or self.random.random() >= self.failing / 8:
            return None
        return self.random.uniform(1.0, self.latest_s)

    def heal(self) -> None:
        self.is_down, self.failing = False, 0.0
        self.faulty.heal()

    def _be_slow(self) -> None:
        self._late_s = self.random.uniform(*self._slow_s)

    def answer_s(self) -> float:
        """Return the delay of the response to the work just done."""
        late_s, self._late_s = self._late_s, 0.0
        return late_s

    # ---- ---- real content

    @property
    def version(self) -> tuple[int, int]:
        """A value that changes with the set of objects and with their content."""
        return self.memory.version, len(self._rotten) + self._restored

    @property
    def happened(self) -> Counter[str]:
        """Return the number of faults by kind."""
        return Counter(NAMES[injected.kind] for injected in self.faulty.injected)

    def truth(self, segment: RemoteSegment) -> bytes:
        """Return the log bytes of a segment. Raises RemoteStorageError."""
        return b"".join(self._truth.read_segment(segment, 0))

    def keys_of(self, segment: RemoteSegment) -> tuple[str, ...]:
        """Return the keys of a segment's objects."""
        keys = self._keys_of.get(segment.id.id)
        if keys is None:
            keys = self._keys_of[segment.id.id] = tuple(self.keys.key(segment, suffix) for suffix in ObjectSuffix)
        return keys

    def has(self, segment: RemoteSegment) -> bool:
        """Whether the store has all objects of a segment."""
        return all(self.memory.info(key) is not None for key in self.keys_of(segment))

    def has_lost(self, segment: RemoteSegment) -> bool:
        """Whether an object of a segment is lost without a deletion, or rotten."""
        return self.lost_any(self.keys_of(segment))

    def lost_any(self, keys: Iterable[str]) -> bool:
        """Whether one of these objects is lost without a deletion, or rotten."""
        for injected in self.faulty.injected[self._seen :]:
            if injected.kind is FaultKind.LOST_OBJECT:
                self._lost.add(injected.key)
        self._seen = len(self.faulty.injected)
        if not self._lost and not self._rotten:
            return False
        return any((key in self._lost and self.memory.info(key) is None) or self.is_rotten(key) for key in keys)

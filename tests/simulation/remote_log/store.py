"""The bucket of a history: objects in memory behind the faults of a remote store.

All access uses the real segment store. Each broker has its own connection, which ends in the middle of a request when
the process dies. `truth` reads without faults and returns the real content.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Final

from protocol.primitives import Buffer
from storage.tiered.bucket.inventory import BucketReader
from storage.tiered.cache.chunk_cache import ChunkCache, ChunkReader, UncachedChunkReader
from storage.tiered.cache.chunk_storage import MemoryChunkStorage
from storage.tiered.cache.download_pool import Download
from storage.tiered.errors import StoreUnavailable
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.object_store import ObjectInfo, ObjectStore
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.store import ObjectSegmentStore
from storage.tiered.settings import CacheSettings, parse_settings
from tests.support.fakes.faulty_object_store import FaultKind, FaultyObjectStore
from tests.support.fakes.memory_object_store import MemoryObjectStore

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
    """An object store that records when objects were put."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._clock_ms = now_ms

    def put(self, key: str, parts: Iterable[Buffer]) -> int:
        self.now_ms = self._clock_ms()
        return super().put(key, parts)


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

    def __init__(self, random: Random, now_ms: Callable[[], int]) -> None:
        self.random = random
        self.failing = random.choice([0.0, 0.05, 0.3])
        self.keys = ObjectKeys(KEY_PREFIX)
        self.memory = TimedObjectStore(now_ms)
        self.faulty = FaultyObjectStore(self.memory, random.getrandbits(32), self._chances(), pause=self._be_slow)
        self.is_down = False
        self._now_ms = now_ms
        self._late_s = 0.0
        self._lost: set[str] = set()
        self._seen = 0
        self._truth = self.segment_store(self.memory, UncachedChunkReader())

    def _chances(self) -> dict[FaultKind, float]:
        chances = {kind: self.failing / 4 * _OFTEN.get(kind, 1.0) for kind in NAMES}
        chances[FaultKind.LOST_OBJECT] = self.random.choice([0.0, self.failing / 20])
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

    def heal(self) -> None:
        self.is_down, self.failing = False, 0.0
        self.faulty.heal()

    def _be_slow(self) -> None:
        self._late_s = self.random.uniform(1.0, 20.0)

    def answer_s(self) -> float:
        """Return the delay of the response to the work just done."""
        late_s, self._late_s = self._late_s, 0.0
        return late_s

    # ---- ---- real content

    @property
    def happened(self) -> Counter[str]:
        """Return the number of faults by kind."""
        return Counter(NAMES[injected.kind] for injected in self.faulty.injected)

    def truth(self, segment: RemoteSegment) -> bytes:
        """Return the log bytes of a segment. Raises RemoteStorageError."""
        return b"".join(self._truth.read_segment(segment, 0))

    def has(self, segment: RemoteSegment) -> bool:
        """Whether the store has all objects of a segment."""
        return all(self.memory.info(self.keys.key(segment, suffix)) is not None for suffix in ObjectSuffix)

    def has_lost(self, segment: RemoteSegment) -> bool:
        """Whether an object of a segment is lost without a deletion."""
        return self.lost_any(self.keys.key(segment, suffix) for suffix in ObjectSuffix)

    def lost_any(self, keys: Iterable[str]) -> bool:
        """Whether one of these objects is lost without a deletion."""
        for injected in self.faulty.injected[self._seen :]:
            if injected.kind is FaultKind.LOST_OBJECT:
                self._lost.add(injected.key)
        self._seen = len(self.faulty.injected)
        return any(key in self._lost and self.memory.info(key) is None for key in keys)

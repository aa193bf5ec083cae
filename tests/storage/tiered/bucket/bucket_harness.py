"""Harness of a partition whose leaders copy and delete segments, crash and are deposed, while a collector runs.

Each step of `BucketHarness.step` is one of: a request reaching the store, an event reaching the metadata log,
a crash, an election, passing time. The collector's store and journal run some steps before and after each call, so its
passes interleave with all other steps. After every step, the objects of all segments finished in the metadata must
exist, and so must all offsets copied from the log start on.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Buffer, Uuid
from storage.tiered.bucket.listing import StoredSegment
from storage.tiered.bucket.reconcile import Coverage
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.catalog.metadata_journal import Event, KnownPartition
from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.object_store import ObjectInfo
from storage.tiered.segment_metadata import (
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tests.support.fakes.memory_object_store import MemoryObjectStore

PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\x07"), "foo", 0)
SEGMENT_OFFSETS = 10
LEASE_MS = 400
GRACE_MS = 1_000
SLOWEST_PUT_MS = 300
"""Maximum delay with which a request reaches the store after its sender died."""

UPLOAD_ORDER = (ObjectSuffix.LOG, ObjectSuffix.INDEXES, ObjectSuffix.MANIFEST)

Task = Generator[None, None, None]


class Violation(AssertionError):
    """An object that the metadata promise is missing."""


@dataclass
class _Put:
    """A put in flight; `is_there` once it arrived."""

    key: str
    content: bytes
    arrives_ms: int
    is_there: bool = False


@dataclass
class _Leader:
    epoch: int
    tasks: list[Task] = field(default_factory=list)


class BucketHarness:
    """A partition in a simulated bucket; with `is_leased`, leaders give up copies older than the lease."""

    def __init__(self, seed: int, *, is_leased: bool = True) -> None:
        self.random = Random(seed)
        self.keys = ObjectKeys("logs/")
        self.store = MemoryObjectStore()
        self.now_ms = 1_000_000
        self.log: list[Event] = []
        self.truth = RemoteLogMetadataCache(PARTITION)
        self.log_start = 0
        self.next_offset = 0
        self.is_quiet = False
        self.is_leased = is_leased
        self._puts: list[_Put] = []
        self._ids = 0
        self._leaders = [_Leader(0)]

    # -- steps ------------------------------------------------------------------------------------------------------

    def steps(self, most: int) -> None:
        if not self.is_quiet:
            for _ in range(self.random.randrange(most + 1)):
                self.step()

    def step(self) -> None:
        self.now_ms += self.random.choice((1, 5, 20))
        self.store.now_ms = self.now_ms
        self._arrivals()
        leader = self.random.choice(self._leaders)
        chance = self.random.random()
        if chance < 0.02 and leader.tasks:
            leader.tasks.pop(self.random.randrange(len(leader.tasks)))  # a crash leaves objects and events unchanged
        elif chance < 0.03:
            self._leaders = [*self._leaders[-1:], _Leader(self._leaders[-1].epoch + 1)]
        elif len(leader.tasks) < 2 and leader is self._leaders[-1]:
            leader.tasks.append(self._copy(leader) if self.random.random() < 0.6 else self._expire())
        elif leader.tasks:
            task = self.random.choice(leader.tasks)
            if next(task, StopIteration) is StopIteration:
                leader.tasks.remove(task)
        self.check()

    def settle(self) -> None:
        """Stop all brokers and deliver requests in flight; the leader copies once more."""
        self._leaders = [_Leader(self._leaders[-1].epoch + 1)]
        self.now_ms += SLOWEST_PUT_MS + 1
        self._arrivals()
        before = self.next_offset
        while self.next_offset == before:
            for _ in self._copy(self._leaders[-1]):
                self.now_ms += 1
                self._arrivals()
        self.check()
        self.is_quiet = True
        self.now_ms += GRACE_MS + 1

    def _arrivals(self) -> None:
        self.store.now_ms = self.now_ms
        for put in [put for put in self._puts if put.arrives_ms <= self.now_ms]:
            self.store.put(put.key, (put.content,))
            put.is_there = True
            self._puts.remove(put)

    # -- brokers
    # ---------------------------------------------------------------------------------------------------------

    def _copy(self, leader: _Leader) -> Task:
        """Run one copy attempt; a deposed leader continues it."""
        self._ids += 1
        start, began_ms = self.next_offset, self.now_ms
        segment = self._segment(self._ids, start, start + SEGMENT_OFFSETS - 1, leader.epoch)
        self.append(segment)
        yield
        for suffix in UPLOAD_ORDER:
            put = self._send(self.keys.key(segment, suffix))
            while not put.is_there:
                yield
        if self.is_leased and self.now_ms - began_ms > LEASE_MS:
            yield from self._delete(segment)
            return
        if self.next_offset == start and self.append(self._event(segment, SegmentState.COPY_FINISHED)):
            self.next_offset = start + SEGMENT_OFFSETS
        else:
            yield from self._delete(segment)

    def _segment(self, number: int, start: int, end: int, broker_id: int) -> RemoteSegment:
        """Return a new segment; all leaders are elected cleanly, and all records are of the first epoch."""
        return RemoteSegment(
            id=RemoteSegmentId(PARTITION, Uuid(number.to_bytes(16, "big"))),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=self.now_ms,
            broker_id=BrokerId(broker_id),
            event_timestamp_ms=self.now_ms,
            size_bytes=1,
            leader_epochs=(SegmentEpoch(LeaderEpoch(0), start),),
        )

    def _expire(self) -> Task:
        """Delete the oldest segment, or an abandoned one of another leader."""
        finished = [each for each in self.truth.segments() if each.state is SegmentState.COPY_FINISHED]
        if len(finished) > 3:
            self.log_start = max(self.log_start, finished[0].end_offset + 1)
            yield
            yield from self._delete(finished[0])

    def _delete(self, segment: RemoteSegment) -> Task:
        self.append(self._event(segment, SegmentState.DELETE_STARTED))
        yield
        for suffix in reversed(UPLOAD_ORDER):
            self.store.delete([self.keys.key(segment, suffix)])
            yield
        self.append(self._event(segment, SegmentState.DELETE_FINISHED))

    def _send(self, key: str) -> _Put:
        put = _Put(key, b"x", self.now_ms + self.random.randrange(SLOWEST_PUT_MS))
        self._puts.append(put)
        return put

    def _event(self, segment: RemoteSegment, state: SegmentState) -> SegmentUpdate:
        return SegmentUpdate(segment.id, state, self.now_ms, segment.broker_id)

    def append(self, event: Event) -> bool:
        """Append an event to the log; return whether it is valid."""
        self.log.append(event)
        try:
            self.truth.add(event) if isinstance(event, RemoteSegment) else self._update(event)
        except InvalidSegmentTransition:
            return False
        return True

    def _update(self, event: Event) -> None:
        assert isinstance(event, SegmentUpdate), "the harness deletes no partitions"
        self.truth.update(event)

    # -- invariants
    # ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        present = set(self.store.keys())
        for segment in self.truth.segments():
            if segment.state is SegmentState.COPY_FINISHED:
                for suffix in UPLOAD_ORDER:
                    if self.keys.key(segment, suffix) not in present:
                        raise Violation(f"{segment.id} is finished and has lost its {suffix.value}")
        if self.next_offset <= self.log_start:
            return
        whole = self._segment(0, self.log_start, self.next_offset - 1, 0)
        if not Coverage(self.truth.segments(), self.log_start).holds(whole):
            raise Violation("offsets that a leader deleted locally after their copy are missing")

    def expected_keys(self) -> list[str]:
        return sorted(
            self.keys.key(segment, suffix)
            for segment in self.truth.segments()
            if segment.state is SegmentState.COPY_FINISHED
            for suffix in UPLOAD_ORDER
        )

    def described(self, objects: StoredSegment) -> RemoteSegment:
        return next(event for event in self.log if isinstance(event, RemoteSegment) and event.id == objects.id)


class InterruptedStore:
    """The collector's view of the store: steps interleave with every call, and a listing may be stale."""

    def __init__(self, harness: BucketHarness, stale_ms: int = 50) -> None:
        self._harness = harness
        self._stale_ms = stale_ms

    def put(self, key: str, parts: Iterable[Buffer]) -> int:
        raise AssertionError("a collector writes nothing")

    def get(self, key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        self._harness.steps(5)
        return self._harness.store.get(key, first, last)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._harness.steps(3)
            self._harness.store.delete([key])
            self._harness.check()
        self._harness.steps(5)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        self._harness.steps(20)
        for info in list(self._harness.store.list(prefix, start_after)):
            self._harness.steps(2)
            if info.modified_ms + self._stale_ms <= self._harness.now_ms:
                yield info

    def close(self) -> None:
        raise AssertionError("the collector must not close the store")


class InterruptedJournal:
    """The collector's view of the metadata log."""

    def __init__(self, harness: BucketHarness) -> None:
        self._harness = harness
        self._known = KnownPartition(PARTITION)
        self._position = 0

    def catch_up(self, partition: TopicIdPartition) -> KnownPartition:
        self._harness.steps(10)
        for event in self._harness.log[self._position :]:
            self._known.apply(event)
        self._position = len(self._harness.log)
        self._harness.steps(10)
        return self._known

    def catch_up_all(self) -> Iterable[KnownPartition]:
        return [self.catch_up(PARTITION)]

    def publish(self, partition: TopicIdPartition, events: Sequence[Event]) -> None:
        self._harness.steps(10)
        for event in events:
            self._harness.append(event)
        self._harness.steps(10)

"""Compaction of remote logs: a reader of the whole log gets the latest value of every key, despite failures."""

from collections.abc import Awaitable, Callable
from random import Random

import pytest

from broker.runtime.remote_log import layout_tracker as remote_layout
from protocol.ids import BrokerId
from protocol.records.control import ControlType
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.catalog.segment_spans import SegmentSpan
from storage.tiered.errors import CorruptRemoteData, RemoteStorageError, RetriableRemoteStorageError
from storage.tiered.lifecycle import compaction_survey
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate
from tests.broker.runtime.remote_log.test_manager import staged
from tests.support.fakes.fast_forward_loop import run_fast
from tests.support.fakes.memory_remote_metadata import MemoryRemoteMetadata
from tests.support.fakes.shared_remote_storage import Fault, Operation
from tests.support.harnesses.compacted_log_harness import RETENTION_MS, CompactedLogHarness, Seen, TableReader, a_while

FINISHED = SegmentState.COPY_FINISHED


def with_harness(**changes: object) -> Callable[[Callable[[CompactedLogHarness], Awaitable[None]]], Callable[[], None]]:
    """Run a test with a harness of its own."""

    def wrap(test: Callable[[CompactedLogHarness], Awaitable[None]]) -> Callable[[], None]:
        async def body() -> None:
            harness = CompactedLogHarness(**changes)
            try:
                await test(harness)
            finally:
                await harness.give_up()

        body.__name__, body.__doc__ = test.__name__, test.__doc__
        return staged(body)

    return wrap


def fill(harness: CompactedLogHarness, rounds: int, *, keys: int = 4, size: int = 100) -> None:
    for number in range(rounds):
        harness.put(*((f"k{key}", f"{number}" * size) for key in range(keys)))
        harness.roll()


@with_harness(local_retention_bytes=0)
async def test_compaction_removes_superseded_records(harness: CompactedLogHarness) -> None:
    fill(harness, 12)
    await a_while()
    harness.leader.retain()
    fill(harness, 1)
    await a_while(60)
    (first, *_) = harness.bucket.segments(FINISHED)
    assert first.is_compacted
    assert first.start_offset == 0
    reader = TableReader(harness).read_all()
    assert reader.table() == harness.expected()
    assert reader.remote_reads
    assert len(reader.seen) < 12
    assert harness.log.log_start_offset == 0
    assert set(harness.bucket.storage.stored) == {one.id.id for one in harness.bucket.segments(FINISHED)}
    meters = harness.leader.metrics.topic("t")
    assert 0 < meters.compaction_written_bytes < meters.compaction_read_bytes
    assert harness.leader.fs.list("d") == ["t-0"] or "compaction" not in harness.leader.fs.list("d")


@with_harness()
async def test_segments_on_the_leaders_disk_keep_their_ranges(harness: CompactedLogHarness) -> None:
    fill(harness, 4)
    await a_while(60)
    assert harness.log.local_log_start_offset == 0
    assert harness.bucket.ranges() == [(0, 3), (4, 7), (8, 11), (12, 15)]
    assert all(one.is_compacted for one in harness.bucket.segments())


def test_survey_examines_segments_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task reads all segments at once."""
    for module, name in (
        (remote_layout, "SEGMENTS_A_SLICE"),
        (compaction_survey, "SPANS_PER_STEP"),
        (compaction_survey, "COLLECTED_PER_STEP"),
    ):
        monkeypatch.setattr(module, name, 2)
    sizes: list[int] = []

    class Watched(RemoteLogLayout):
        def spans_from(self, offset: int, most: int) -> list[SegmentSpan]:
            found = super().spans_from(offset, most)
            sizes.append(len(found))
            return found

    monkeypatch.setattr(remote_layout, "RemoteLogLayout", Watched)
    monkeypatch.setattr(MemoryRemoteMetadata, "segments", None)

    async def body() -> None:
        harness = CompactedLogHarness(local_retention_bytes=0)
        fill(harness, 12)
        await a_while(60)
        assert all(one.is_compacted for one in harness.bucket.segments(FINISHED))
        assert len(sizes) > 6
        assert max(sizes) <= 2
        assert TableReader(harness).read_all().table() == harness.expected()
        await harness.give_up()

    run_fast(body())


@with_harness(local_retention_bytes=0)
async def test_clean_log_is_not_compacted(harness: CompactedLogHarness) -> None:
    fill(harness, 4)
    await a_while(60)
    before = harness.bucket.segments()
    await a_while(600)
    assert harness.bucket.segments() == before


@with_harness(local_retention_bytes=0, min_compaction_lag_ms=300_000)
async def test_young_records_are_not_compacted(harness: CompactedLogHarness) -> None:
    fill(harness, 4)
    await a_while(200)
    assert not any(one.is_compacted for one in harness.bucket.segments())
    await a_while(200)
    assert all(one.is_compacted for one in harness.bucket.segments())


@with_harness(local_retention_bytes=0, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=300_000)
async def test_few_old_records_are_compacted(harness: CompactedLogHarness) -> None:
    fill(harness, 4)
    await a_while(200)
    assert not any(one.is_compacted for one in harness.bucket.segments())
    await a_while(200)
    assert all(one.is_compacted for one in harness.bucket.segments())


@with_harness(local_retention_bytes=0, min_cleanable_dirty_ratio=0.0)
async def test_small_key_map_takes_several_passes(harness: CompactedLogHarness) -> None:
    harness.leader.compaction.dedupe_buffer_bytes = 600
    fill(harness, 8)
    await a_while(600)
    harness.leader.retain()
    reader = TableReader(harness).read_all()
    assert reader.table() == harness.expected()
    assert len(reader.seen) == 4


@with_harness(local_retention_bytes=0)
async def test_tombstone_is_deleted_after_retention_and_no_key_reappears(harness: CompactedLogHarness) -> None:
    harness.put(("deleted", "1" * 50), ("kept", "1"))
    harness.roll()
    harness.put(("deleted", None))
    harness.roll()
    await a_while(30)
    harness.leader.retain()
    await a_while(2 * RETENTION_MS / 1000)
    assert [(one.key, one.value) for one in TableReader(harness).read_all().seen] == [
        (b"kept", b"1"),
        (b"deleted", None),
    ]
    fill(harness, 4)
    await a_while(30)
    assert b"deleted" in {one.key for one in TableReader(harness).read_all().seen}, (
        "the tombstone's retention has just begun"
    )
    await a_while(RETENTION_MS / 1000)
    harness.leader.retain()
    fill(harness, 8)
    await a_while(30)
    harness.leader.retain()
    reader = TableReader(harness).read_all()
    assert b"deleted" not in {one.key for one in reader.seen}
    assert reader.table() == harness.expected()


@with_harness(local_retention_bytes=0)
async def test_aborted_records_supersede_nothing(harness: CompactedLogHarness) -> None:
    harness.put(("a", "good"))
    harness.roll()
    harness.put_in_transaction(1, ("a", "bad"))
    harness.roll()
    harness.put(("b", "1"))
    harness.end(1, ControlType.ABORT)
    harness.put_in_transaction(1, ("c", "1"))
    harness.end(1, ControlType.COMMIT)
    harness.roll()
    for _ in range(3):
        await a_while(60)
        harness.leader.retain()
        assert TableReader(harness).read_all().table() == {b"a": b"good", b"b": b"1", b"c": b"1"}
        harness.put(("d", "x" * 400))
        harness.roll()
        await a_while(RETENTION_MS / 1000)
        harness.expected()
        harness.put(("d", None))
        harness.roll()
        await a_while(RETENTION_MS / 1000)


@with_harness(local_retention_bytes=0)
async def test_late_copy_restores_no_compacted_record(harness: CompactedLogHarness) -> None:
    """A former leader finishes the copy of a segment that was compacted meanwhile."""
    fill(harness, 6)
    await a_while(60)
    harness.leader.retain()
    compacted = harness.bucket.segments(FINISHED)
    seen = TableReader(harness).read_all().seen
    raw = RemoteSegment(
        id=compacted[0].id._replace(id=harness.leader._new_id()),
        start_offset=1,
        end_offset=compacted[-1].end_offset,
        max_timestamp_ms=1,
        broker_id=BrokerId(9),
        event_timestamp_ms=1,
        size_bytes=100,
        leader_epochs=(compacted[0].leader_epochs[0]._replace(start_offset=1),),
        txn_index_empty=True,
    )
    cache = harness.bucket.metadata.cache(raw.id.partition)
    cache.add(raw)
    cache.update(SegmentUpdate(raw.id, FINISHED, 1, BrokerId(9)))
    assert TableReader(harness).read_all().seen == seen


def failing_once(operation: Operation, error: Exception, *, applies: bool = False) -> Callable[..., Fault | None]:
    left = [Fault(error, applies)]

    def fault(requested: Operation, segment: RemoteSegment) -> Fault | None:
        return left.pop() if requested == operation and segment.is_compacted and left else None

    return fault


@pytest.mark.parametrize("operation", ["copy"])
@pytest.mark.parametrize("applies", [False, True])
@pytest.mark.parametrize("error", [RetriableRemoteStorageError("later"), RemoteStorageError("never")])
def test_failed_compaction_leaves_no_orphans(operation: Operation, applies: bool, error: Exception) -> None:
    async def body() -> None:
        harness = CompactedLogHarness(local_retention_bytes=0)
        harness.bucket.storage.fault = failing_once(operation, error, applies=applies)
        fill(harness, 6)
        await a_while(120)
        assert all(one.is_compacted and one.state is FINISHED for one in harness.bucket.segments())
        assert not harness.bucket.orphans()
        assert harness.leader.metrics.topic("t").compaction_errors == 1
        assert TableReader(harness).read_all().table() == harness.expected()
        await harness.give_up()

    run_fast(body())


def test_unreadable_segment_delays_the_next_attempt() -> None:
    async def body() -> None:
        harness = CompactedLogHarness(local_retention_bytes=0)
        harness.bucket.storage.fault = lambda operation, segment: (
            Fault(CorruptRemoteData("bad")) if operation == "read" else None
        )
        fill(harness, 6)
        await a_while(50)
        assert harness.leader.metrics.topic("t").compaction_errors == 1
        assert not any(one.is_compacted for one in harness.bucket.segments())
        await harness.give_up()

    run_fast(body())


# ---- any history


class History:
    """Random steps on a harness, with invariants checked after each."""

    def __init__(self, harness: CompactedLogHarness, random: Random) -> None:
        self.harness = harness
        self.random = random
        self.value = 0
        self.slow: TableReader | None = None
        self.failing = 0.0
        self.is_unreadable = False
        self.finished = 0
        harness.bucket.storage.fault = self._fault

    def _fault(self, operation: Operation, segment: RemoteSegment) -> Fault | None:
        if self.is_unreadable and operation == "read":  # fails compaction, but not copies
            return Fault(RetriableRemoteStorageError("later"))
        if self.random.random() >= self.failing:
            return None
        error = self.random.choice([RetriableRemoteStorageError("later"), RemoteStorageError("never")])
        return Fault(error, applies=self.random.random() < 0.5)

    async def step(self) -> None:
        harness, random = self.harness, self.random
        choice = random.random()
        if choice < 0.45:
            self.write()
        elif choice < 0.55:
            harness.roll()
        elif choice < 0.70:
            await a_while(random.choice([0.3, 1, 3, 10, 40]))
        elif choice < 0.75:
            await a_while(random.choice([0.5, 1, 2]) * RETENTION_MS / 1000)
        elif choice < 0.83:
            harness.clean(random.choice(harness.brokers))
        elif choice < 0.89:
            random.choice(harness.brokers).retain()
        elif choice < 0.93:
            harness.replicate()
        elif choice < 0.95 and harness.may_change_leader:
            harness.lead(harness.follower)
        elif choice < 0.97:
            await harness.restart(random.choice(harness.brokers))
        else:
            self.failing = random.choice([0.0, 0.0, 0.3])
            self.is_unreadable = random.random() < 0.5
        self.read_slowly()

    def write(self) -> None:
        harness, random = self.harness, self.random
        entries = [self._entry() for _ in range(random.randint(1, 4))]
        choice = random.random()
        if choice < 0.7:
            harness.put(*entries)
        elif choice < 0.85:
            harness.put_in_transaction(random.choice([1, 2]), *entries)
        else:
            harness.end(random.choice([1, 2]), random.choice([ControlType.COMMIT, ControlType.ABORT]))

    def _entry(self) -> tuple[str, str | None]:
        self.value += 1
        key = f"k{self.random.choice([1, 2, 3, self.random.randrange(30)])}"
        return key, None if self.random.random() < 0.2 else f"{self.value}" + "x" * self.random.randrange(120)

    def check(self) -> None:
        harness = self.harness
        reader = TableReader(harness).read_all()
        assert reader.table() == harness.expected()
        self._check_seen(reader)

    def _check_seen(self, reader: TableReader) -> None:
        offsets = [one.offset for one in reader.seen]
        assert offsets == sorted(set(offsets))
        assert all(self.harness.is_written(Seen(*one)) for one in reader.seen)

    def read_slowly(self) -> None:
        """Advance a slow consumer, which takes less than delete.retention.ms."""
        if self.slow is None:
            self.slow = TableReader(self.harness)
        if not self.slow.is_at_end:
            self.slow.read_some()
        if self.slow.elapsed_ms > RETENTION_MS:
            self.slow = None
        elif self.slow.is_at_end:
            assert self.slow.table() == self.harness.expected()
            self._check_seen(self.slow)
            self.slow = None
            self.finished += 1


@pytest.mark.parametrize("seed", range(8))
def test_compaction_preserves_the_latest_value_of_every_key(seed: int) -> None:
    async def body() -> None:
        random = Random(seed)
        harness = CompactedLogHarness(
            local_retention_bytes=random.choice([0, 500, 3000]),
            min_cleanable_dirty_ratio=random.choice([0.1, 0.3, 0.8]),
        )
        history = History(harness, random)
        for broker in harness.brokers:
            broker.compaction.dedupe_buffer_bytes = random.choice([1000, 100_000])
        for _ in range(250):
            await history.step()
            history.check()
        history.failing, history.is_unreadable = 0.0, False
        for producer in harness.producers:
            harness.end(producer, ControlType.ABORT)
        harness.roll()
        await a_while(3 * RETENTION_MS / 1000)
        harness.leader.retain()
        await a_while(3 * RETENTION_MS / 1000)
        history.check()
        assert history.finished
        assert not harness.bucket.orphans()
        assert all(one.state is FINISHED for one in harness.bucket.segments())
        assert any(one.is_compacted for one in harness.bucket.segments())
        await harness.give_up()

    run_fast(body())

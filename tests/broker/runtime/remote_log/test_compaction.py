"""Compaction of the remote part of logs: whatever befalls it, a reader of everything builds the same table."""

from collections.abc import Awaitable, Callable
from random import Random

import pytest

from broker.runtime.remote_log import layout_tracker as remote_layout
from protocol.records.control import ControlType
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.catalog.segment_spans import SegmentSpan
from storage.tiered.errors import CorruptRemoteData, RemoteStorageError, RetriableRemoteStorageError
from storage.tiered.lifecycle import compaction_survey
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate
from tests.broker.runtime.remote_log.test_manager import staged
from tests.support.compacted_log_harness import RETENTION_MS, CompactedLogHarness, Seen, TableReader, a_while
from tests.support.fast_forward_loop import run_fast
from tests.support.memory_remote_metadata import MemoryRemoteMetadata
from tests.support.shared_remote_storage import Fault, Operation

FINISHED = SegmentState.COPY_FINISHED


def on_stage(**changes: object) -> Callable[[Callable[[CompactedLogHarness], Awaitable[None]]], Callable[[], None]]:
    """A test with a stage of its own."""

    def wrap(test: Callable[[CompactedLogHarness], Awaitable[None]]) -> Callable[[], None]:
        async def body() -> None:
            stage = CompactedLogHarness(**changes)
            try:
                await test(stage)
            finally:
                await stage.give_up()

        body.__name__, body.__doc__ = test.__name__, test.__doc__
        return staged(body)

    return wrap


def fill(stage: CompactedLogHarness, rounds: int, *, keys: int = 4, size: int = 100) -> None:
    for number in range(rounds):
        stage.put(*((f"k{key}", f"{number}" * size) for key in range(keys)))
        stage.roll()


@on_stage(local_retention_bytes=0)
async def test_the_remote_part_shrinks_to_what_is_of_use(stage: CompactedLogHarness) -> None:
    fill(stage, 12)
    await a_while()
    stage.leader.retain()
    fill(stage, 1)
    await a_while(60)
    (first, *_) = stage.bucket.segments(FINISHED)
    assert first.is_compacted
    assert first.start_offset == 0
    reader = TableReader(stage).read_all()
    assert reader.table() == stage.expected()
    assert reader.remote_reads
    assert len(reader.seen) < 12
    assert stage.log.log_start_offset == 0
    assert set(stage.bucket.storage.stored) == {one.id.id for one in stage.bucket.segments(FINISHED)}
    meters = stage.leader.metrics.topic("t")
    assert 0 < meters.compaction_written_bytes < meters.compaction_read_bytes
    assert stage.leader.fs.list("d") == ["t-0"] or "compaction" not in stage.leader.fs.list("d")


@on_stage()
async def test_what_is_on_the_leaders_disk_keeps_its_ranges(stage: CompactedLogHarness) -> None:
    fill(stage, 4)
    await a_while(60)
    assert stage.log.local_log_start_offset == 0
    assert stage.bucket.ranges() == [(0, 3), (4, 7), (8, 11), (12, 15)]
    assert all(one.is_compacted for one in stage.bucket.segments())


def test_no_look_takes_more_than_a_piece_of_what_is_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does any task ask for all segments at once."""
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
        stage = CompactedLogHarness(local_retention_bytes=0)
        fill(stage, 12)
        await a_while(60)
        assert all(one.is_compacted for one in stage.bucket.segments(FINISHED))
        assert len(sizes) > 6
        assert max(sizes) <= 2
        assert TableReader(stage).read_all().table() == stage.expected()
        await stage.give_up()

    run_fast(body())


@on_stage(local_retention_bytes=0)
async def test_a_clean_log_is_left_alone(stage: CompactedLogHarness) -> None:
    fill(stage, 4)
    await a_while(60)
    before = stage.bucket.segments()
    await a_while(600)
    assert stage.bucket.segments() == before


@on_stage(local_retention_bytes=0, min_compaction_lag_ms=300_000)
async def test_young_records_are_not_compacted(stage: CompactedLogHarness) -> None:
    fill(stage, 4)
    await a_while(200)
    assert not any(one.is_compacted for one in stage.bucket.segments())
    await a_while(200)
    assert all(one.is_compacted for one in stage.bucket.segments())


@on_stage(local_retention_bytes=0, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=300_000)
async def test_old_records_are_compacted_however_few(stage: CompactedLogHarness) -> None:
    fill(stage, 4)
    await a_while(200)
    assert not any(one.is_compacted for one in stage.bucket.segments())
    await a_while(200)
    assert all(one.is_compacted for one in stage.bucket.segments())


@on_stage(local_retention_bytes=0, min_cleanable_dirty_ratio=0.0)
async def test_a_map_that_is_too_small_takes_several_passes(stage: CompactedLogHarness) -> None:
    stage.leader.compaction.dedupe_buffer_bytes = 600
    fill(stage, 8)
    await a_while(600)
    stage.leader.retain()
    reader = TableReader(stage).read_all()
    assert reader.table() == stage.expected()
    assert len(reader.seen) == 4


@on_stage(local_retention_bytes=0)
async def test_a_tombstone_goes_after_its_time_and_nothing_comes_back(stage: CompactedLogHarness) -> None:
    stage.put(("gone", "1" * 50), ("stays", "1"))
    stage.roll()
    stage.put(("gone", None))
    stage.roll()
    await a_while(30)
    stage.leader.retain()
    await a_while(2 * RETENTION_MS / 1000)
    assert [(one.key, one.value) for one in TableReader(stage).read_all().seen] == [(b"stays", b"1"), (b"gone", None)]
    fill(stage, 4)
    await a_while(30)
    assert b"gone" in {one.key for one in TableReader(stage).read_all().seen}, "its time has begun just now"
    await a_while(RETENTION_MS / 1000)
    stage.leader.retain()
    fill(stage, 8)
    await a_while(30)
    stage.leader.retain()
    reader = TableReader(stage).read_all()
    assert b"gone" not in {one.key for one in reader.seen}
    assert reader.table() == stage.expected()


@on_stage(local_retention_bytes=0)
async def test_aborted_records_supersede_nothing(stage: CompactedLogHarness) -> None:
    stage.put(("a", "good"))
    stage.roll()
    stage.put_in_transaction(1, ("a", "bad"))
    stage.roll()
    stage.put(("b", "1"))
    stage.end(1, ControlType.ABORT)
    stage.put_in_transaction(1, ("c", "1"))
    stage.end(1, ControlType.COMMIT)
    stage.roll()
    for _ in range(3):
        await a_while(60)
        stage.leader.retain()
        assert TableReader(stage).read_all().table() == {b"a": b"good", b"b": b"1", b"c": b"1"}
        stage.put(("d", "x" * 400))
        stage.roll()
        await a_while(RETENTION_MS / 1000)
        stage.expected()
        stage.put(("d", None))
        stage.roll()
        await a_while(RETENTION_MS / 1000)


@on_stage(local_retention_bytes=0)
async def test_a_late_copy_brings_nothing_back(stage: CompactedLogHarness) -> None:
    """A leader that was deposed finishes the copy of a segment that others have compacted since."""
    fill(stage, 6)
    await a_while(60)
    stage.leader.retain()
    compacted = stage.bucket.segments(FINISHED)
    seen = TableReader(stage).read_all().seen
    raw = RemoteSegment(
        id=compacted[0].id._replace(id=stage.leader._new_id()),
        start_offset=1,
        end_offset=compacted[-1].end_offset,
        max_timestamp_ms=1,
        broker_id=9,
        event_timestamp_ms=1,
        size_bytes=100,
        leader_epochs=(compacted[0].leader_epochs[0]._replace(start_offset=1),),
        txn_index_empty=True,
    )
    cache = stage.bucket.metadata.cache(raw.id.partition)
    cache.add(raw)
    cache.update(SegmentUpdate(raw.id, FINISHED, 1, 9))
    assert TableReader(stage).read_all().seen == seen


def failing_once(operation: Operation, error: Exception, *, applies: bool = False) -> Callable[..., Fault | None]:
    left = [Fault(error, applies)]

    def fault(asked: Operation, segment: RemoteSegment) -> Fault | None:
        return left.pop() if asked == operation and segment.is_compacted and left else None

    return fault


@pytest.mark.parametrize("operation", ["copy"])
@pytest.mark.parametrize("applies", [False, True])
@pytest.mark.parametrize("error", [RetriableRemoteStorageError("later"), RemoteStorageError("never")])
def test_a_failure_leaves_no_orphan(operation: Operation, applies: bool, error: Exception) -> None:
    async def body() -> None:
        stage = CompactedLogHarness(local_retention_bytes=0)
        stage.bucket.storage.fault = failing_once(operation, error, applies=applies)
        fill(stage, 6)
        await a_while(120)
        assert all(one.is_compacted and one.state is FINISHED for one in stage.bucket.segments())
        assert not stage.bucket.orphans()
        assert stage.leader.metrics.topic("t").compaction_errors == 1
        assert TableReader(stage).read_all().table() == stage.expected()
        await stage.give_up()

    run_fast(body())


def test_what_cannot_be_read_is_not_read_again_and_again() -> None:
    async def body() -> None:
        stage = CompactedLogHarness(local_retention_bytes=0)
        stage.bucket.storage.fault = lambda operation, segment: (
            Fault(CorruptRemoteData("bad")) if operation == "read" else None
        )
        fill(stage, 6)
        await a_while(50)
        assert stage.leader.metrics.topic("t").compaction_errors == 1
        assert not any(one.is_compacted for one in stage.bucket.segments())
        await stage.give_up()

    run_fast(body())


# ---- any history


class History:
    """Random steps on a stage, and what must hold after each."""

    def __init__(self, stage: CompactedLogHarness, random: Random) -> None:
        self.stage = stage
        self.random = random
        self.value = 0
        self.slow: TableReader | None = None
        self.failing = 0.0
        self.is_unreadable = False
        self.finished = 0
        stage.bucket.storage.fault = self._fault

    def _fault(self, operation: Operation, segment: RemoteSegment) -> Fault | None:
        if self.is_unreadable and operation == "read":  # so that copies go on, and compaction does not
            return Fault(RetriableRemoteStorageError("later"))
        if self.random.random() >= self.failing:
            return None
        error = self.random.choice([RetriableRemoteStorageError("later"), RemoteStorageError("never")])
        return Fault(error, applies=self.random.random() < 0.5)

    async def step(self) -> None:
        stage, random = self.stage, self.random
        choice = random.random()
        if choice < 0.45:
            self.write()
        elif choice < 0.55:
            stage.roll()
        elif choice < 0.70:
            await a_while(random.choice([0.3, 1, 3, 10, 40]))
        elif choice < 0.75:
            await a_while(random.choice([0.5, 1, 2]) * RETENTION_MS / 1000)
        elif choice < 0.83:
            stage.clean(random.choice(stage.brokers))
        elif choice < 0.89:
            random.choice(stage.brokers).retain()
        elif choice < 0.93:
            stage.replicate()
        elif choice < 0.95 and stage.may_change_leader:
            stage.lead(stage.follower)
        elif choice < 0.97:
            await stage.restart(random.choice(stage.brokers))
        else:
            self.failing = random.choice([0.0, 0.0, 0.3])
            self.is_unreadable = random.random() < 0.5
        self.read_slowly()

    def write(self) -> None:
        stage, random = self.stage, self.random
        entries = [self._entry() for _ in range(random.randint(1, 4))]
        choice = random.random()
        if choice < 0.7:
            stage.put(*entries)
        elif choice < 0.85:
            stage.put_in_transaction(random.choice([1, 2]), *entries)
        else:
            stage.end(random.choice([1, 2]), random.choice([ControlType.COMMIT, ControlType.ABORT]))

    def _entry(self) -> tuple[str, str | None]:
        self.value += 1
        key = f"k{self.random.choice([1, 2, 3, self.random.randrange(30)])}"
        return key, None if self.random.random() < 0.2 else f"{self.value}" + "x" * self.random.randrange(120)

    def check(self) -> None:
        stage = self.stage
        reader = TableReader(stage).read_all()
        assert reader.table() == stage.expected()
        self._check_seen(reader)

    def _check_seen(self, reader: TableReader) -> None:
        offsets = [one.offset for one in reader.seen]
        assert offsets == sorted(set(offsets))
        assert all(self.stage.is_written(Seen(*one)) for one in reader.seen)

    def read_slowly(self) -> None:
        """A consumer that takes its time, though less than delete.retention.ms."""
        if self.slow is None:
            self.slow = TableReader(self.stage)
        if not self.slow.is_at_end:
            self.slow.read_some()
        if self.slow.elapsed_ms > RETENTION_MS:
            self.slow = None
        elif self.slow.is_at_end:
            assert self.slow.table() == self.stage.expected()
            self._check_seen(self.slow)
            self.slow = None
            self.finished += 1


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_a_reader_builds_the_same_table(seed: int) -> None:
    async def body() -> None:
        random = Random(seed)
        stage = CompactedLogHarness(
            local_retention_bytes=random.choice([0, 500, 3000]),
            min_cleanable_dirty_ratio=random.choice([0.1, 0.3, 0.8]),
        )
        history = History(stage, random)
        for broker in stage.brokers:
            broker.compaction.dedupe_buffer_bytes = random.choice([1000, 100_000])
        for _ in range(250):
            await history.step()
            history.check()
        history.failing, history.is_unreadable = 0.0, False
        for producer in stage.producers:
            stage.end(producer, ControlType.ABORT)
        stage.roll()
        await a_while(3 * RETENTION_MS / 1000)
        stage.leader.retain()
        await a_while(3 * RETENTION_MS / 1000)
        history.check()
        assert history.finished
        assert not stage.bucket.orphans()
        assert all(one.state is FINISHED for one in stage.bucket.segments())
        assert any(one.is_compacted for one in stage.bucket.segments())
        await stage.give_up()

    run_fast(body())

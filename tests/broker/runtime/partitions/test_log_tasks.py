"""The periodic tasks of logs (`log_tasks`) and their flushes (`log_flusher`)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from broker.runtime.partitions.log_flusher import LogFlusher
from broker.runtime.partitions.log_tasks import LogTasks, LogTaskSettings
from broker.runtime.partitions.partition import Partition
from protocol.ids import LeaderEpoch
from protocol.records.builder import Record, build_batch
from storage.config import CleanupPolicy, LogConfig
from storage.directories.checkpoints import TopicPartition, read_offsets
from tests.support.fakes.fast_forward_loop import run_fast
from tests.support.fakes.inline_io import InlineIo
from tests.support.harnesses.data_plane import DataPlane, batch

TP = TopicPartition("t", 0)
SMALL = len(batch(b"x")) + 10  # one batch per segment


class Upkeep:
    """The tasks over a data plane with inline file operations on the running loop."""

    def __init__(self) -> None:
        self.node = DataPlane()
        self.io = InlineIo(asyncio.get_running_loop())
        self.tasks = self.with_settings(LogTaskSettings(producer_expiration_ms=1000))

    def with_settings(self, settings: LogTaskSettings) -> LogTasks:
        node = self.node
        return LogTasks(
            node.partitions,
            node.log_dirs,
            node.cleaner,
            node.removals,
            node.flusher,
            self.io,
            node.clock,
            lambda: settings,
        )

    def produce(self, batches: int) -> None:
        """Append a segment per value, and flush the finished ones."""
        for _ in range(batches):
            self.node.produce(b"x")
        self.node.loop.run_soon()

    def files(self, suffix: str = ".log") -> list[str]:
        return [name for name in self.node.fs.list("/data/t-0") if name.endswith(suffix)]


@pytest.fixture
async def upkeep() -> Upkeep:
    return Upkeep()


async def test_checkpoints_hold_the_logs_offsets(upkeep: Upkeep) -> None:
    node = upkeep.node
    node.create_topic()
    node.produce(b"a", b"b", b"c")
    node.partition().record_deletion.delete_records(2)
    node.partition().log.flush()
    await upkeep.tasks.checkpoint_high_watermarks()
    await upkeep.tasks.checkpoint_recovery_points()
    await upkeep.tasks.checkpoint_log_starts()
    assert read_offsets(node.fs, "/data/replication-offset-checkpoint") == {TP: 3}
    assert read_offsets(node.fs, "/data/recovery-point-offset-checkpoint") == {TP: 3}
    assert read_offsets(node.fs, "/data/log-start-offset-checkpoint") == {TP: 2}


class TestRetention:
    async def test_retention_deletes_old_segments_and_wakes_readers_and_waiters(self, upkeep: Upkeep) -> None:
        node = upkeep.node
        node.create_topic(config=LogConfig(segment_bytes=SMALL, retention_bytes=SMALL, file_delete_delay_ms=5_000))
        upkeep.produce(3)
        outcomes: list[str] = []
        node.partition().record_deletion.when_deleted(1, lambda error: outcomes.append(error.name))
        await upkeep.tasks.apply_retention()
        assert node.partition().log.log_start_offset == 1
        assert outcomes == ["NONE"]
        assert len(upkeep.files(".deleted")) > 0

    async def test_files_of_deleted_segments_are_removed_after_the_delay(self, upkeep: Upkeep) -> None:
        node = upkeep.node
        node.create_topic(config=LogConfig(segment_bytes=SMALL, retention_bytes=SMALL, file_delete_delay_ms=5_000))
        upkeep.produce(3)
        await upkeep.tasks.apply_retention()
        await upkeep.tasks.remove_files()
        assert upkeep.files(".deleted")
        node.clock.advance_ms(5_000)
        await upkeep.tasks.remove_files()
        assert not upkeep.files(".deleted")

    @pytest.mark.parametrize("step_ms", [-86_400_000, 86_400_000])
    async def test_wall_clock_does_not_change_the_delay(self, upkeep: Upkeep, step_ms: int) -> None:
        node = upkeep.node
        node.create_topic(config=LogConfig(segment_bytes=SMALL, retention_bytes=SMALL, file_delete_delay_ms=5_000))
        upkeep.produce(3)
        await upkeep.tasks.apply_retention()
        node.clock.set_wall_ms(node.clock.now_ms() + step_ms)
        node.clock.advance_ms(4_999)
        await upkeep.tasks.remove_files()
        assert upkeep.files(".deleted")
        node.clock.advance_ms(1)
        await upkeep.tasks.remove_files()
        assert not upkeep.files(".deleted")

    async def test_failed_removal_is_left_to_the_next_start(self, upkeep: Upkeep) -> None:
        node = upkeep.node
        identity = node.create_topic()
        node.delete_topic(identity)
        node.memory.fail("remove")
        node.clock.advance_ms(60_000)
        await upkeep.tasks.remove_files()
        assert len(node.removals) == 0

    async def test_young_and_small_logs_keep_their_segments(self, upkeep: Upkeep) -> None:
        upkeep.node.create_topic(config=LogConfig(segment_bytes=SMALL))
        upkeep.produce(3)
        await upkeep.tasks.apply_retention()
        assert upkeep.node.partition().log.log_start_offset == 0

    async def test_failing_disk_takes_its_directory_offline(self, upkeep: Upkeep) -> None:
        node = upkeep.node
        node.create_topic(config=LogConfig(segment_bytes=SMALL, retention_bytes=SMALL))
        upkeep.produce(3)
        node.memory.fail("rename", path_part="t-0")
        await upkeep.tasks.apply_retention()
        assert node.failed_directories == ["/data"]


async def test_idle_producers_expire(upkeep: Upkeep) -> None:
    node = upkeep.node
    node.create_topic()
    early = batch(timestamp=node.clock.now_ms(), producer_id=1, producer_epoch=0, sequence=0)
    node.partition().append(early, 1)
    node.clock.advance_ms(1000)
    late = batch(timestamp=node.clock.now_ms(), producer_id=2, producer_epoch=0, sequence=0)
    node.partition().append(late, 1)
    await upkeep.tasks.expire_producers()
    assert list(node.partition().log.producers.entries) == [2]


class TestCompaction:
    COMPACTED = LogConfig(
        cleanup_policy=frozenset({CleanupPolicy.COMPACT}), segment_bytes=SMALL, min_cleanable_dirty_ratio=0.01
    )

    def keyed(self, node: DataPlane, key: bytes, value: bytes) -> None:
        record = Record(node.clock.now_ms(), key, value)
        node.partition().append(bytearray(build_batch([record])), 1)
        node.loop.run_soon()

    async def test_compaction_keeps_the_newest_value_of_each_key(self, upkeep: Upkeep) -> None:
        node = upkeep.node
        node.create_topic(config=self.COMPACTED)
        for number in range(6):
            self.keyed(node, b"k", b"%d" % number)
        await upkeep.tasks.compact()
        log = node.partition().log
        assert log.log_end_offset == 6
        assert log.read(0, 1, 6).next_offset == 1  # the bare header that keeps the start of the leader epoch
        assert log.read(1, 1, 6).next_offset == 5  # offsets 1 to 3 are removed, 4 is the last that may be compacted
        assert not node.cleaner.is_in_progress(log)
        assert read_offsets(node.fs, "/data/cleaner-offset-checkpoint") == {TP: 5}

    async def test_uncleanable_log_is_skipped(self, upkeep: Upkeep) -> None:
        node = upkeep.node
        node.create_topic(config=self.COMPACTED)
        for number in range(4):
            self.keyed(node, b"k", b"%d" % number)
        segment = node.partition().log.segments.first
        segment.file.write(57, (7).to_bytes(4, "big"))  # the number of missing records
        await upkeep.tasks.compact()
        await upkeep.tasks.compact()
        assert node.failed_directories == []
        assert node.partition().log.read(0, 1, 4).next_offset == 1

    async def test_compaction_keeps_below_its_rate(self, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
        node = upkeep.node
        node.create_topic(config=self.COMPACTED)
        for number in range(6):
            self.keyed(node, b"k", b"%d" % number)
        slept_ms = 0

        async def sleep(seconds: float) -> None:
            nonlocal slept_ms
            slept_ms += round(seconds * 1000)
            node.clock.advance_ms(round(seconds * 1000))

        monkeypatch.setattr("broker.runtime.partitions.log_tasks.asyncio.sleep", sleep)
        log = node.partition().log
        before = log.size_bytes - log.active_segment.size
        await upkeep.with_settings(LogTaskSettings(cleaner_bytes_per_second=1000.0)).compact()
        after = log.size_bytes - log.active_segment.size
        assert slept_ms == pytest.approx(2 * before + after, abs=5), "each byte is mapped, read, and perhaps written"

    async def test_log_deleted_before_its_pass_is_skipped(self, upkeep: Upkeep) -> None:
        node = upkeep.node
        identity = node.create_topic(config=self.COMPACTED)
        for number in range(6):
            self.keyed(node, b"k", b"%d" % number)
        log = node.partition().log
        upkeep.io.is_held = True
        compaction = asyncio.ensure_future(upkeep.tasks.compact())
        await asyncio.sleep(0)
        node.delete_topic(identity)
        upkeep.io.release()
        await compaction
        assert not node.cleaner.is_in_progress(log)
        assert node.failed_directories == []

    async def test_deleting_a_topic_ends_its_compaction_pass(self, upkeep: Upkeep) -> None:
        node = upkeep.node
        identity = node.create_topic(config=self.COMPACTED)
        for number in range(6):
            self.keyed(node, b"k", b"%d" % number)
        upkeep.io.is_held = True
        compaction = asyncio.ensure_future(upkeep.tasks.compact())
        await run_steps(upkeep.io, 3)
        node.delete_topic(identity)
        upkeep.io.release()
        await compaction
        assert node.failed_directories == []
        assert len(node.log_dirs) == 0


class TestCut:
    """Tasks skip a follower's log during a truncation, when only the IO thread may touch it."""

    def follower(self, upkeep: Upkeep, config: LogConfig, batches: int = 6) -> Partition:
        """Return a follower with one segment per batch, all committed."""
        node = upkeep.node
        node.create_topic(replicas=(1, 2), leader=2, config=config)
        for offset in range(batches):
            data = build_batch([Record(1, b"k", b"x")], base_offset=offset, leader_epoch=LeaderEpoch(0))
            node.partition().follower.append_fetched(LeaderEpoch(0), offset, data, offset + 1, 0)
        node.loop.run_soon()
        return node.partition()

    async def test_retention_skips_a_truncating_log(self, upkeep: Upkeep) -> None:
        partition = self.follower(upkeep, LogConfig(segment_bytes=SMALL, retention_bytes=SMALL))
        upkeep.node.io.is_held = True
        partition.follower.truncate(LeaderEpoch(0), 4)
        await upkeep.tasks.apply_retention()
        assert partition.log.log_start_offset == 0
        upkeep.node.io.release()
        upkeep.node.loop.run_soon()
        await upkeep.tasks.apply_retention()
        assert partition.log.log_start_offset > 0

    async def test_producer_expiration_skips_a_truncating_log(self, upkeep: Upkeep) -> None:
        node = upkeep.node
        node.create_topic(replicas=(1, 2), leader=2)
        partition = node.partition()
        data = build_batch(
            [Record(1, b"k", b"x")], leader_epoch=LeaderEpoch(0), producer_id=7, producer_epoch=0, base_sequence=0
        )
        partition.follower.append_fetched(LeaderEpoch(0), 0, data, 1, 0)
        node.io.is_held = True
        partition.follower.truncate_fully_and_start_at(LeaderEpoch(0), 5)
        await upkeep.tasks.expire_producers()
        assert 7 in partition.log.producers.entries

    async def test_compaction_does_not_begin_on_a_truncating_log(self, upkeep: Upkeep) -> None:
        partition = self.follower(upkeep, TestCompaction.COMPACTED)
        upkeep.io.is_held = upkeep.node.io.is_held = True
        compaction = asyncio.ensure_future(upkeep.tasks.compact())
        await asyncio.sleep(0)
        partition.follower.truncate(LeaderEpoch(0), 4)
        upkeep.io.run_all()
        for _ in range(5):
            await asyncio.sleep(0)
            assert not upkeep.node.cleaner.is_in_progress(partition.log)
        await compaction

    async def test_compaction_changes_no_segments_of_a_truncating_log(self, upkeep: Upkeep) -> None:
        partition = self.follower(upkeep, TestCompaction.COMPACTED)
        before = list(partition.log.segments)
        upkeep.io.is_held = upkeep.node.io.is_held = True
        compaction = asyncio.ensure_future(upkeep.tasks.compact())
        await run_steps(upkeep.io, 3)
        assert upkeep.node.cleaner.is_in_progress(partition.log)
        partition.follower.truncate(LeaderEpoch(0), 4)
        await run_steps(upkeep.io, 50)
        assert list(partition.log.segments) == before
        upkeep.node.io.release()
        upkeep.node.loop.run_soon()
        assert not upkeep.node.cleaner.is_in_progress(partition.log)
        assert partition.log.log_end_offset == 4
        assert upkeep.node.failed_directories == []
        compaction.cancel()


async def run_steps(io: InlineIo, count: int) -> None:
    """Run the loop until it has submitted and completed this many jobs."""
    for _ in range(count):
        for _ in range(3):  # the iterations from a completed future to the next job
            await asyncio.sleep(0)
        io.run_all()


class TestFlusher:
    """At most one flush of a log at a time; a request during a flush causes one more."""

    @pytest.fixture
    def node(self) -> DataPlane:
        node = DataPlane()
        node.create_topic()
        node.io.is_held = True
        return node

    def flusher(self, node: DataPlane) -> LogFlusher:
        return LogFlusher(node.io, node.deadlines)

    def test_requests_during_a_flush_share_the_next_one(self, node: DataPlane) -> None:
        flusher = self.flusher(node)
        for _ in range(5):
            flusher.flush(node.partition())
        assert node.io.waiting == 1
        node.io.run_all()
        node.loop.run_soon()
        assert node.io.waiting == 1
        node.io.run_all()
        node.loop.run_soon()
        assert node.io.waiting == 0

    def test_appends_during_a_flush_are_covered_by_the_next(self, node: DataPlane) -> None:
        flusher = self.flusher(node)
        node.produce(b"a")
        flusher.flush(node.partition())
        node.io.run_all()
        node.produce(b"b")
        flusher.flush(node.partition())
        node.loop.run_soon()
        node.io.run_all()
        node.loop.run_soon()
        assert node.partition().log.recovery_point == 2


class Rhythm:
    """Counts the runs of a task over simulated time."""

    def __init__(self, settings: LogTaskSettings, *jobs: str) -> None:
        self.runs: dict[str, list[float]] = {job: [] for job in jobs}
        self._settings = settings

    def over(self, seconds: float) -> dict[str, list[float]]:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            tasks, began = Upkeep().with_settings(self._settings), loop.time()
            for job, moments in self.runs.items():
                setattr(tasks, job, self._job(moments, loop, began))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await tasks.run()

        run_fast(main())
        return self.runs

    @staticmethod
    def _job(moments: list[float], loop: asyncio.AbstractEventLoop, began: float) -> Callable[[], Awaitable[None]]:
        async def job() -> None:
            moments.append(round(loop.time() - began, 3))

        return job


def test_tasks_begin_after_the_initial_delay() -> None:
    settings = LogTaskSettings(initial_delay_ms=30_000, retention_check_ms=10_000, high_watermark_checkpoint_ms=20_000)
    runs = Rhythm(settings, "apply_retention", "checkpoint_high_watermarks").over(55)
    assert runs == {"apply_retention": [30, 40, 50], "checkpoint_high_watermarks": [20, 40]}


@pytest.mark.parametrize(("enabled", "runs"), [(True, [15, 30]), (False, [])])
def test_compaction_runs_if_enabled(enabled: bool, runs: list[float]) -> None:
    assert Rhythm(LogTaskSettings(cleaner_enable=enabled), "compact").over(40) == {"compact": runs}


async def test_unexpected_error_of_a_task_ends_all_tasks(upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(upkeep.node.log_dirs.checkpoints, "write_high_watermarks", broken)
    tasks = upkeep.with_settings(LogTaskSettings(high_watermark_checkpoint_ms=0))
    with pytest.raises(ExceptionGroup) as group:
        await tasks.run()
    assert group.group_contains(ZeroDivisionError)

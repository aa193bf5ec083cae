"""A log whose older part is in remote storage alone (KIP-405): log start offset, retention, restarts and truncation."""

from dataclasses import replace

import pytest

from protocol.ids import LeaderEpoch
from protocol.primitives import uuid_from_text
from protocol.records.builder import Record, build_batch
from storage.compaction.cleaner import cleanable_range
from storage.config import CleanupPolicy, LogConfig
from storage.directories.checkpoints import LOG_START_OFFSET_FILE, LeaderEpochEntry, TopicPartition, read_offsets
from storage.directories.log_dirs import LogDirs
from storage.errors import OffsetMovedToTier, OffsetOutOfRange
from storage.files import join, write_file
from storage.log import Log
from storage.retention import SegmentDeletionReason, delete_old_segments
from tests.support.fakes.memory_files import MemoryFileSystem

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
TOPIC_ID = uuid_from_text("yD1jdMJdSCqQZBmcs2nXVA")
TIERED = LogConfig(remote_storage_enable=True, retention_ms=-1, retention_bytes=-1)
KEEP_NOTHING_HERE = replace(TIERED, local_retention_bytes=0)
PARTITION = TopicPartition("t", 0)


class TieredLogNode:
    """One directory with one log, over restarts."""

    def __init__(self, config: LogConfig = TIERED, topic: str = "t") -> None:
        self.fs = MemoryFileSystem()
        self.config = config
        self.partition = TopicPartition(topic, 0)
        self.start()
        self.log = self.dirs.create(self.partition, config, now_ms=NOW_MS, topic_id=TOPIC_ID)

    def start(self) -> None:
        self.dirs = LogDirs.open(self.fs, ["d"], lambda directory, logs: None)
        self.dirs.load(lambda topic: self.config, now_ms=NOW_MS)

    def restart(self, *, clean: bool = True) -> Log:
        if clean:
            self.dirs.close()
            self.dirs.unlock()
        else:
            self.fs.locked.clear()
        self.start()
        log = self.dirs.get(self.partition)
        assert log is not None
        self.log = log
        return log

    def fill(self, segments: int, *, age_ms: int = 0, epoch: int = 0, per_segment: int = 10) -> Log:
        """Append committed records in closed segments of ten records each."""
        for _ in range(segments):
            records = [Record(NOW_MS - age_ms, b"k", b"v" * 20)] * per_segment
            self.log.append_as_leader(bytearray(build_batch(records)), LeaderEpoch(epoch), now_ms=NOW_MS)
            self.log.roll(NOW_MS)
        self.log.advance_high_watermark(self.log.log_end_offset)
        return self.log

    def retain(self, config: LogConfig | None = None) -> list[tuple[SegmentDeletionReason, list[int]]]:
        if config is not None:
            self.log.config = self.config = config
        if not self.dirs.checkpoints.covers_log_start(self.log):
            self.dirs.checkpoints.write_log_starts()
        expired = delete_old_segments(self.log, NOW_MS)
        return [(reason, [segment.base_offset for segment in segments]) for reason, segments in expired]


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


class TestCompaction:
    """Logs with compaction alone."""

    COMPACTED = replace(TIERED, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))

    def test_local_retention_applies_to_segments_in_remote_storage(self) -> None:
        node = TieredLogNode(replace(self.COMPACTED, retention_ms=1, retention_bytes=1))
        log = node.fill(3, age_ms=HOUR_MS)
        log.highest_remote_offset = 29
        assert node.retain() == []
        assert node.retain(replace(node.config, local_retention_ms=1)) == [
            (SegmentDeletionReason.LOCAL_TIME, [0, 10, 20])
        ]
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 30)

    def test_segments_without_remote_copy_are_kept(self) -> None:
        node = TieredLogNode(
            replace(self.COMPACTED, local_retention_ms=1, retention_ms=1, remote_log_copy_disable=True)
        )
        log = node.fill(3, age_ms=HOUR_MS)
        log.highest_remote_offset = 29
        assert node.retain() == []

    def test_segments_not_yet_copied_are_not_compacted(self) -> None:
        log = TieredLogNode(self.COMPACTED).fill(4)
        assert cleanable_range(log, 0, NOW_MS) == (0, 0)
        log.highest_remote_offset = 25  # in the middle of the third segment
        assert cleanable_range(log, 0, NOW_MS) == (0, 20)
        log.highest_remote_offset = 39
        assert cleanable_range(log, 10, NOW_MS) == (10, 40)

    def test_compaction_continues_above_deleted_local_segments(self) -> None:
        node = TieredLogNode(replace(self.COMPACTED, local_retention_bytes=0))
        log = node.fill(2)
        log.highest_remote_offset = 19
        node.retain()
        node.fill(2)
        log.highest_remote_offset = 39
        assert log.local_log_start_offset == 20
        assert cleanable_range(log, 0, NOW_MS) == (20, 40)


class TestRetention:
    def test_local_deletion_requires_a_remote_copy(self) -> None:
        node = TieredLogNode()
        log = node.fill(3)
        assert node.retain(KEEP_NOTHING_HERE) == []
        log.highest_remote_offset = 18  # one offset short of the second segment
        assert node.retain() == [(SegmentDeletionReason.LOCAL_SIZE, [0])]
        log.highest_remote_offset = 29
        assert node.retain() == [(SegmentDeletionReason.LOCAL_SIZE, [10, 20])]
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 30, 30)

    def test_local_retention_ms_replaces_retention_ms(self) -> None:
        node = TieredLogNode()
        node.fill(1, age_ms=2 * HOUR_MS)
        log = node.fill(1)
        log.highest_remote_offset = 19
        assert node.retain(replace(TIERED, local_retention_ms=HOUR_MS)) == [(SegmentDeletionReason.LOCAL_TIME, [0])]
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 10)

    def test_local_limits_default_to_the_total_limits(self) -> None:
        node = TieredLogNode()
        log = node.fill(2, age_ms=2 * HOUR_MS)
        log.highest_remote_offset = 9
        assert node.retain(replace(TIERED, retention_ms=HOUR_MS)) == [(SegmentDeletionReason.LOCAL_TIME, [0])]
        assert log.log_start_offset == 0, "remote segments have their own retention"

    def test_expired_active_segment_is_rolled_for_copying(self) -> None:
        node = TieredLogNode()
        log = node.log
        log.append_as_leader(
            bytearray(build_batch([Record(NOW_MS - 2 * HOUR_MS, b"k", b"v")])), LeaderEpoch(0), now_ms=NOW_MS
        )
        log.advance_high_watermark(1)
        assert node.retain(replace(TIERED, local_retention_ms=HOUR_MS)) == []
        assert bases(log) == [0, 1]
        assert node.retain() == []
        assert bases(log) == [0, 1], "an empty segment stays"

    def test_segments_below_the_log_start_are_deleted_without_remote_copy(self) -> None:
        node = TieredLogNode()
        log = node.fill(3)
        log.maybe_increment_log_start_offset(15)
        assert node.retain() == [(SegmentDeletionReason.BELOW_LOG_START, [0])]
        assert (log.log_start_offset, log.local_log_start_offset) == (15, 15)

    def test_disabled_copying_applies_the_total_limits_and_raises_the_log_start(self) -> None:
        node = TieredLogNode()
        log = node.fill(2, age_ms=2 * HOUR_MS)
        config = replace(TIERED, remote_log_copy_disable=True, retention_ms=HOUR_MS, local_retention_ms=1)
        assert node.retain(config) == [(SegmentDeletionReason.TIME, [0, 10])]
        assert log.log_start_offset == 20

    @pytest.mark.parametrize("topic", ["__consumer_offsets", "__remote_log_metadata"])
    def test_internal_topics_are_never_tiered(self, topic: str) -> None:
        node = TieredLogNode(KEEP_NOTHING_HERE, topic)
        log = node.fill(2)
        log.highest_remote_offset = 19
        assert not log.is_tiered
        assert node.retain() == []


class TestRestart:
    @pytest.mark.parametrize("clean", [True, False])
    def test_log_start_below_the_first_segment_survives_a_restart(self, clean: bool) -> None:
        node = TieredLogNode()
        node.fill(2, epoch=3)
        log = node.fill(2, epoch=5)
        log.flush()
        log.highest_remote_offset = 29
        node.retain(KEEP_NOTHING_HERE)
        log = node.restart(clean=clean)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 30, 40)
        assert log.epochs.entries == [LeaderEpochEntry(LeaderEpoch(3), 0), LeaderEpochEntry(LeaderEpoch(5), 20)]
        assert log.high_watermark >= 30
        assert log.highest_remote_offset == -1, "the owner must set it again"
        with pytest.raises(OffsetMovedToTier):
            log.read(25, 1000, 40)

    def test_log_start_is_checkpointed_before_a_segment_is_deleted(self) -> None:
        node = TieredLogNode()
        log = node.fill(2)
        log.highest_remote_offset = 19
        assert not node.dirs.checkpoints.covers_log_start(log)
        node.retain(KEEP_NOTHING_HERE)
        assert read_offsets(node.fs, join("d", LOG_START_OFFSET_FILE)) == {PARTITION: 0}
        log = node.restart(clean=False)
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 20)

    def test_log_start_is_not_below_the_checkpointed_epochs(self) -> None:
        """The epochs are saved before segments are deleted, the checkpoint on a timer."""
        node = TieredLogNode()
        log = node.fill(3, epoch=3)
        log.highest_remote_offset = 19
        node.dirs.checkpoints.write_log_starts()
        log.maybe_increment_log_start_offset(5)
        node.retain(KEEP_NOTHING_HERE)
        log = node.restart(clean=False)
        assert (log.log_start_offset, log.local_log_start_offset) == (5, 20)
        assert log.epochs.entries == [LeaderEpochEntry(LeaderEpoch(3), 5)]

    def test_epochs_of_deleted_segments_are_saved_without_a_flush(self) -> None:
        node = TieredLogNode()
        node.fill(2, epoch=3)
        log = node.fill(1, epoch=5)
        log.highest_remote_offset = 29
        node.retain(KEEP_NOTHING_HERE)
        log = node.restart(clean=False)
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 30)
        assert log.epochs.entries == [LeaderEpochEntry(LeaderEpoch(3), 0), LeaderEpochEntry(LeaderEpoch(5), 20)]

    def test_log_start_below_the_first_epoch_is_raised(self) -> None:
        """The log was emptied and dropped the epochs that ended there; the checkpoint is older."""
        node = TieredLogNode()
        log = node.fill(2, epoch=3)
        node.dirs.checkpoints.write_log_starts()
        log.maybe_increment_log_start_offset(20)
        log.truncate_to(20, now_ms=NOW_MS)
        node.retain()
        node.fill(1, epoch=3)
        log = node.restart(clean=False)
        assert (log.log_start_offset, log.local_log_start_offset) == (20, 20)

    def test_unreadable_epochs_keep_the_remote_part(self) -> None:
        node = TieredLogNode()
        log = node.fill(2, epoch=3)
        log.highest_remote_offset = 19
        node.retain(KEEP_NOTHING_HERE)
        write_file(node.fs, "d/t-0/leader-epoch-checkpoint", b"garbage", sync=True)
        log = node.restart(clean=False)
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 20)

    def test_newly_tiered_log_starts_at_its_first_segment(self) -> None:
        node = TieredLogNode(replace(TIERED, remote_storage_enable=False))
        log = node.fill(2)
        log.maybe_increment_log_start_offset(10)
        node.retain()
        node.config = TIERED
        log = node.restart(clean=False)
        assert (log.log_start_offset, log.local_log_start_offset) == (10, 10)

    def test_log_without_tiering_starts_at_its_first_segment(self) -> None:
        node = TieredLogNode()
        log = node.fill(2)
        log.highest_remote_offset = 9
        node.retain(KEEP_NOTHING_HERE)
        node.config = replace(TIERED, remote_storage_enable=False)
        assert node.restart().log_start_offset == 10


class TestTruncation:
    def test_truncation_lowers_the_highest_remote_offset(self) -> None:
        log = TieredLogNode().fill(3)
        log.highest_remote_offset = 29
        log.truncate_to(20, now_ms=NOW_MS)
        assert log.highest_remote_offset == 19
        log.truncate_to(20, now_ms=NOW_MS)
        assert log.highest_remote_offset == 19

    def test_truncation_below_the_local_log_keeps_the_remote_part(self) -> None:
        node = TieredLogNode()
        node.fill(2, epoch=3)
        log = node.fill(2, epoch=5)
        log.highest_remote_offset = 29
        node.retain(KEEP_NOTHING_HERE)
        log.truncate_to(15, now_ms=NOW_MS)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 15, 15)
        assert log.epochs.entries == [LeaderEpochEntry(LeaderEpoch(3), 0)]
        assert log.highest_remote_offset == -1
        log = node.restart()
        assert (log.log_start_offset, log.log_end_offset) == (0, 15)

    def test_full_truncation_resets_the_highest_remote_offset(self) -> None:
        node = TieredLogNode()
        log = node.fill(2)
        log.highest_remote_offset = 19
        node.retain(KEEP_NOTHING_HERE)
        log.truncate_fully_and_start_at(100, now_ms=NOW_MS)
        assert (log.log_start_offset, log.local_log_start_offset, log.highest_remote_offset) == (100, 100, -1)
        assert log.epochs.entries == []
        with pytest.raises(OffsetOutOfRange):
            log.read(10, 1000, 100)

    def test_followed_high_watermark_stays_within_the_local_log(self) -> None:
        """KAFKA-16452."""
        node = TieredLogNode()
        log = node.fill(3)
        log.highest_remote_offset = 19
        node.retain(KEEP_NOTHING_HERE)
        log.follow_high_watermark(5)
        assert log.high_watermark == 20

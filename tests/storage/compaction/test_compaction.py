"""Compaction against a naive model: a reader that builds a table from the log gets the same table after any pass, and
after a crash at any point.
"""

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

import pytest

from protocol.ids import LeaderEpoch
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, end_transaction_marker
from protocol.records.reader import iter_records
from storage.compaction.cleaner import Cleaning, LogCleaner, cleanable_range
from storage.compaction.compaction import CleanableRange, CompactionStats, compact
from storage.compaction.offset_map import ENTRY_BYTES, OffsetMap
from storage.config import CleanupPolicy, LogConfig
from storage.directories.checkpoints import CLEANER_OFFSET_FILE, TopicPartition, read_offsets, write_offsets
from storage.errors import CorruptBatch, LogDirFailure
from storage.files import join
from storage.log import Log
from storage.producer_state import Origin
from storage.segment import CLEANED_SUFFIX
from tests.support.fakes.memory_files import MemoryFileSystem, Operation

DIRECTORY = "logs/t-0"
RECOVERY_POINTS = "logs/recovery-point-offset-checkpoint"
PARTITION = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
COMPACTED = LogConfig(
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    segment_bytes=2048,
    index_interval_bytes=200,
    min_cleanable_dirty_ratio=0.0,
)


class SeenRecord(NamedTuple):
    """A data record of the log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass
class Producer:
    id: int
    next_sequence: int = 0


class LogCleanerHarness:
    """A compacted log, all records ever appended to it, and operations on it."""

    def __init__(self, config: LogConfig = COMPACTED) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_directory("logs")
        self.fs.sync_directory(".")
        self.config = config
        self.now_ms = NOW_MS
        self.fs.now_ms = NOW_MS
        self.producers = {n: Producer(n) for n in (1, 2)}
        self.epoch = 0
        self.log = self.open(clean=True)
        self.cleaner = self.new_cleaner()

    def open(self, *, clean: bool) -> Log:
        log = Log.open(
            self.fs,
            DIRECTORY,
            self.config,
            now_ms=self.now_ms,
            clean_shutdown=clean,
            recovery_point=read_offsets(self.fs, RECOVERY_POINTS).get(PARTITION, 0),
            jitter=lambda bound: 0,
            before_truncation=self.checkpoint,
        )
        log.advance_high_watermark(log.log_end_offset)
        return log

    def new_cleaner(self, keys: int = 1000) -> LogCleaner:
        cleaner = LogCleaner(
            self.fs, dedupe_buffer_bytes=keys * ENTRY_BYTES, make_durable=self.make_durable, load_factor=1.0
        )
        cleaner.load_checkpoints(["logs"])
        return cleaner

    def checkpoint(self, log: Log) -> None:
        write_offsets(self.fs, RECOVERY_POINTS, {PARTITION: log.recovery_point})

    def make_durable(self, log: Log) -> None:
        log.flush()
        self.checkpoint(log)

    # -- writing ---------------------------------------------------------------------------------------------------

    def put(self, *entries: tuple[str, str | None], codec: int = 0) -> None:
        self._append(build_batch([self._record(key, value) for key, value in entries], codec=codec))

    def put_in_transaction(self, number: int, *entries: tuple[str, str | None]) -> None:
        producer = self.producers[number]
        batch = build_batch(
            [self._record(key, value) for key, value in entries],
            producer_id=producer.id,
            producer_epoch=0,
            base_sequence=producer.next_sequence,
            transactional=True,
        )
        producer.next_sequence += len(entries)
        self._append(batch)

    def end(self, number: int, type: ControlType) -> None:
        self._append(end_transaction_marker(type, number, 0, 0, self.now_ms), Origin.COORDINATOR)

    def _record(self, key: str, value: str | None) -> Record:
        return Record(self.now_ms, key.encode(), None if value is None else value.encode())

    def _append(self, batch: bytes | bytearray, origin: Origin = Origin.CLIENT) -> None:
        self.log.append_as_leader(bytearray(batch), LeaderEpoch(self.epoch), now_ms=self.now_ms, origin=origin)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.fs.now_ms = self.now_ms

    # -- compacting ------------------------------------------------------------------------------------------------

    def compact(self) -> CompactionStats | None:
        """Run one pass if the cleaner finds a candidate; return its statistics."""
        candidate = self.cleaner.next_candidate([self.log], self.now_ms)
        if candidate is None:
            return None
        cleaning = self.cleaner.begin(candidate, self.now_ms)
        self.run(cleaning)
        self.cleaner.finish(cleaning)
        return cleaning.stats

    def run(self, cleaning: Cleaning) -> None:
        while not cleaning.is_done:
            swap = cleaning.step()
            if swap is not None:
                for segment in self.log.replace_segments(*swap):
                    segment.remove_files()

    def compact_all(self) -> None:
        for _ in range(20):
            if self.compact() is None:
                return
            if self.cleaner.next_candidate([self.log], self.now_ms) is None:
                return

    def crash(self, random: Random) -> None:
        self.fs.faults.clear()
        self.fs.crash(random)
        self.log = self.open(clean=False)
        self.cleaner = self.new_cleaner()

    # -- reading ---------------------------------------------------------------------------------------------------

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        found = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            part = self.log.read(offset, 10_000, self.log.log_end_offset)
            if part.next_offset == offset:
                break
            for position, header in iter_headers(part.data):
                found.append((header, bytes(part.data[position : position + header.size])))
            offset = part.next_offset
        return found

    def records(self) -> list[SeenRecord]:
        return [
            SeenRecord(record.offset, record.timestamp, record.key, record.value)
            for header, batch in self.batches()
            if not header.is_control and header.record_count
            for record in iter_records(batch)
        ]

    def keys(self) -> list[str]:
        return [(record.key or b"").decode() for record in self.records()]

    def table(self) -> dict[bytes, bytes]:
        """Return the table that a read_committed consumer builds."""
        table: dict[bytes, bytes] = {}
        for record in self._committed():
            assert record.key is not None
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = record.value
        return table

    def _committed(self) -> Iterator[SeenRecord]:
        """Yield committed records as consumers do: an aborted transaction is skipped from its first offset to its
        marker.
        """
        aborted = sorted(self.log.aborted_transactions(0, self.log.log_end_offset), key=lambda txn: txn.first_offset)
        skipping: set[int] = set()
        for header, batch in self.batches():
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipping.add(aborted.pop(0).producer_id)
            if header.is_control:
                skipping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipping):
                for record in iter_records(batch) if header.record_count else ():
                    yield SeenRecord(record.offset, record.timestamp, record.key, record.value)

    def files(self) -> list[str]:
        return self.fs.list(DIRECTORY)


# -- the rules, one by one ---------------------------------------------------------------------------------------------


def test_last_value_of_a_key_keeps_its_offset() -> None:
    log = LogCleanerHarness()
    log.put(("a", "1"), ("b", "1"), ("c", "1"))
    log.put(("a", "2"), ("c", "2"))
    log.put(("a", "3"))
    log.roll()
    log.put(("b", "in the active segment"))
    assert log.compact() is not None
    offsets = [(record.offset, record.key, record.value) for record in log.records()]
    assert offsets == [(1, b"b", b"1"), (4, b"c", b"2"), (5, b"a", b"3"), (6, b"b", b"in the active segment")]


def test_second_pass_changes_nothing() -> None:
    log = LogCleanerHarness()
    log.put(("a", "1"))
    log.roll()
    log.put(("a", "2"))
    assert log.compact() is not None
    assert log.compact() is None
    assert read_offsets(log.fs, join("logs", CLEANER_OFFSET_FILE)) == {PARTITION: 1}


def test_batches_without_removed_records_keep_their_bytes() -> None:
    log = LogCleanerHarness()
    log.put(("a", "1"), ("b", "1"), codec=4)
    log.put(("c", "1"))
    log.roll()
    before = log.batches()
    log.compact()
    assert log.batches() == before


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_filtered_batch_keeps_offsets_codec_and_timestamps(codec: int) -> None:
    log = LogCleanerHarness()
    log.put(("a", "1"), ("b", "1"), ("a", "2"), codec=codec)
    log.roll()
    log.compact()
    ((header, batch),) = log.batches()
    assert (header.base_offset, header.last_offset, header.codec, header.record_count) == (0, 2, codec, 2)
    assert [(r.offset, r.timestamp, r.key) for r in iter_records(batch)] == [(1, NOW_MS, b"b"), (2, NOW_MS, b"a")]


def test_last_batch_of_the_cleaned_range_stays_as_a_bare_header() -> None:
    log = LogCleanerHarness()
    log.put(("a", "1"))
    log.put(("b", "1"))
    log.roll()
    log.put(("b", "2"))
    log.roll()
    log.compact()
    headers = [header for header, _ in log.batches()]
    assert [(header.base_offset, header.record_count) for header in headers] == [(0, 1), (2, 1)]
    log.put(("b", "3"))
    log.roll()
    log.compact()
    assert [(header.base_offset, header.record_count) for header, _ in log.batches()] == [(0, 1), (3, 1)]


def test_local_tombstone_is_kept_while_remote_segments_exist() -> None:
    log = LogCleanerHarness(replace(COMPACTED, remote_storage_enable=True))
    log.put(("a", None))
    log.roll()
    for _ in range(3):
        log.put(("b", "1"))
        log.roll()
        log.log.highest_remote_offset = log.log.log_end_offset - 1
        assert log.compact() is not None
        log.pass_time(2 * DAY_MS)
    assert log.keys() == ["a", "b"]


def test_tombstone_is_removed_only_after_delete_retention() -> None:
    log = LogCleanerHarness()
    log.put(("a", "1"), ("b", "1"))
    log.put(("a", None))
    log.roll()
    log.put(("x", "1"))
    log.compact()
    assert log.keys() == ["b", "a", "x"]
    (_, header) = [header for header, _ in log.batches()][:2]
    assert header.delete_horizon_ms == NOW_MS + DAY_MS
    assert [record.timestamp for record in log.records()] == [NOW_MS] * 3

    log.pass_time(DAY_MS - 1)
    log.roll()
    log.put(("y", "1"))
    log.compact()
    assert log.keys() == ["b", "a", "x", "y"]

    log.pass_time(1)
    log.roll()
    log.compact()
    assert log.keys() == ["b", "x", "y"]


def test_record_without_key_is_dropped() -> None:
    log = LogCleanerHarness(LogConfig(segment_bytes=2048))
    log._append(build_batch([Record(NOW_MS, None, b"v"), Record(NOW_MS, b"a", b"v")]))
    log.roll()
    log.log.config = COMPACTED
    log.compact()
    assert log.keys() == ["a"]


def test_aborted_data_is_removed_at_once_and_outdates_nothing() -> None:
    log = LogCleanerHarness()
    log.put(("a", "kept"))
    log.put_in_transaction(1, ("a", "aborted"))
    log.end(1, ControlType.ABORT)
    log.put_in_transaction(2, ("b", "committed"))
    log.end(2, ControlType.COMMIT)
    log.roll()
    log.put(("z", "1"))
    log.compact()
    assert log.table() == {b"a": b"kept", b"b": b"committed", b"z": b"1"}
    assert log.keys() == ["a", "b", "z"]
    assert [txn.producer_id for txn in log.log.aborted_transactions(0, 100)] == [1]


def test_marker_is_kept_for_delete_retention_after_its_data() -> None:
    log = LogCleanerHarness()
    log.put(("x", "1"))
    log.put_in_transaction(1, ("a", "1"))
    log.end(1, ControlType.COMMIT)
    log.put(("a", "2"))
    log.put_in_transaction(1, ("last", "of the producer"))
    log.end(1, ControlType.COMMIT)
    log.roll()
    log.put(("z", "1"))

    def markers() -> list[tuple[int, int | None]]:
        return [(h.base_offset, h.delete_horizon_ms) for h, _ in log.batches() if h.is_control]

    log.compact()
    assert markers() == [(2, None), (5, None)], "the pass still read the data of the first transaction"
    log.roll()
    log.put(("z", "2"))
    log.compact()
    assert markers() == [(2, NOW_MS + DAY_MS), (5, None)]
    log.pass_time(DAY_MS)
    log.roll()
    log.put(("z", "3"))
    log.compact()
    assert markers() == [(5, None)]


def test_abort_marker_outlives_its_data_by_delete_retention() -> None:
    """A reader in the middle of the aborted data needs the marker; new readers meet no data, and no index entry."""
    log = LogCleanerHarness()
    log.put(("x", "1"))
    log.put_in_transaction(1, ("a", "aborted"))
    log.end(1, ControlType.ABORT)
    log.put_in_transaction(1, ("last", "of the producer"))
    log.end(1, ControlType.COMMIT)

    def compact() -> list[tuple[int, int | None]]:
        log.roll()
        log.put(("z", "1"))
        log.compact()
        return [(h.base_offset, h.delete_horizon_ms) for h, _ in log.batches() if h.is_control and h.record_count]

    assert compact() == [(2, None), (4, None)]
    assert [txn.producer_id for txn in log.log.aborted_transactions(0, 100)] == [1]
    assert compact()[0] == (2, NOW_MS + DAY_MS)
    assert log.log.aborted_transactions(0, 100) == []
    log.pass_time(DAY_MS)
    assert compact() == [(4, None)]


def test_first_batch_of_a_leader_epoch_stays_as_a_bare_header() -> None:
    """A follower that reads the log after compaction derives the same epochs as one that read it before."""
    log = LogCleanerHarness()
    for epoch in (0, 3, 7):
        log.log.assign_epoch(LeaderEpoch(epoch))
        log.epoch = epoch
        log.put(("a", "1"))
        log.put(("a", "2"))
        log.roll()
    log.compact()
    batches = log.batches()
    assert [(header.base_offset, header.leader_epoch) for header, _ in batches] == [(0, 0), (2, 3), (4, 7), (5, 7)]
    assert [record.offset for record in log.records()] == [5]


def test_last_batch_of_an_active_producer_stays_as_a_bare_header() -> None:
    log = LogCleanerHarness()
    log.put_in_transaction(1, ("a", "1"))
    log.end(1, ControlType.ABORT)
    log.put(("b", "1"))
    log.roll()
    log.compact()
    headers = [header for header, _ in log.batches()]
    assert [(h.base_offset, h.record_count, h.producer_id, h.base_sequence) for h in headers] == [
        (0, 0, 1, 0),
        (1, 1, 1, -1),
        (2, 1, -1, -1),
    ]
    log.log.close()
    reopened = log.open(clean=True)
    assert reopened.producers.entries[1].last_sequence == 0


def test_segments_with_an_undecided_transaction_are_not_cleaned() -> None:
    log = LogCleanerHarness()
    log.put(("a", "1"), ("a", "2"))
    log.roll()
    log.put_in_transaction(1, ("b", "1"))
    log.put(("a", "3"))
    log.roll()
    assert cleanable_range(log.log, 0, log.now_ms) == CleanableRange(0, 2)
    log.compact()
    assert log.keys() == ["a", "b", "a"]
    log.end(1, ControlType.COMMIT)
    log.compact_all()
    assert log.table() == {b"a": b"3", b"b": b"1"}
    assert log.keys() == ["b", "a"]


def test_records_within_min_compaction_lag_are_not_cleaned() -> None:
    log = LogCleanerHarness(replace(COMPACTED, min_compaction_lag_ms=1000))
    log.put(("a", "1"))
    log.roll()
    log.put(("a", "2"))
    log.roll()
    assert log.compact() is None
    log.pass_time(1000)
    assert log.compact() is not None
    assert log.keys() == ["a"]


def test_full_offset_map_ends_the_pass_even_within_a_batch() -> None:
    log = LogCleanerHarness()
    log.put(*((key, "1") for key in "abcd"))
    log.roll()
    log.put(*((key, "2") for key in "abcd"))
    log.roll()
    log.cleaner = log.new_cleaner(keys=3)
    stats = log.compact()
    assert stats is not None
    assert (stats.end_offset, stats.mapped_keys) == (3, 3)
    log.compact_all()
    assert [(record.offset, record.value) for record in log.records()] == [(o, b"2") for o in (4, 5, 6, 7)]


def test_small_segments_are_merged() -> None:
    log = LogCleanerHarness()
    for number in range(20):
        log.put((f"key-{number}", "x" * 50))
        log.roll()
    assert len(log.log.segments) == 21
    log.compact()
    sizes = [segment.size for segment in log.log.segments]
    assert len(sizes) < 6
    assert max(sizes) <= COMPACTED.segment_bytes
    assert log.keys() == [f"key-{number}" for number in range(20)]


def test_rewritten_segment_keeps_its_modification_time_and_is_indexed() -> None:
    log = LogCleanerHarness(replace(COMPACTED, segment_bytes=100_000))
    for number in range(30):
        log.pass_time(1000)
        log.put((f"key-{number % 7}", "x" * 60))
        if number % 10 == 9:
            log.roll()
    log.pass_time(1_000_000)
    log.compact()
    first = log.log.segments.first
    assert log.fs.modified_ms(first.path(".log")) == NOW_MS + 30_000
    assert len(first.offset_index.entries) > 0
    found = log.log.offset_for_timestamp(NOW_MS + 27_000)
    assert found is not None
    assert found.offset == 26


# -- choice ------------------------------------------------------------------------------------------------------------


def test_log_is_chosen_by_its_dirty_ratio() -> None:
    log = LogCleanerHarness(replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
    log.put(*((f"key-{number}", "x") for number in range(50)))
    log.roll()
    candidate = log.cleaner.next_candidate([log.log], log.now_ms)
    assert candidate is not None
    assert candidate.ratio == 1.0
    log.compact()
    log.put(("a", "1"))
    log.roll()
    assert log.cleaner.next_candidate([log.log], log.now_ms) is None


def test_max_compaction_lag_makes_a_log_eligible_at_any_dirty_ratio() -> None:
    config = replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10_000)
    log = LogCleanerHarness(config)
    log.put(("a", "1"))
    log.roll()
    assert log.cleaner.next_candidate([log.log], log.now_ms) is None
    log.pass_time(10_001)
    assert log.cleaner.next_candidate([log.log], log.now_ms) is not None


def test_log_with_a_failed_pass_becomes_uncleanable() -> None:
    log = LogCleanerHarness()
    log.put(("a", "1"))
    log.roll()
    _damage(log)
    candidate = log.cleaner.next_candidate([log.log], log.now_ms)
    assert candidate is not None
    cleaning = log.cleaner.begin(candidate, log.now_ms)
    with pytest.raises(CorruptBatch):
        log.run(cleaning)
    log.cleaner.fail(cleaning)
    assert log.cleaner.next_candidate([log.log], log.now_ms) is None
    assert not any(name.endswith(CLEANED_SUFFIX) for name in log.files())


def _damage(log: LogCleanerHarness) -> None:
    file = log.log.segments.first.file
    last = file.size() - 1
    file.write(last, bytes([file.read(last, 1)[0] ^ 1]))


def test_aborted_pass_leaves_no_files() -> None:
    log = LogCleanerHarness()
    log.put(("a", "1"), ("a", "2"))
    log.roll()
    candidate = log.cleaner.next_candidate([log.log], log.now_ms)
    assert candidate is not None
    cleaning = log.cleaner.begin(candidate, log.now_ms)
    for _ in range(3):
        cleaning.step()
    assert log.cleaner.is_in_progress(log.log)
    assert any(name.endswith(CLEANED_SUFFIX) for name in log.files())
    log.cleaner.abort(log.log)
    assert not any(name.endswith(CLEANED_SUFFIX) for name in log.files())
    assert not log.cleaner.is_in_progress(log.log)
    log.compact()
    assert log.keys() == ["a"]


def test_truncation_lowers_the_cleaner_checkpoint_to_the_active_segment() -> None:
    log = LogCleanerHarness()
    for number in range(3):
        log.put(("a", str(number)))
        log.roll()
    log.compact()
    log.log.truncate_to(2, now_ms=log.now_ms)
    log.cleaner.on_truncated(log.log)
    base = log.log.active_segment.base_offset
    assert read_offsets(log.fs, join("logs", CLEANER_OFFSET_FILE))[PARTITION] <= base


def test_deleted_log_loses_its_cleaner_checkpoint() -> None:
    log = LogCleanerHarness()
    log.put(("a", "1"))
    log.roll()
    log.compact()
    log.cleaner.on_deleted(log.log)
    log.cleaner.write_checkpoints()
    assert read_offsets(log.fs, join("logs", CLEANER_OFFSET_FILE)) == {}


def test_pass_yields_between_batches() -> None:
    log = LogCleanerHarness()
    for number in range(10):
        log.put((f"k{number}", "v"))
    log.roll()
    stats = CompactionStats()
    pass_over = compact(log.log, log.fs, CleanableRange(0, 10), OffsetMap(100), stats, now_ms=log.now_ms)
    steps = sum(1 for _ in pass_over)
    assert steps == 10 + 10 + 1
    assert stats.bytes_moved == 3 * log.log.segments.first.size, "each batch was mapped, read and written"


def test_long_keys_are_distinguished_in_bounded_memory() -> None:
    offsets = OffsetMap(3)
    assert offsets.put(b"x" * 1000, 1)
    assert offsets.put(b"x" * 999, 2)
    assert offsets.put(b"", 3)
    assert not offsets.put(b"a fourth key", 4)
    assert offsets.put(b"", 5)
    assert (offsets.get(b"x" * 1000), offsets.get(b"x" * 999), offsets.get(b""), offsets.get(b"no")) == (1, 2, 5, -1)
    assert offsets.latest_offset == 5


# -- random writes -----------------------------------------------------------------------------------------------------


def _random_writes(log: LogCleanerHarness, random: Random, steps: int) -> None:
    in_transaction: set[int] = set()
    for _ in range(steps):
        log.pass_time(random.choice([0, 1, 1000, DAY_MS // 10]))
        entries = [
            (f"key-{random.randrange(8)}", None if random.random() < 0.2 else f"{random.randrange(1000)}" * 8)
            for _ in range(random.randint(1, 4))
        ]
        number = random.choice([1, 2])
        choice = random.random()
        if choice < 0.45:
            log.put(*entries, codec=random.choice([0, 0, 1, 4]))
        elif choice < 0.75:
            log.put_in_transaction(number, *entries)
            in_transaction.add(number)
        elif choice < 0.95 and number in in_transaction:
            log.end(number, random.choice([ControlType.ABORT, ControlType.COMMIT]))
            in_transaction.discard(number)
        else:
            log.roll()
    for number in in_transaction:
        log.end(number, random.choice([ControlType.ABORT, ControlType.COMMIT]))
    log.roll()


def _assert_equal_table_from_kept_records(
    log: LogCleanerHarness, before: list[SeenRecord], table: dict[bytes, bytes], end: int
) -> None:
    after = log.records()
    assert log.table() == table
    assert set(after) <= set(before)
    offsets = [record.offset for record in after]
    assert offsets == sorted(set(offsets))
    assert log.log.log_end_offset == end


@pytest.mark.parametrize("seed", range(40))
def test_compaction_preserves_the_latest_value_of_each_key(seed: int) -> None:
    random = Random(seed)
    log = LogCleanerHarness()
    for _ in range(4):
        _random_writes(log, random, 30)
        log.cleaner = log.new_cleaner(keys=random.choice([2, 5, 100]))
        before, table, end = log.records(), log.table(), log.log.log_end_offset
        log.compact_all()
        _assert_equal_table_from_kept_records(log, before, table, end)


@pytest.mark.parametrize("seed", range(20))
def test_fully_compacted_log_has_each_key_once(seed: int) -> None:
    log = LogCleanerHarness()
    _random_writes(log, Random(seed), 60)
    log.compact_all()
    keys = [record.key for record in log.records() if record.offset < log.log.active_segment.base_offset]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("seed", range(60))
def test_crash_at_any_point_of_a_pass_preserves_the_latest_values(seed: int) -> None:
    random = Random(seed)
    log = LogCleanerHarness()
    _random_writes(log, random, 40)
    if random.random() < 0.5:
        log.compact()
        _random_writes(log, random, 20)
    log.make_durable(log.log)
    before, table, end = log.records(), log.table(), log.log.log_end_offset
    operation: Operation = random.choice(["rename", "sync", "sync_directory", "write", "remove", "open"])
    log.fs.fail(operation, errno.EIO, skip=random.randint(0, 30))
    with contextlib.suppress(LogDirFailure, OSError):
        log.compact()
    log.crash(random)
    _assert_equal_table_from_kept_records(log, before, table, end)
    log.compact_all()
    _assert_equal_table_from_kept_records(log, before, table, end)

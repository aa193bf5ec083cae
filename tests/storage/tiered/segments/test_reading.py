"""Reading of records from remote segments (`storage.tiered.segments.reading`)."""

from collections.abc import Iterator
from random import Random

import pytest

from protocol.primitives import Uuid
from protocol.records.batch import iter_headers, patch
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, end_transaction_marker
from storage.files import write_file
from storage.index.offset import ENTRY as OFFSET_ENTRY
from storage.index.transaction import AbortedTxn
from storage.segment import FoundTimestamp
from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.errors import (
    CorruptRemoteData,
    RemoteResourceNotFound,
    RetriableRemoteStorageError,
)
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.reading import ReadRange, RemoteBatches, RemoteBlock, SegmentReader, whole_batches
from tests.storage.tiered.sample_segments import PARTITION
from tests.support.fakes.memory_files import MemoryFileSystem, checked
from tests.support.fakes.remote_files import RemoteFiles

END = 2**62


def batch(base: int, records: int = 2, *, timestamp: int = 0, size: int = 10, codec: int = 0, pid: int = -1) -> bytes:
    return build_batch(
        [Record(timestamp + n, b"k", b"v" * size) for n in range(records)],
        base_offset=base,
        leader_epoch=0,
        codec=codec,
        producer_id=pid,
        producer_epoch=0 if pid >= 0 else -1,
        base_sequence=0 if pid >= 0 else -1,
        transactional=pid >= 0,
    )


class CachingFiles(RemoteFiles):
    """Remote files that return cached bytes in `at_hand` until they are discarded."""

    def __init__(self) -> None:
        super().__init__()
        self.at_hand: dict[Uuid, bytes] = {}

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        pieces = super().read_segment(segment, first, last)
        at_hand = self.at_hand.get(segment.id.id)
        return pieces if at_hand is None else iter([memoryview(at_hand)[first:]])

    def discard(self, segment: RemoteSegment) -> None:
        self.at_hand.pop(segment.id.id, None)

    def location(self, segment: RemoteSegment) -> str:
        return f"bucket/object-{segment.start_offset}"


class Stage:
    def __init__(self, storage: RemoteFiles | None = None) -> None:
        self.storage = storage or RemoteFiles()
        self.fs = checked(MemoryFileSystem())
        self.cache = IndexCache(self.fs, "/cache", self.storage, 1_000_000)
        self.reader = SegmentReader(self.storage, self.cache)
        self.segment = self.put(*(batch(base, timestamp=100 * base) for base in (10, 12, 14, 16)), end=17)

    def put(self, *batches: bytes, start: int = 10, end: int, aborted: tuple[AbortedTxn, ...] = ()) -> RemoteSegment:
        self.batches = batches
        self.segment = self.storage.put(
            1, batches, start_offset=start, end_offset=end, aborted=aborted, partition=PARTITION
        )
        return self.segment

    def read(self, offset: int, *, upper: int = END, max_bytes: int = 1_000_000) -> RemoteBatches:
        return self.reader.batches(self.segment, ReadRange(offset, upper, max_bytes))

    def find(self, timestamp: int, from_offset: int = 0, upper: int = END) -> FoundTimestamp | None:
        return self.reader.first_at_or_after(self.segment, timestamp, from_offset, upper)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def bases(found: RemoteBatches) -> list[int]:
    return [header.base_offset for _, header in iter_headers(found.data)]


class TestBatches:
    def test_read_starts_at_batch_with_offset(self, stage: Stage) -> None:
        for offset, first in ((10, 0), (11, 0), (12, 1), (15, 2), (17, 3)):
            found = stage.read(offset)
            assert bytes(found.data) == b"".join(stage.batches[first:])
            assert found.next_offset == 18

    def test_bytes_before_the_indexed_position_are_not_read(self, stage: Stage) -> None:
        stage.storage.logs[stage.segment.id.id] = b"\xff" * len(stage.batches[0]) + b"".join(stage.batches[1:])
        assert bases(stage.read(14)) == [14, 16]

    def test_read_returns_whole_batches_and_at_least_one(self, stage: Stage) -> None:
        size = len(stage.batches[0])
        for limit, expected in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (4 * size, 4)):
            found = stage.read(10, max_bytes=limit)
            assert bases(found) == [10, 12, 14, 16][:expected]
            assert found.next_offset == 10 + 2 * expected

    def test_read_stops_below_upper_offset(self, stage: Stage) -> None:
        assert bases(stage.read(10, upper=14)) == [10, 12]
        assert bases(stage.read(10, upper=13)) == [10]
        assert stage.read(10, upper=11) == RemoteBatches(memoryview(b""), 10)

    @pytest.mark.parametrize("piece_bytes", [1, 7, 61, 100, 10_000])
    def test_pieces_may_be_of_any_size(self, stage: Stage, piece_bytes: int) -> None:
        stage.storage.piece_bytes = piece_bytes
        stage.storage.indexes[stage.segment.id.id, IndexKind.OFFSET] = b""
        assert bases(stage.read(13, max_bytes=2 * len(stage.batches[0]))) == [12, 14]

    def test_no_piece_more_is_read_than_needed(self, stage: Stage) -> None:
        size = stage.storage.piece_bytes = len(stage.batches[0])
        for limit, pieces in ((1, 1), (size, 1), (size + 1, 2), (2 * size, 2), (3 * size, 3)):
            stage.storage.pieces_given = 0
            stage.read(10, max_bytes=limit)
            assert stage.storage.pieces_given == pieces

    def test_gaps_of_a_compacted_log_are_passed_over(self, stage: Stage) -> None:
        stage.put(batch(10), batch(30), end=49)
        found = stage.read(12)
        assert (bases(found), found.next_offset) == ([30], 32)

    def test_a_rest_emptied_by_compaction_sends_to_the_next_segment(self, stage: Stage) -> None:
        stage.put(batch(10), batch(30), end=49)
        assert stage.read(32) == RemoteBatches(memoryview(b""), 50)
        stage.put(end=49)
        assert stage.read(10) == RemoteBatches(memoryview(b""), 50)

    def test_large_batches_skip_in_pieces(self, stage: Stage) -> None:
        stage.put(batch(10, size=5000), batch(12, size=5000), batch(14), end=15)
        stage.storage.indexes[stage.segment.id.id, IndexKind.OFFSET] = b""
        assert bases(stage.read(14)) == [14]

    def test_read_reports_transactional_batches(self, stage: Stage) -> None:
        marker = bytearray(end_transaction_marker(ControlType.ABORT, 7, 0, 0, 0))
        patch(marker, 0, 14, 0)
        stage.put(batch(10), batch(12, pid=7), bytes(marker), end=14)
        assert [stage.read(offset, max_bytes=1).is_transactional for offset in (10, 12, 14)] == [False, True, False]
        assert stage.read(10).is_transactional

    @pytest.mark.parametrize("seed", range(20))
    def test_read_agrees_with_linear_scan(self, stage: Stage, seed: int) -> None:
        random = Random(seed)
        batches, offset = [], 10
        for _ in range(random.randint(1, 30)):
            offset += random.choice((0, 0, 5))
            batches.append(batch(offset, random.randint(1, 3), size=random.randint(1, 300)))
            offset += 3
        stage.put(*batches, end=offset + 5)
        stage.storage.piece_bytes = random.choice((50, 333, 4096))
        headers = [header for b in batches for _, header in iter_headers(b)]
        for _ in range(20):
            wanted, upper, limit = (
                random.randint(10, offset + 5),
                random.randint(10, offset + 9),
                random.randint(1, 999),
            )
            expected: list[int] = []
            room = limit
            for header in headers:
                if header.last_offset < wanted:
                    continue
                if header.last_offset >= upper or (expected and header.size > room):
                    break
                expected.append(header.base_offset)
                room -= header.size
            assert bases(stage.read(wanted, upper=upper, max_bytes=limit)) == expected


class TestBlocks:
    """Blocks for sequential readers."""

    def block(self, stage: Stage, offset: int, parts_of: int, **wanted: int) -> RemoteBlock:
        size = parts_of * len(stage.batches[0])
        return stage.reader.block(stage.segment, ReadRange(offset, END, size, 1_000_000, **wanted))

    def test_block_is_not_copied(self, stage: Stage) -> None:
        stage.storage.piece_bytes = 1_000_000
        block = self.block(stage, 10, 2)
        assert [(bases(part), part.next_offset) for part in block.parts] == [([10, 12], 14), ([14, 16], 18)]
        log = stage.storage.logs[stage.segment.id.id]
        assert all(part.data.obj is log for part in block.parts)
        assert (block.next_offset, block.next_position, block.held_bytes) == (18, len(log), len(log))

    def test_small_part_of_large_piece_is_copied(self, stage: Stage) -> None:
        stage.storage.piece_bytes = 1_000_000
        block = self.block(stage, 16, 1)
        assert bases(block.parts[0]) == [16]
        size = len(stage.batches[0])
        assert (len(block.parts), block.held_bytes, block.next_position) == (1, size, 4 * size)

    def test_batches_across_pieces_are_copied(self, stage: Stage) -> None:
        stage.storage.piece_bytes = len(stage.batches[0]) + 5
        block = self.block(stage, 10, 2)
        assert [bases(part) for part in block.parts] == [[10, 12]]
        assert block.next_position == 2 * len(stage.batches[0])

    def test_known_position_needs_no_index(self, stage: Stage) -> None:
        block = self.block(stage, 10, 2)
        block = self.block(stage, block.next_offset, 2, position=block.next_position)
        assert bases(block.parts[0]) == [14, 16]
        assert {what for what, _ in stage.storage.asked} == {"log"}

    def test_wrong_position_is_damage_and_is_discarded(self, stage: Stage) -> None:
        assert bases(self.block(stage, 14, 2, position=3).parts[0]) == [14, 16]

    def test_the_upper_offset_and_damage_end_a_block(self, stage: Stage) -> None:
        stage.storage.piece_bytes = 1_000_000
        log = stage.storage.logs[stage.segment.id.id]
        stage.storage.logs[stage.segment.id.id] = log[:-1] + b"!"
        assert [bases(part) for part in self.block(stage, 10, 1).parts] == [[10], [12], [14]]
        size = len(stage.batches[0])
        block = stage.reader.block(stage.segment, ReadRange(10, 14, size, 1_000_000))
        assert ([bases(part) for part in block.parts], block.next_position) == ([[10], [12]], 2 * size)

    def test_prepare_prefetches_the_segment(self, stage: Stage) -> None:
        segment = stage.put(batch(10), end=11, aborted=(AbortedTxn(1, 10, 11, 12),))
        for with_aborted, asked in ((False, []), (True, ["txnindex"])):
            stage.storage.asked.clear()
            stage.reader.prepare(segment, with_aborted=with_aborted)
            assert [what for what, _ in stage.storage.asked if what == "txnindex"] == asked


class TestDamage:
    def test_wrong_checksum_is_never_returned(self, stage: Stage) -> None:
        log = bytearray(stage.storage.logs[stage.segment.id.id])
        log[-1] ^= 1
        stage.storage.logs[stage.segment.id.id] = bytes(log)
        assert bases(stage.read(10)) == [10, 12, 14]
        with pytest.raises(CorruptRemoteData, match="checksum"):
            stage.read(16)

    def test_a_segment_that_ends_early_is_not_taken_for_empty(self, stage: Stage) -> None:
        size = len(stage.batches[0])
        whole = stage.storage.logs[stage.segment.id.id]
        for kept in (0, size, 2 * size - 1, 3 * size + 5, 4 * size - 1):
            stage.storage.logs[stage.segment.id.id] = whole[:kept]
            with pytest.raises(CorruptRemoteData):
                stage.read(17)

    def test_bytes_of_another_segment_are_detected(self, stage: Stage) -> None:
        stage.storage.logs[stage.segment.id.id] = b"".join(batch(base) for base in (50, 52, 54, 56))
        with pytest.raises(CorruptRemoteData, match="outside the segment"):
            stage.read(10)

    def test_suspect_cached_indexes_are_fetched_again(self, stage: Stage) -> None:
        """A valid index may belong to another segment."""
        good = stage.storage.indexes[stage.segment.id.id, IndexKind.OFFSET]
        stage.storage.indexes[stage.segment.id.id, IndexKind.OFFSET] = good[:7] + b"\x01" + good[8:]
        with pytest.raises(CorruptRemoteData):
            stage.read(13)
        stage.storage.indexes[stage.segment.id.id, IndexKind.OFFSET] = good
        assert bases(stage.read(13)) == [12, 14, 16]

    def test_an_index_that_leads_too_far_is_fetched_again(self, stage: Stage) -> None:
        """A wrong position would silently skip records."""
        stage.read(13)
        (path,) = (path for path in map("/cache/".__add__, stage.fs.list("/cache")) if path.endswith(".index"))
        size = len(stage.batches[0])
        write_file(stage.fs, path, OFFSET_ENTRY.pack(1, 2 * size), sync=False)
        stage.storage.asked.clear()
        assert bases(stage.read(13)) == [12, 14, 16]
        assert ("index", 10) in stage.storage.asked

    def test_timestamp_lookup_fetches_suspect_index_again(self, stage: Stage) -> None:
        """A matching record would be skipped."""
        timestamp = stage.find(0, 13)
        assert timestamp is not None
        (path,) = (path for path in map("/cache/".__add__, stage.fs.list("/cache")) if path.endswith(".index"))
        write_file(stage.fs, path, OFFSET_ENTRY.pack(1, 2 * len(stage.batches[0])), sync=False)
        assert stage.find(0, 13) == timestamp

    def test_damaged_cached_data_are_read_again_from_store(self) -> None:
        storage = CachingFiles()
        stage = Stage(storage)
        good = stage.storage.logs[stage.segment.id.id]
        for bad in (good[:-1] + b"!", good[:8] + b"!!!!" + good[12:], good[:30]):
            storage.at_hand[stage.segment.id.id] = bad
            assert bases(stage.read(16)) == [16]
            assert bases(stage.read(10)) == [10, 12, 14, 16]

    def test_damage_in_store_is_read_twice_and_named(self) -> None:
        storage = CachingFiles()
        stage = Stage(storage)
        storage.logs[stage.segment.id.id] = storage.logs[stage.segment.id.id][:-1] + b"!"
        with pytest.raises(CorruptRemoteData, match=r"^bucket/object-10 is damaged: .*a checksum does not match"):
            stage.read(16)
        assert storage.asked.count(("log", 10)) == 2

    def test_failures_pass_through(self, stage: Stage) -> None:
        stage.read(10)
        stage.storage.failures = [RetriableRemoteStorageError("down")]
        with pytest.raises(RetriableRemoteStorageError):
            stage.read(10)
        stage.storage.delete_segment(stage.segment)
        with pytest.raises(RemoteResourceNotFound):
            stage.read(10)

    def test_bytes_before_a_failure_are_returned(self, stage: Stage) -> None:
        stage.read(10)
        stage.storage.piece_bytes = len(stage.batches[0])
        stage.storage.pieces_before = 2
        stage.storage.failures = [RetriableRemoteStorageError("down")]
        found = stage.read(10)
        assert (bases(found), found.next_offset) == ([10, 12], 14)


class TestTimes:
    def test_the_first_record_at_or_after(self, stage: Stage) -> None:
        assert stage.find(0) == FoundTimestamp(1000, 10, 0)
        assert stage.find(1001) == FoundTimestamp(1001, 11, 0)
        assert stage.find(1002) == FoundTimestamp(1200, 12, 0)
        assert stage.find(1601) == FoundTimestamp(1601, 17, 0)
        assert stage.find(1602) is None

    def test_timestamp_lookup_respects_offset_range(self, stage: Stage) -> None:
        assert stage.find(0, from_offset=13) == FoundTimestamp(1201, 13, 0)
        assert stage.find(1300, upper=14) is None
        assert stage.find(1200, upper=13) == FoundTimestamp(1200, 12, 0)

    def test_descending_timestamps_are_found(self, stage: Stage) -> None:
        stage.put(batch(10, timestamp=500), batch(12, timestamp=100), batch(14, timestamp=900), end=15)
        assert stage.find(100) == FoundTimestamp(500, 10, 0)
        assert stage.find(600) == FoundTimestamp(900, 14, 0)
        assert stage.find(100, from_offset=12) == FoundTimestamp(100, 12, 0)

    def test_compressed_batches_are_opened(self, stage: Stage) -> None:
        stage.put(batch(10, timestamp=100), batch(12, 3, timestamp=200, codec=1), end=14)
        assert stage.find(202) == FoundTimestamp(202, 14, 0)

    def test_undecodable_batch_is_corrupt(self, stage: Stage) -> None:
        log = bytearray(stage.storage.logs[stage.segment.id.id])
        log[70] ^= 0xFF
        stage.storage.logs[stage.segment.id.id] = bytes(log)
        with pytest.raises(CorruptRemoteData):
            stage.find(0)


class TestAborted:
    ENTRIES = (AbortedTxn(1, 10, 14, 12), AbortedTxn(2, 12, 15, 16), AbortedTxn(3, 16, 17, 18))

    def test_aborted_transactions_of_range_are_returned(self, stage: Stage) -> None:
        one, two, three = self.ENTRIES
        stage.put(batch(10), end=17, aborted=self.ENTRIES)
        assert stage.reader.aborted(stage.segment, 17, 10, 12) == ([one], True)
        assert stage.reader.aborted(stage.segment, 17, 10, 16) == ([one, two], True)
        assert stage.reader.aborted(stage.segment, 17, 10, 18) == ([one, two, three], True)
        assert stage.reader.aborted(stage.segment, 17, 15, 19) == ([two, three], False)

    def test_aborted_transactions_of_another_history_are_excluded(self, stage: Stage) -> None:
        """Markers above the agreed end of a segment belong to another history."""
        stage.put(batch(10), end=17, aborted=self.ENTRIES)
        assert stage.reader.aborted(stage.segment, 14, 10, 14) == ([self.ENTRIES[0]], False)

    def test_segment_without_aborted_transactions_returns_none(self, stage: Stage) -> None:
        assert stage.reader.aborted(stage.segment, 17, 10, 18) == ([], False)


def test_whole_batches_are_cut_to_limit(stage: Stage) -> None:
    data = stage.read(10).data
    size = len(stage.batches[0])
    for limit, min_one, expected in (
        (4 * size, False, 4),
        (3 * size + 1, False, 3),
        (size - 1, False, 0),
        (size - 1, True, 1),
        (0, True, 1),
    ):
        assert len(whole_batches(data, limit, min_one=min_one)) == expected * size

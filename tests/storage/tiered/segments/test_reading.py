"""Reading of records from remote segments (`storage.tiered.segments.reading`)."""

from collections.abc import Iterator
from random import Random

import pytest

from protocol.ids import LeaderEpoch
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
        leader_epoch=LeaderEpoch(0),
        codec=codec,
        producer_id=pid,
        producer_epoch=0 if pid >= 0 else -1,
        base_sequence=0 if pid >= 0 else -1,
        transactional=pid >= 0,
    )


class CachingFiles(RemoteFiles):
    """Remote files that return cached bytes in `cached` until they are discarded."""

    def __init__(self) -> None:
        super().__init__()
        self.cached: dict[Uuid, bytes] = {}

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        pieces = super().read_segment(segment, first, last)
        cached = self.cached.get(segment.id.id)
        return pieces if cached is None else iter([memoryview(cached)[first:]])

    def discard(self, segment: RemoteSegment) -> None:
        self.cached.pop(segment.id.id, None)

    def location(self, segment: RemoteSegment) -> str:
        return f"bucket/object-{segment.start_offset}"


class ReaderHarness:
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
def harness() -> ReaderHarness:
    return ReaderHarness()


def bases(found: RemoteBatches) -> list[int]:
    return [header.base_offset for _, header in iter_headers(found.data)]


class TestBatches:
    def test_read_starts_at_batch_with_offset(self, harness: ReaderHarness) -> None:
        for offset, first in ((10, 0), (11, 0), (12, 1), (15, 2), (17, 3)):
            found = harness.read(offset)
            assert bytes(found.data) == b"".join(harness.batches[first:])
            assert found.next_offset == 18

    def test_bytes_before_the_indexed_position_are_not_read(self, harness: ReaderHarness) -> None:
        harness.storage.logs[harness.segment.id.id] = b"\xff" * len(harness.batches[0]) + b"".join(harness.batches[1:])
        assert bases(harness.read(14)) == [14, 16]

    def test_read_returns_whole_batches_and_at_least_one(self, harness: ReaderHarness) -> None:
        size = len(harness.batches[0])
        for limit, expected in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (4 * size, 4)):
            found = harness.read(10, max_bytes=limit)
            assert bases(found) == [10, 12, 14, 16][:expected]
            assert found.next_offset == 10 + 2 * expected

    def test_read_stops_below_upper_offset(self, harness: ReaderHarness) -> None:
        assert bases(harness.read(10, upper=14)) == [10, 12]
        assert bases(harness.read(10, upper=13)) == [10]
        assert harness.read(10, upper=11) == RemoteBatches(memoryview(b""), 10)

    @pytest.mark.parametrize("piece_bytes", [1, 7, 61, 100, 10_000])
    def test_pieces_may_be_of_any_size(self, harness: ReaderHarness, piece_bytes: int) -> None:
        harness.storage.piece_bytes = piece_bytes
        harness.storage.indexes[harness.segment.id.id, IndexKind.OFFSET] = b""
        assert bases(harness.read(13, max_bytes=2 * len(harness.batches[0]))) == [12, 14]

    def test_read_requests_no_surplus_pieces(self, harness: ReaderHarness) -> None:
        size = harness.storage.piece_bytes = len(harness.batches[0])
        for limit, pieces in ((1, 1), (size, 1), (size + 1, 2), (2 * size, 2), (3 * size, 3)):
            harness.storage.pieces_given = 0
            harness.read(10, max_bytes=limit)
            assert harness.storage.pieces_given == pieces

    def test_read_skips_gaps_of_a_compacted_log(self, harness: ReaderHarness) -> None:
        harness.put(batch(10), batch(30), end=49)
        found = harness.read(12)
        assert (bases(found), found.next_offset) == ([30], 32)

    def test_read_above_the_last_batch_continues_in_the_next_segment(self, harness: ReaderHarness) -> None:
        harness.put(batch(10), batch(30), end=49)
        assert harness.read(32) == RemoteBatches(memoryview(b""), 50)
        harness.put(end=49)
        assert harness.read(10) == RemoteBatches(memoryview(b""), 50)

    def test_large_batches_skip_in_pieces(self, harness: ReaderHarness) -> None:
        harness.put(batch(10, size=5000), batch(12, size=5000), batch(14), end=15)
        harness.storage.indexes[harness.segment.id.id, IndexKind.OFFSET] = b""
        assert bases(harness.read(14)) == [14]

    def test_read_reports_transactional_batches(self, harness: ReaderHarness) -> None:
        marker = bytearray(end_transaction_marker(ControlType.ABORT, 7, 0, 0, 0))
        patch(marker, 0, 14, LeaderEpoch(0))
        harness.put(batch(10), batch(12, pid=7), bytes(marker), end=14)
        assert [harness.read(offset, max_bytes=1).is_transactional for offset in (10, 12, 14)] == [False, True, False]
        assert harness.read(10).is_transactional

    @pytest.mark.parametrize("seed", range(20))
    def test_read_agrees_with_linear_scan(self, harness: ReaderHarness, seed: int) -> None:
        random = Random(seed)
        batches, offset = [], 10
        for _ in range(random.randint(1, 30)):
            offset += random.choice((0, 0, 5))
            batches.append(batch(offset, random.randint(1, 3), size=random.randint(1, 300)))
            offset += 3
        harness.put(*batches, end=offset + 5)
        harness.storage.piece_bytes = random.choice((50, 333, 4096))
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
            assert bases(harness.read(wanted, upper=upper, max_bytes=limit)) == expected


class TestBlocks:
    """Blocks for sequential readers."""

    def block(self, harness: ReaderHarness, offset: int, parts_of: int, **wanted: int) -> RemoteBlock:
        size = parts_of * len(harness.batches[0])
        return harness.reader.block(harness.segment, ReadRange(offset, END, size, 1_000_000, **wanted))

    def test_block_is_not_copied(self, harness: ReaderHarness) -> None:
        harness.storage.piece_bytes = 1_000_000
        block = self.block(harness, 10, 2)
        assert [(bases(part), part.next_offset) for part in block.parts] == [([10, 12], 14), ([14, 16], 18)]
        log = harness.storage.logs[harness.segment.id.id]
        assert all(part.data.obj is log for part in block.parts)
        assert (block.next_offset, block.next_position, block.held_bytes) == (18, len(log), len(log))

    def test_small_part_of_large_piece_is_copied(self, harness: ReaderHarness) -> None:
        harness.storage.piece_bytes = 1_000_000
        block = self.block(harness, 16, 1)
        assert bases(block.parts[0]) == [16]
        size = len(harness.batches[0])
        assert (len(block.parts), block.held_bytes, block.next_position) == (1, size, 4 * size)

    def test_batches_across_pieces_are_copied(self, harness: ReaderHarness) -> None:
        harness.storage.piece_bytes = len(harness.batches[0]) + 5
        block = self.block(harness, 10, 2)
        assert [bases(part) for part in block.parts] == [[10, 12]]
        assert block.next_position == 2 * len(harness.batches[0])

    def test_known_position_needs_no_index(self, harness: ReaderHarness) -> None:
        block = self.block(harness, 10, 2)
        block = self.block(harness, block.next_offset, 2, position=block.next_position)
        assert bases(block.parts[0]) == [14, 16]
        assert {what for what, _ in harness.storage.reads} == {"log"}

    def test_wrong_position_is_detected_and_discarded(self, harness: ReaderHarness) -> None:
        assert bases(self.block(harness, 14, 2, position=3).parts[0]) == [14, 16]

    def test_block_ends_at_the_upper_offset_or_at_corruption(self, harness: ReaderHarness) -> None:
        harness.storage.piece_bytes = 1_000_000
        log = harness.storage.logs[harness.segment.id.id]
        harness.storage.logs[harness.segment.id.id] = log[:-1] + b"!"
        assert [bases(part) for part in self.block(harness, 10, 1).parts] == [[10], [12], [14]]
        size = len(harness.batches[0])
        block = harness.reader.block(harness.segment, ReadRange(10, 14, size, 1_000_000))
        assert ([bases(part) for part in block.parts], block.next_position) == ([[10], [12]], 2 * size)

    def test_prepare_prefetches_the_segment(self, harness: ReaderHarness) -> None:
        segment = harness.put(batch(10), end=11, aborted=(AbortedTxn(1, 10, 11, 12),))
        for with_aborted, expected in ((False, []), (True, ["txnindex"])):
            harness.storage.reads.clear()
            harness.reader.prepare(segment, with_aborted=with_aborted)
            assert [what for what, _ in harness.storage.reads if what == "txnindex"] == expected


class TestCorruption:
    def test_wrong_checksum_is_never_returned(self, harness: ReaderHarness) -> None:
        log = bytearray(harness.storage.logs[harness.segment.id.id])
        log[-1] ^= 1
        harness.storage.logs[harness.segment.id.id] = bytes(log)
        assert bases(harness.read(10)) == [10, 12, 14]
        with pytest.raises(CorruptRemoteData, match="checksum"):
            harness.read(16)

    def test_truncated_segment_is_corrupt(self, harness: ReaderHarness) -> None:
        size = len(harness.batches[0])
        whole = harness.storage.logs[harness.segment.id.id]
        for kept in (0, size, 2 * size - 1, 3 * size + 5, 4 * size - 1):
            harness.storage.logs[harness.segment.id.id] = whole[:kept]
            with pytest.raises(CorruptRemoteData):
                harness.read(17)

    def test_bytes_of_another_segment_are_detected(self, harness: ReaderHarness) -> None:
        harness.storage.logs[harness.segment.id.id] = b"".join(batch(base) for base in (50, 52, 54, 56))
        with pytest.raises(CorruptRemoteData, match="outside the segment"):
            harness.read(10)

    def test_suspect_cached_indexes_are_fetched_again(self, harness: ReaderHarness) -> None:
        """A valid index may belong to another segment."""
        good = harness.storage.indexes[harness.segment.id.id, IndexKind.OFFSET]
        harness.storage.indexes[harness.segment.id.id, IndexKind.OFFSET] = good[:7] + b"\x01" + good[8:]
        with pytest.raises(CorruptRemoteData):
            harness.read(13)
        harness.storage.indexes[harness.segment.id.id, IndexKind.OFFSET] = good
        assert bases(harness.read(13)) == [12, 14, 16]

    def test_index_that_would_skip_records_is_fetched_again(self, harness: ReaderHarness) -> None:
        """A wrong position would silently skip records."""
        harness.read(13)
        (path,) = (path for path in map("/cache/".__add__, harness.fs.list("/cache")) if path.endswith(".index"))
        size = len(harness.batches[0])
        write_file(harness.fs, path, OFFSET_ENTRY.pack(1, 2 * size), sync=False)
        harness.storage.reads.clear()
        assert bases(harness.read(13)) == [12, 14, 16]
        assert ("index", 10) in harness.storage.reads

    def test_timestamp_lookup_fetches_suspect_index_again(self, harness: ReaderHarness) -> None:
        """A matching record would be skipped."""
        timestamp = harness.find(0, 13)
        assert timestamp is not None
        (path,) = (path for path in map("/cache/".__add__, harness.fs.list("/cache")) if path.endswith(".index"))
        write_file(harness.fs, path, OFFSET_ENTRY.pack(1, 2 * len(harness.batches[0])), sync=False)
        assert harness.find(0, 13) == timestamp

    def test_damaged_cached_data_are_read_again_from_store(self) -> None:
        storage = CachingFiles()
        harness = ReaderHarness(storage)
        good = harness.storage.logs[harness.segment.id.id]
        for bad in (good[:-1] + b"!", good[:8] + b"!!!!" + good[12:], good[:30]):
            storage.cached[harness.segment.id.id] = bad
            assert bases(harness.read(16)) == [16]
            assert bases(harness.read(10)) == [10, 12, 14, 16]

    def test_corruption_in_the_store_is_reported_after_a_second_read(self) -> None:
        storage = CachingFiles()
        harness = ReaderHarness(storage)
        storage.logs[harness.segment.id.id] = storage.logs[harness.segment.id.id][:-1] + b"!"
        with pytest.raises(CorruptRemoteData, match=r"^bucket/object-10 is damaged: .*a checksum does not match"):
            harness.read(16)
        assert storage.reads.count(("log", 10)) == 2

    def test_storage_failures_reach_the_caller(self, harness: ReaderHarness) -> None:
        harness.read(10)
        harness.storage.failures = [RetriableRemoteStorageError("down")]
        with pytest.raises(RetriableRemoteStorageError):
            harness.read(10)
        harness.storage.delete_segment(harness.segment)
        with pytest.raises(RemoteResourceNotFound):
            harness.read(10)

    def test_bytes_before_a_failure_are_returned(self, harness: ReaderHarness) -> None:
        harness.read(10)
        harness.storage.piece_bytes = len(harness.batches[0])
        harness.storage.pieces_before = 2
        harness.storage.failures = [RetriableRemoteStorageError("down")]
        found = harness.read(10)
        assert (bases(found), found.next_offset) == ([10, 12], 14)


class TestTimestamps:
    def test_first_record_at_or_after_a_timestamp_is_found(self, harness: ReaderHarness) -> None:
        assert harness.find(0) == FoundTimestamp(1000, 10, LeaderEpoch(0))
        assert harness.find(1001) == FoundTimestamp(1001, 11, LeaderEpoch(0))
        assert harness.find(1002) == FoundTimestamp(1200, 12, LeaderEpoch(0))
        assert harness.find(1601) == FoundTimestamp(1601, 17, LeaderEpoch(0))
        assert harness.find(1602) is None

    def test_timestamp_lookup_respects_offset_range(self, harness: ReaderHarness) -> None:
        assert harness.find(0, from_offset=13) == FoundTimestamp(1201, 13, LeaderEpoch(0))
        assert harness.find(1300, upper=14) is None
        assert harness.find(1200, upper=13) == FoundTimestamp(1200, 12, LeaderEpoch(0))

    def test_descending_timestamps_are_found(self, harness: ReaderHarness) -> None:
        harness.put(batch(10, timestamp=500), batch(12, timestamp=100), batch(14, timestamp=900), end=15)
        assert harness.find(100) == FoundTimestamp(500, 10, LeaderEpoch(0))
        assert harness.find(600) == FoundTimestamp(900, 14, LeaderEpoch(0))
        assert harness.find(100, from_offset=12) == FoundTimestamp(100, 12, LeaderEpoch(0))

    def test_timestamp_lookup_decompresses_batches(self, harness: ReaderHarness) -> None:
        harness.put(batch(10, timestamp=100), batch(12, 3, timestamp=200, codec=1), end=14)
        assert harness.find(202) == FoundTimestamp(202, 14, LeaderEpoch(0))

    def test_undecodable_batch_is_corrupt(self, harness: ReaderHarness) -> None:
        log = bytearray(harness.storage.logs[harness.segment.id.id])
        log[70] ^= 0xFF
        harness.storage.logs[harness.segment.id.id] = bytes(log)
        with pytest.raises(CorruptRemoteData):
            harness.find(0)


class TestAborted:
    ENTRIES = (AbortedTxn(1, 10, 14, 12), AbortedTxn(2, 12, 15, 16), AbortedTxn(3, 16, 17, 18))

    def test_aborted_transactions_of_range_are_returned(self, harness: ReaderHarness) -> None:
        one, two, three = self.ENTRIES
        harness.put(batch(10), end=17, aborted=self.ENTRIES)
        assert harness.reader.aborted(harness.segment, 17, 10, 12) == ([one], True)
        assert harness.reader.aborted(harness.segment, 17, 10, 16) == ([one, two], True)
        assert harness.reader.aborted(harness.segment, 17, 10, 18) == ([one, two, three], True)
        assert harness.reader.aborted(harness.segment, 17, 15, 19) == ([two, three], False)

    def test_aborted_transactions_of_another_history_are_excluded(self, harness: ReaderHarness) -> None:
        """Markers above the agreed end of a segment belong to another history."""
        harness.put(batch(10), end=17, aborted=self.ENTRIES)
        assert harness.reader.aborted(harness.segment, 14, 10, 14) == ([self.ENTRIES[0]], False)

    def test_segment_without_aborted_transactions_returns_none(self, harness: ReaderHarness) -> None:
        assert harness.reader.aborted(harness.segment, 17, 10, 18) == ([], False)


def test_whole_batches_are_cut_to_limit(harness: ReaderHarness) -> None:
    data = harness.read(10).data
    size = len(harness.batches[0])
    for limit, min_one, expected in (
        (4 * size, False, 4),
        (3 * size + 1, False, 3),
        (size - 1, False, 0),
        (size - 1, True, 1),
        (0, True, 1),
    ):
        assert len(whole_batches(data, limit, min_one=min_one)) == expected * size

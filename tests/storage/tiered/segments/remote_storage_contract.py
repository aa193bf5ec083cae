"""Contract of every RemoteStorageManager.

A test module derives a class from `RemoteStorageContract` with a fixture `storage`. Sources: KIP-405, "Remote Storage
Manager"; the docstrings of `storage/tiered/remote_storage.py`.
"""

import random
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from storage.tiered.errors import RemoteResourceNotFound
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
from tests.storage.tiered.sample_segments import Contents, segment, write_files
from tests.support.fakes.memory_files import MemoryFileSystem

LOG = random.Random(0).randbytes(3000) + b"words that compress " * 400


def read_all(storage: RemoteStorageManager, remote: RemoteSegment, first: int = 0, last: int | None = None) -> bytes:
    return b"".join(storage.read_segment(remote, first, last))


def copied(storage: RemoteStorageManager, contents: Contents, remote: RemoteSegment | None = None) -> RemoteSegment:
    """Return the segment with the metadata of a finished copy."""
    remote = remote or segment(len(contents.log))
    custom_metadata = storage.copy_segment(remote, write_files(MemoryFileSystem(), contents))
    return replace(remote, state=SegmentState.COPY_FINISHED, custom_metadata=custom_metadata)


class RemoteStorageContract:
    def test_copied_segment_is_read_back_whole(self, storage: RemoteStorageManager) -> None:
        remote = copied(storage, Contents(LOG))
        assert read_all(storage, remote) == LOG

    @pytest.mark.parametrize(
        ("first", "last"),
        [(0, 0), (0, 10), (17, 17), (5, None), (4095, 4096), (len(LOG) - 1, None), (len(LOG) - 5, 10**9), (0, 10**9)],
    )
    def test_range_is_inclusive_and_may_exceed_the_log_size(
        self, storage: RemoteStorageManager, first: int, last: int | None
    ) -> None:
        remote = copied(storage, Contents(LOG))
        end = None if last is None else last + 1
        assert read_all(storage, remote, first, last) == LOG[first:end]

    def test_every_index_is_read_back(self, storage: RemoteStorageManager) -> None:
        contents = Contents(LOG)
        remote = copied(storage, contents)
        assert {kind: storage.read_index(remote, kind) for kind in IndexKind} == {
            kind: contents.of(kind) for kind in IndexKind
        }

    def test_empty_indexes_are_read_back(self, storage: RemoteStorageManager) -> None:
        remote = copied(storage, Contents(LOG, offset_index=b"", time_index=b"", transaction_index=b""))
        for kind in (IndexKind.OFFSET, IndexKind.TIME, IndexKind.TRANSACTION):
            assert storage.read_index(remote, kind) == b""

    @pytest.mark.parametrize("kind", [IndexKind.TRANSACTION, IndexKind.PRODUCER_SNAPSHOT])
    def test_missing_index_is_not_found(self, storage: RemoteStorageManager, kind: IndexKind) -> None:
        remote = copied(storage, Contents(LOG, transaction_index=None, producer_snapshot=None))
        with pytest.raises(RemoteResourceNotFound):
            storage.read_index(remote, kind)
        assert storage.read_index(remote, IndexKind.LEADER_EPOCH) == Contents(LOG).leader_epochs

    def test_missing_segment_is_not_found(self, storage: RemoteStorageManager) -> None:
        with pytest.raises(RemoteResourceNotFound):
            read_all(storage, segment(len(LOG)))
        with pytest.raises(RemoteResourceNotFound):
            storage.read_index(segment(len(LOG)), IndexKind.OFFSET)

    def test_deleted_segment_is_not_found(self, storage: RemoteStorageManager) -> None:
        remote = copied(storage, Contents(LOG))
        read_all(storage, remote)
        storage.read_index(remote, IndexKind.OFFSET)
        storage.delete_segment(remote)
        with pytest.raises(RemoteResourceNotFound):
            read_all(storage, remote)
        with pytest.raises(RemoteResourceNotFound):
            storage.read_index(remote, IndexKind.OFFSET)

    def test_deleting_missing_segment_succeeds(self, storage: RemoteStorageManager) -> None:
        remote = copied(storage, Contents(LOG))
        storage.delete_segment(remote)
        storage.delete_segment(remote)
        storage.delete_segment(segment(1, number=77))

    def test_copy_is_idempotent(self, storage: RemoteStorageManager) -> None:
        first = copied(storage, Contents(LOG))
        assert read_all(storage, first) == LOG
        assert read_all(storage, copied(storage, Contents(LOG))) == LOG
        again = copied(storage, Contents(LOG[::-1], offset_index=b"another"))
        assert read_all(storage, again) == LOG[::-1]
        assert storage.read_index(again, IndexKind.OFFSET) == b"another"

    def test_segments_with_equal_start_offsets_are_separate(self, storage: RemoteStorageManager) -> None:
        one = copied(storage, Contents(LOG), segment(len(LOG), number=1))
        other = copied(storage, Contents(LOG[::-1]), segment(len(LOG), number=2))
        storage.delete_segment(one)
        assert read_all(storage, other) == LOG[::-1]

    def test_reader_may_stop_before_the_end(self, storage: RemoteStorageManager) -> None:
        remote = copied(storage, Contents(LOG))
        for count in range(3):
            pieces = storage.read_segment(remote, 1)
            for _ in range(count):
                next(pieces, None)
            if isinstance(pieces, Generator):
                pieces.close()
        assert read_all(storage, remote) == LOG

    def test_concurrent_reads_return_correct_bytes(self, storage: RemoteStorageManager) -> None:
        remotes = [
            copied(storage, Contents(LOG[number:]), segment(len(LOG) - number, number=number)) for number in range(4)
        ]

        def reads_all_ranges(number: int) -> bool:
            log = LOG[number % 4 :]
            return all(
                read_all(storage, remotes[number % 4], first, first + 1500) == log[first : first + 1501]
                for first in range(0, len(log) - 10, 999)
            )

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(reads_all_ranges, range(8)))

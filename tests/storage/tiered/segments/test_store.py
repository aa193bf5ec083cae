import json
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, pack_batch
from protocol.records.compression import Codec
from storage.files import write_file
from storage.tiered.cache.chunk_cache import ChunkCache
from storage.tiered.cache.chunk_storage import DiskChunkStorage
from storage.tiered.cache.download_pool import DownloadPool
from storage.tiered.errors import (
    CorruptRemoteData,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from storage.tiered.format.custom_metadata import CustomField, decode_custom_metadata
from storage.tiered.format.manifest import decode_manifest
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.settings import parse_settings
from storage.tiered.stores.byte_rate import ByteRate
from tests.storage.tiered.format.key_pairs import data_keys
from tests.storage.tiered.sample_segments import Contents, segment, write_files
from tests.storage.tiered.segments.remote_storage_contract import LOG, RemoteStorageContract, copied, read_all
from tests.storage.tiered.segments.segment_stores import BOTH, COMPRESSED, ENCRYPTED, PLAIN, chunk_cache, segment_store
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.memory_object_store import MemoryObjectStore, StoreCall

NAME = "topic1-lZ6vvmajTWKDBUTV6SQAtQ/42/00000000000000001000-adh9f8BMS4anaUnD8KWfWg"
LOG_KEY, INDEXES_KEY, MANIFEST_KEY = f"{NAME}.log", f"{NAME}.indexes", f"{NAME}.rsm-manifest"


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore(piece_bytes=300)


@pytest.mark.parametrize("is_cached", [False, True], ids=["uncached", "cached"])
@pytest.mark.parametrize("settings_of", [PLAIN, COMPRESSED, ENCRYPTED, BOTH], ids=["plain", "zstd", "aes", "both"])
class TestContract(RemoteStorageContract):
    @pytest.fixture
    def storage(
        self, store: MemoryObjectStore, settings_of: Mapping[str, str], is_cached: bool
    ) -> RemoteStorageManager:
        return segment_store(store, settings_of, is_cached=is_cached)


def total_bytes(store: MemoryObjectStore) -> int:
    return sum(map(len, map(store.content, store.keys())))


def read_everything(storage: RemoteStorageManager, remote: RemoteSegment) -> Contents:
    offsets, times, transactions, snapshot, epochs = (storage.read_index(remote, kind) for kind in IndexKind)
    return Contents(read_all(storage, remote), offsets, times, transactions, snapshot, epochs)


# -- any chunks, any range ---------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from([PLAIN, COMPRESSED, ENCRYPTED, BOTH]),
    chunk_bytes=st.integers(1, 300),
    log=st.binary(max_size=400).flatmap(lambda some: st.integers(1, 4).map(lambda times: some * times)),
    is_cached=st.booleans(),
    data=st.data(),
)
def test_any_range_returns_the_bytes_of_the_log(
    kind: Mapping[str, str], chunk_bytes: int, log: bytes, is_cached: bool, data: st.DataObject
) -> None:
    storage = segment_store(MemoryObjectStore(97), {**kind, "chunk.size": str(chunk_bytes)}, is_cached=is_cached)
    remote = copied(storage, Contents(log))
    for _ in range(3):
        first = data.draw(st.integers(0, max(0, len(log) - 1)))
        last = data.draw(st.none() | st.integers(first, len(log) + 10))
        assert read_all(storage, remote, first, last) == log[first : None if last is None else last + 1]
    assert storage.read_index(remote, IndexKind.LEADER_EPOCH) == Contents(log).leader_epochs


# -- objects in the store ----------------------------------------------------------------------------------------------


def test_objects_are_put_in_order_after_a_search_for_an_earlier_copy(store: MemoryObjectStore) -> None:
    copied(segment_store(store), Contents(LOG))
    assert store.calls == [
        StoreCall("get", MANIFEST_KEY, 0, 0),
        StoreCall("put", LOG_KEY),
        StoreCall("put", INDEXES_KEY),
        StoreCall("put", MANIFEST_KEY),
    ]


def test_plain_objects_equal_the_files(store: MemoryObjectStore) -> None:
    contents = Contents(LOG)
    copied(segment_store(store), contents)
    assert store.content(LOG_KEY) == LOG
    assert store.content(INDEXES_KEY) == b"".join(
        contents.of(kind) or b""
        for kind in (
            IndexKind.OFFSET,
            IndexKind.TIME,
            IndexKind.PRODUCER_SNAPSHOT,
            IndexKind.LEADER_EPOCH,
            IndexKind.TRANSACTION,
        )
    )


def test_manifest_restores_the_segment_metadata(store: MemoryObjectStore) -> None:
    custom = {"custom.metadata.fields.include": "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY"}
    remote = copied(segment_store(store, {**BOTH, **custom}), Contents(LOG))
    assert remote.custom_metadata is not None
    assert decode_manifest(store.content(MANIFEST_KEY)).segment == remote


@pytest.mark.parametrize("fields", ["REMOTE_SIZE", "OBJECT_KEY,REMOTE_SIZE"])
def test_remote_size_is_the_sum_of_all_three_objects(store: MemoryObjectStore, fields: str) -> None:
    for size in range(1, 3000, 101):
        storage = segment_store(store, {**PLAIN, "custom.metadata.fields.include": fields})
        remote = copied(storage, Contents(bytes(size)))
        assert remote.custom_metadata is not None
        decoded = decode_custom_metadata(remote.custom_metadata)
        assert decoded[CustomField.REMOTE_SIZE] == total_bytes(store)


def test_encrypted_objects_contain_no_plaintext(store: MemoryObjectStore) -> None:
    copied(segment_store(store, ENCRYPTED), Contents(b"the secret " * 200))
    assert all(b"secret" not in store.content(key) and b"index" not in store.content(key) for key in store.keys()[:2])
    assert len(store.content(LOG_KEY)) == 2200 + 3 * 28


def test_copies_are_encrypted_with_different_keys(store: MemoryObjectStore) -> None:
    storage = segment_store(store, ENCRYPTED)
    copied(storage, Contents(LOG), segment(len(LOG), number=1))
    copied(storage, Contents(LOG), segment(len(LOG), number=2))
    logs = [store.content(call.key) for call in store.calls if call.operation == "put" and call.key.endswith(".log")]
    assert logs[0] != logs[1]


def batch(codec: Codec) -> bytes:
    header = BatchHeader(0, 0, LeaderEpoch(0), 2, 0, codec, 0, 0, 0, -1, -1, -1, 1)
    return pack_batch(header, b"records " * 100)


@pytest.mark.parametrize(
    ("log", "is_compressed"),
    [(batch(Codec.NONE), True), (batch(Codec.LZ4), False), (b"no batch", False), (b"", False), (bytes(100), False)],
)
def test_compressed_batches_are_not_compressed_again(store: MemoryObjectStore, log: bytes, is_compressed: bool) -> None:
    storage = segment_store(store, {**COMPRESSED, "compression.heuristic.enabled": "true"})
    remote = copied(storage, Contents(log))
    assert decode_manifest(store.content(MANIFEST_KEY)).compression == is_compressed
    assert (len(store.content(LOG_KEY)) < len(log)) == is_compressed
    assert read_all(storage, remote) == log


def test_log_is_uploaded_chunk_by_chunk() -> None:
    sizes: list[int] = []

    class SizeRecorder(MemoryObjectStore):
        def put(self, key: str, parts: Iterable[Buffer]) -> int:
            if not key.endswith(".log"):
                return super().put(key, parts)
            return super().put(key, self._recorded(parts))

        def _recorded(self, parts: Iterable[Buffer]) -> Iterator[Buffer]:
            for part in parts:
                sizes.append(len(part))
                yield part

    copied(segment_store(SizeRecorder()), Contents(bytes(2500)))
    assert sizes == [1000, 1000, 500]


# -- requests ----------------------------------------------------------------------------------------------------------


def gets(store: MemoryObjectStore, suffix: str) -> list[tuple[int, int | None]]:
    return [(call.first, call.last) for call in store.calls if call.operation == "get" and call.key.endswith(suffix)]


@pytest.mark.parametrize("is_cached", [False, True])
def test_range_is_read_by_whole_chunks_with_one_request(store: MemoryObjectStore, is_cached: bool) -> None:
    storage = segment_store(store, is_cached=is_cached)
    remote = copied(storage, Contents(LOG))
    read_all(storage, remote, 1500, 3500)
    assert gets(store, ".log")[0] == (1000, 3999)


def test_manifest_and_all_indexes_are_fetched_once(store: MemoryObjectStore) -> None:
    storage = segment_store(store)
    remote = copied(storage, Contents(LOG))
    store.calls.clear()
    for kind in IndexKind:
        storage.read_index(remote, kind)
    read_all(storage, remote)
    assert [call.key for call in store.calls] == [MANIFEST_KEY, INDEXES_KEY, LOG_KEY]


def test_indexes_above_the_cache_size_are_fetched_separately(store: MemoryObjectStore) -> None:
    storage = segment_store(store, {**PLAIN, "fetch.indexes.cache.size": "10"})
    contents = Contents(LOG)
    remote = copied(storage, contents)
    for _ in range(2):
        assert storage.read_index(remote, IndexKind.TIME) == contents.time_index
    assert gets(store, ".indexes") == [(48, 107), (48, 107)]


def test_key_prefix_is_used_verbatim(store: MemoryObjectStore) -> None:
    copied(segment_store(store, {**PLAIN, "key.prefix": "kafka-"}), Contents(LOG))
    assert store.keys() == [f"kafka-{key}" for key in sorted((LOG_KEY, INDEXES_KEY, MANIFEST_KEY))]


def test_segments_with_a_recorded_prefix_survive_a_change_of_prefix(store: MemoryObjectStore) -> None:
    before = {**PLAIN, "key.prefix": "then/", "custom.metadata.fields.include": "OBJECT_PREFIX"}
    remote = copied(segment_store(store, before), Contents(LOG))
    storage = segment_store(store, {**PLAIN, "key.prefix": "now/"})
    assert read_all(storage, remote) == LOG
    storage.delete_segment(remote)
    assert store.keys() == []


def test_error_messages_omit_a_masked_prefix(store: MemoryObjectStore) -> None:
    storage = segment_store(store, {**PLAIN, "key.prefix": "secret/", "key.prefix.mask": "true"})
    with pytest.raises(RemoteResourceNotFound) as caught:
        read_all(storage, segment(1))
    assert "secret" not in str(caught.value)
    assert "<prefix>/topic1-" in str(caught.value)


def test_invalid_custom_metadata_are_refused(store: MemoryObjectStore) -> None:
    with pytest.raises(RemoteStorageError, match="invalid custom metadata"):
        read_all(segment_store(store), segment(1, custom_metadata=b"\xff"))


def test_uploads_acquire_bytes_from_the_rate_limit(store: MemoryObjectStore) -> None:
    class RecordingRate(ByteRate):
        def acquire(self, amount: int, is_cancelled: Callable[[], bool] = lambda: False) -> float:
            amounts.append(amount)
            return 0.0

    amounts: list[int] = []
    rate = RecordingRate(1_000_000, 1000, lambda: 0.0)
    copied(segment_store(store, upload_rate=rate), Contents(bytes(2500)))
    assert amounts[:3] == [1000, 1000, 500]
    assert sum(amounts) == total_bytes(store)


def test_close_cancels_a_copy_that_waits_for_the_rate_limit() -> None:
    class ClosedDuringPut(MemoryObjectStore):
        def put(self, key: str, parts: Iterable[Buffer]) -> int:
            storage.close()
            return super().put(key, parts)

        def close(self) -> None:
            """Let running downloads finish."""

    store = ClosedDuringPut()
    storage = segment_store(store, upload_rate=ByteRate(1, 1000, lambda: 0.0))
    with pytest.raises(RemoteStorageError, match="closed while a copy waited"):
        copied(storage, Contents(bytes(2500)))
    assert store.keys() == []


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PLAIN, COMPRESSED, ENCRYPTED, BOTH], ids=["plain", "zstd", "aes", "both"])
@pytest.mark.parametrize("is_cached", [False, True])
def test_flipped_bits_are_detected_in_every_object(
    store: MemoryObjectStore, kind: Mapping[str, str], is_cached: bool
) -> None:
    storage = segment_store(store, kind, is_cached=is_cached)
    remote = copied(storage, Contents(LOG))
    for key in (LOG_KEY, INDEXES_KEY):
        whole = store.content(key)
        for position in range(0, len(whole), max(1, len(whole) // 20)):
            damaged = bytearray(whole)
            damaged[position] ^= 0x10
            store.replace(key, bytes(damaged))
            storage._forget(remote)
            with pytest.raises(CorruptRemoteData):
                read_everything(storage, remote)
        store.replace(key, whole)
    assert read_everything(storage, remote) == Contents(LOG)


@pytest.mark.parametrize("key", [LOG_KEY, INDEXES_KEY, MANIFEST_KEY])
def test_truncated_objects_are_detected(store: MemoryObjectStore, key: str) -> None:
    storage = segment_store(store)
    remote = copied(storage, Contents(LOG))
    store.replace(key, store.content(key)[:-1])
    with pytest.raises(CorruptRemoteData):
        read_everything(storage, remote)


def test_sizes_and_tags_are_checked_without_crcs(store: MemoryObjectStore) -> None:
    storage = segment_store(store, ENCRYPTED)
    remote = copied(storage, Contents(LOG))
    document = json.loads(store.content(MANIFEST_KEY))
    del document["remoteLogSegmentMetadata"]
    store.replace(MANIFEST_KEY, json.dumps(document).encode())
    assert read_all(storage, remote) == LOG
    store.replace(LOG_KEY, store.content(LOG_KEY)[:-1] + b"?")
    with pytest.raises(CorruptRemoteData):
        read_all(storage, remote)


def test_damaged_data_are_not_cached(store: MemoryObjectStore) -> None:
    storage = segment_store(store, is_cached=True)
    remote = copied(storage, Contents(LOG))
    whole = store.content(LOG_KEY)
    store.replace(LOG_KEY, bytes(len(whole)))
    with pytest.raises(CorruptRemoteData):
        read_all(storage, remote)
    store.replace(LOG_KEY, whole)
    assert read_all(storage, remote) == LOG


def test_discarded_data_are_read_from_store(store: MemoryObjectStore) -> None:
    """A cache disk may return wrong data, which the cache cannot detect."""
    fs = MemoryFileSystem()
    shelf = DiskChunkStorage(fs, "/chunks", parse_settings({}).settings.chunk_cache.limits, lambda: 0)
    chunks = ChunkCache(shelf, DownloadPool(threads=2, max_waiting=10, idle_seconds=0.1), wait_ms=10_000)
    storage = segment_store(store, chunks=chunks)
    remote = copied(storage, Contents(LOG))
    assert read_all(storage, remote) == LOG
    for name in fs.list("/chunks/cache"):
        write_file(fs, f"/chunks/cache/{name}", bytes(fs.size(f"/chunks/cache/{name}")), sync=False)
    assert read_all(storage, remote) == bytes(len(LOG))
    storage.discard(remote)
    assert read_all(storage, remote) == LOG


def test_location_of_a_segment_is_its_object_key(store: MemoryObjectStore) -> None:
    storage = segment_store(store)
    assert storage.location(copied(storage, Contents(LOG))) == LOG_KEY


def test_read_soon_fetches_chunks(store: MemoryObjectStore) -> None:
    storage = segment_store(store, chunks=chunk_cache(prefetch_bytes=len(LOG)))
    remote = copied(storage, Contents(LOG))
    storage.read_soon(remote, len(LOG))
    storage.read_soon(remote, 0)
    before = len(store.calls)
    assert read_all(storage, remote) == LOG
    assert [call for call in store.calls[before:] if call.key == MANIFEST_KEY] == []


def test_reader_with_a_stale_manifest_recovers_after_one_error(store: MemoryObjectStore) -> None:
    other_node = segment_store(store, ENCRYPTED)
    remote = copied(segment_store(store, ENCRYPTED), Contents(LOG))
    assert read_all(other_node, remote) == LOG
    copied(segment_store(store, ENCRYPTED), Contents(LOG))
    with pytest.raises(CorruptRemoteData):
        read_all(other_node, remote)
    assert read_all(other_node, remote) == LOG


def test_manifest_of_another_segment_is_refused(store: MemoryObjectStore) -> None:
    storage = segment_store(store)
    remote = copied(storage, Contents(LOG))
    other = copied(storage, Contents(LOG), segment(len(LOG), number=1))
    store.replace(MANIFEST_KEY, store.content(MANIFEST_KEY.replace("adh9f8BMS4anaUnD8KWfWg", "AAAAAAAAAAAAAAAAAAAAAQ")))
    with pytest.raises(CorruptRemoteData, match="describes"):
        read_all(storage, remote)
    assert read_all(storage, other) == LOG


def test_error_for_an_encrypted_segment_without_keys_names_the_cause(store: MemoryObjectStore) -> None:
    remote = copied(segment_store(store, ENCRYPTED), Contents(LOG))
    with pytest.raises(RemoteStorageError, match="no keys are configured"):
        read_all(segment_store(store), remote)


def test_segments_stay_readable_after_a_key_rotation(store: MemoryObjectStore) -> None:
    remote = copied(segment_store(store, ENCRYPTED), Contents(LOG))
    rotated = data_keys(MemoryFileSystem(), "other", "written")
    assert read_all(segment_store(store, ENCRYPTED, key_ring=rotated), remote) == LOG


def test_encrypted_segment_is_read_after_encryption_is_disabled(store: MemoryObjectStore) -> None:
    remote = copied(segment_store(store, ENCRYPTED), Contents(LOG))
    plain = segment_store(store, {**ENCRYPTED, "encryption.enabled": "false"})
    assert read_all(plain, remote) == LOG
    copied(plain, Contents(LOG), segment(len(LOG), number=1))
    assert decode_manifest(store.content(store.keys()[2])).encryption is None


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["log", "offset_index", "time_index", "transaction_index", "producer_snapshot"])
def test_missing_file_fails_the_copy_without_leftovers(store: MemoryObjectStore, missing: str) -> None:
    fs = MemoryFileSystem()
    files = write_files(fs, Contents(LOG))
    fs.remove(getattr(files, missing))
    with pytest.raises(RemoteStorageError, match="reading data/topic1-42/") as caught:
        segment_store(store).copy_segment(segment(len(LOG)), files)
    assert not isinstance(caught.value, RetriableRemoteStorageError)
    assert store.keys() == []


def test_log_of_another_size_is_not_copied(store: MemoryObjectStore) -> None:
    files = write_files(MemoryFileSystem(), Contents(LOG))
    with pytest.raises(RemoteStorageError, match=f"has {len(LOG)} bytes"):
        segment_store(store).copy_segment(segment(len(LOG) + 1), files)
    assert store.keys() == []


def test_log_truncated_during_the_copy_fails_it(store: MemoryObjectStore) -> None:
    fs = MemoryFileSystem()
    files = write_files(fs, Contents(LOG))

    class TruncatingStore(MemoryObjectStore):
        def put(self, key: str, parts: Iterable[Buffer]) -> int:
            write_file(fs, files.log, b"short", sync=False)
            return super().put(key, parts)

    shortening = TruncatingStore()
    with pytest.raises(RemoteStorageError, match="was truncated"):
        segment_store(shortening).copy_segment(segment(len(LOG)), files)
    assert shortening.keys() == []


def test_lost_bytes_are_detected() -> None:
    class LossyStore(MemoryObjectStore):
        def put(self, key: str, parts: Iterable[Buffer]) -> int:
            return super().put(key, parts) - 1

    forgetful = LossyStore()
    with pytest.raises(RemoteStorageError, match="were stored"):
        copied(segment_store(forgetful), Contents(LOG))
    assert forgetful.keys() == []

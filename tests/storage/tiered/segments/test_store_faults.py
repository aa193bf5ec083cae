"""Faults of a remote store in copies, reads and deletes, and the guarantees after them.

After any failure the store holds a complete segment, or objects without a manifest, which a delete removes. A read
returns the bytes of the log or a classified error, never other bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from storage.tiered.errors import (
    CorruptRemoteData,
    ObjectStoreError,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment
from tests.storage.tiered.sample_segments import Contents, segment
from tests.storage.tiered.segments.remote_storage_contract import LOG, copied, read_all
from tests.storage.tiered.segments.segment_stores import BOTH, ENCRYPTED, PLAIN, chunk_cache, segment_store
from tests.support.fakes.faulty_object_store import FaultKind, FaultyObjectStore
from tests.support.fakes.memory_object_store import MemoryObjectStore

CONTENTS = Contents(LOG)
FAULTS_OF_PUTS = [FaultKind.UNAVAILABLE, FaultKind.THROTTLED, FaultKind.TIMEOUT_AFTER_SUCCESS, FaultKind.PARTIAL_UPLOAD]
REMOTE = segment(len(LOG))


def assert_whole_or_garbage(inner: MemoryObjectStore, remote: RemoteSegment, settings: Mapping[str, str]) -> None:
    """Check from another node with a faultless store, then delete the segment."""
    key = ObjectKeys("").key(remote, ObjectSuffix.MANIFEST)
    storage = segment_store(inner, settings)
    if inner.keys().count(key):
        assert read_all(storage, remote) == LOG
        assert storage.read_index(remote, IndexKind.OFFSET) == CONTENTS.offset_index
    else:
        with pytest.raises(RemoteResourceNotFound):
            read_all(storage, remote)
    storage.delete_segment(remote)
    assert inner.keys() == []


@pytest.mark.parametrize("settings", [PLAIN, BOTH], ids=["plain", "both"])
@pytest.mark.parametrize("suffix", list(ObjectSuffix))
@pytest.mark.parametrize("kind", FAULTS_OF_PUTS)
def test_failed_copy_leaves_nothing_and_can_be_repeated(
    kind: FaultKind, suffix: ObjectSuffix, settings: Mapping[str, str]
) -> None:
    inner = MemoryObjectStore()
    store = FaultyObjectStore(inner)
    storage = segment_store(store, settings)
    store.fail(kind, "put", key_part=suffix.value)
    with pytest.raises(RetriableRemoteStorageError):
        copied(storage, CONTENTS)
    assert inner.keys() == []
    copied(storage, CONTENTS)
    assert_whole_or_garbage(inner, REMOTE, settings)


@pytest.mark.parametrize("settings", [PLAIN, BOTH], ids=["plain", "both"])
@pytest.mark.parametrize("requests", range(1, 8))
@pytest.mark.parametrize("skip", range(4))
def test_outage_during_a_copy_leaves_a_whole_segment_or_garbage(
    skip: int, requests: int, settings: Mapping[str, str]
) -> None:
    """`skip` requests succeed, then `requests` fail, including requests of the clean-up."""
    inner = MemoryObjectStore()
    store = FaultyObjectStore(inner)
    storage = segment_store(store, settings)
    store.fail(FaultKind.UNAVAILABLE, skip=skip, times=requests)
    with pytest.raises(RetriableRemoteStorageError) as caught:
        copied(storage, CONTENTS)
    leftover_notes = [note for note in getattr(caught.value, "__notes__", []) if "may be left over" in note]
    assert bool(leftover_notes) == (requests > 1)
    assert_whole_or_garbage(inner, REMOTE, settings)


def test_manifest_put_with_a_lost_response_completes_the_segment() -> None:
    inner = MemoryObjectStore()
    store = FaultyObjectStore(inner)
    store.fail(FaultKind.TIMEOUT_AFTER_SUCCESS, "put", key_part="manifest")
    store.fail(FaultKind.UNAVAILABLE, "delete")
    with pytest.raises(RetriableRemoteStorageError):
        copied(segment_store(store), CONTENTS)
    assert len(inner.keys()) == 3
    assert_whole_or_garbage(inner, REMOTE, PLAIN)


@pytest.mark.parametrize("skip", range(1, 5))
def test_failed_second_copy_leaves_no_manifest_of_the_first(skip: int) -> None:
    """The second log is encrypted with another key than the first manifest names."""
    inner = MemoryObjectStore()
    store = FaultyObjectStore(inner)
    storage = segment_store(store, ENCRYPTED)
    copied(storage, CONTENTS)
    store.fail(FaultKind.UNAVAILABLE, skip=skip, times=4)
    with pytest.raises(RetriableRemoteStorageError):
        copied(storage, CONTENTS)
    assert_whole_or_garbage(inner, REMOTE, ENCRYPTED)


@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.TIMEOUT_AFTER_SUCCESS, FaultKind.PARTIAL_DELETE])
@pytest.mark.parametrize("skip", [0, 1])
def test_failed_delete_can_be_repeated(kind: FaultKind, skip: int) -> None:
    inner = MemoryObjectStore()
    store = FaultyObjectStore(inner)
    storage = segment_store(store)
    copied(storage, CONTENTS)
    store.fail(kind, "delete", skip=skip)
    with pytest.raises(RetriableRemoteStorageError):
        storage.delete_segment(REMOTE)
    assert_whole_or_garbage(inner, REMOTE, PLAIN)
    storage.delete_segment(REMOTE)


class Refusing(MemoryObjectStore):
    """A store without valid credentials."""

    is_refusing = False

    def delete(self, keys: Sequence[str]) -> None:
        if self.is_refusing:
            raise ObjectStoreError("access denied")
        super().delete(keys)


def test_permanent_failure_is_not_retriable() -> None:
    store = Refusing()
    storage = segment_store(store)
    copied(storage, CONTENTS)
    store.is_refusing = True
    with pytest.raises(RemoteStorageError, match="access denied") as caught:
        storage.delete_segment(REMOTE)
    assert not isinstance(caught.value, RetriableRemoteStorageError)


# -- reads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_cached", [False, True], ids=["uncached", "cached"])
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.UNAVAILABLE, RetriableRemoteStorageError),
        (FaultKind.THROTTLED, RetriableRemoteStorageError),
        (FaultKind.SHORT_BODY, RetriableRemoteStorageError),
        (FaultKind.CORRUPT_BYTES, CorruptRemoteData),
    ],
)
@pytest.mark.parametrize("suffix", [ObjectSuffix.LOG, ObjectSuffix.MANIFEST])
def test_failed_read_can_be_repeated(
    kind: FaultKind, error: type[RemoteStorageError], suffix: ObjectSuffix, is_cached: bool
) -> None:
    store = FaultyObjectStore(MemoryObjectStore())
    # A prefetch might meet the fault in place of the read, which then succeeds.
    storage = segment_store(store, chunks=chunk_cache(prefetch_bytes=0) if is_cached else None)
    copied(storage, CONTENTS)
    store.fail(kind, "get", key_part=suffix.value)
    with pytest.raises(error):
        read_all(storage, REMOTE)
    assert read_all(storage, REMOTE) == LOG


@pytest.mark.parametrize("suffix", list(ObjectSuffix))
def test_lost_object_is_reported_despite_a_cached_manifest(suffix: ObjectSuffix) -> None:
    inner = MemoryObjectStore()
    storage = segment_store(inner)
    copied(storage, CONTENTS)
    if suffix is not ObjectSuffix.MANIFEST:
        next(storage.read_segment(REMOTE, 0))
    inner.lose(ObjectKeys("").key(REMOTE, suffix))
    with pytest.raises(RemoteResourceNotFound):
        storage.read_index(REMOTE, IndexKind.OFFSET) if suffix is ObjectSuffix.INDEXES else read_all(storage, REMOTE)


# -- random faults -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_reads_stay_correct_and_deletion_leaves_no_objects(seed: int) -> None:
    inner = MemoryObjectStore(piece_bytes=500)
    chance = dict.fromkeys(set(FaultKind) - {FaultKind.LOST_OBJECT}, 0.06)
    store = FaultyObjectStore(inner, seed, chance)
    settings = [PLAIN, BOTH][seed % 2]
    storage = segment_store(store, settings, is_cached=seed % 3 == 0)
    for number in range(6):
        remote = segment(len(LOG), number=number)
        if succeeds(partial(copied, storage, CONTENTS, remote)):
            for _ in range(5):
                assert_log_or_error(storage, remote)
        while not succeeds(partial(storage.delete_segment, remote)):
            pass
    assert inner.keys() == []


def succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except RetriableRemoteStorageError:
        return False
    return True


def assert_log_or_error(storage: RemoteStorageManager, remote: RemoteSegment) -> None:
    try:
        assert read_all(storage, remote, 700, 2700) == LOG[700:2701]
        assert storage.read_index(remote, IndexKind.TIME) == CONTENTS.time_index
    except (RetriableRemoteStorageError, CorruptRemoteData):
        return

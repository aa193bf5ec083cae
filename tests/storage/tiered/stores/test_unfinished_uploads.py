"""Abandoned multipart uploads, and stores without multipart."""

from collections.abc import Iterator

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentEpoch, TopicIdPartition
from storage.tiered.stores.unfinished_uploads import UnfinishedUpload, abandoned_uploads, abort
from tests.support.fakes.memory_object_store import MemoryObjectStore

KEYS = ObjectKeys("tier/")


class StoreOfParts(MemoryObjectStore):
    """A store with uploads set by a test."""

    def __init__(self, *uploads: UnfinishedUpload) -> None:
        super().__init__()
        self.uploads = list(uploads)

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        return iter([upload for upload in self.uploads if upload.key.startswith(prefix)])

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.uploads.remove(upload)


def key(topic: str) -> str:
    partition = TopicIdPartition(Uuid(bytes(15) + b"\x01"), topic, 0)
    segment = RemoteSegment(
        id=RemoteSegmentId(partition, Uuid(bytes(15) + b"\x02")),
        start_offset=0,
        end_offset=9,
        max_timestamp_ms=0,
        broker_id=BrokerId(1),
        event_timestamp_ms=0,
        size_bytes=100,
        leader_epochs=(SegmentEpoch(LeaderEpoch(0), 0),),
    )
    return KEYS.key(segment, ObjectSuffix.LOG)


def test_only_old_uploads_of_segment_objects_are_found() -> None:
    old = UnfinishedUpload(key("t"), "1", 10)
    young = UnfinishedUpload(key("t"), "2", 20)
    foreign = UnfinishedUpload("tier/foreign/key", "3", 10)
    store = StoreOfParts(old, young, foreign)
    assert list(abandoned_uploads(store, KEYS, None, 20)) == [old]
    assert list(abandoned_uploads(store, KEYS, None, 21)) == [old, young]


def test_uploads_are_filtered_by_exact_topic_name() -> None:
    mine, longer = UnfinishedUpload(key("t"), "1", 0), UnfinishedUpload(key("t-2"), "2", 0)
    store = StoreOfParts(mine, longer)
    assert list(abandoned_uploads(store, KEYS, "t", 1)) == [mine]
    assert list(abandoned_uploads(store, KEYS, "t-2", 1)) == [longer]


def test_upload_of_a_copy_in_progress_is_not_abandoned() -> None:
    """A slow copy renews its lease for hours, and its upload is as old."""
    old, slow = UnfinishedUpload(key("t"), "1", 0), UnfinishedUpload(key("t-2"), "2", 0)
    store = StoreOfParts(old, slow)
    found = abandoned_uploads(store, KEYS, None, 1, lambda id: id.partition.topic == "t-2")
    assert list(found) == [old]


def test_aborted_upload_is_removed() -> None:
    upload = UnfinishedUpload(key("t"), "1", 0)
    store = StoreOfParts(upload)
    abort(store, upload)
    assert store.uploads == []


def test_store_without_multipart_has_no_unfinished_uploads() -> None:
    assert list(abandoned_uploads(MemoryObjectStore(), KEYS, None, 1)) == []

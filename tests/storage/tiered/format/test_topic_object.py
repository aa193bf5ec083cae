"""Topic objects: writes of leaders of partition 0, and precedence of epochs."""

from dataclasses import replace

import pytest

from protocol.primitives import Uuid
from storage.tiered.format.topic_object import (
    TopicDescription,
    TopicWriter,
    decode_topic,
    encode_topic,
    read_topic,
    topic_object,
)
from tests.support.fakes.memory_object_store import MemoryObjectStore

DIRECTORY = "foo-AAAAAAAAAAAAAAAAAAAAAg/"
FOO = TopicDescription(
    topic="foo",
    topic_id=Uuid(bytes(15) + b"\x02"),
    partition_count=3,
    replication_factor=2,
    cluster_id="c",
    metadata_offset=40,
    configs={"remote.storage.enable": "true", "retention.ms": "1000"},
)


def puts(store: MemoryObjectStore) -> int:
    return sum(call.operation == "put" for call in store.calls)


def test_topic_description_round_trips() -> None:
    assert decode_topic(encode_topic(FOO)) == FOO


def test_read_without_objects_returns_none() -> None:
    assert read_topic(MemoryObjectStore(), DIRECTORY) is None


def test_unchanged_topic_is_not_written_again() -> None:
    store = MemoryObjectStore()
    leader = TopicWriter(store, DIRECTORY, leader_epoch=0)
    assert leader.write(FOO)
    assert leader.write(replace(FOO, metadata_offset=41))
    assert puts(store) == 1
    more = replace(FOO, partition_count=4, metadata_offset=42)
    assert leader.write(more)
    assert read_topic(store, DIRECTORY) == more


def test_older_image_does_not_replace_a_newer_one() -> None:
    store = MemoryObjectStore()
    leader = TopicWriter(store, DIRECTORY, leader_epoch=0)
    leader.write(FOO)
    leader.write(replace(FOO, partition_count=1, metadata_offset=39))
    assert read_topic(store, DIRECTORY) == FOO


def test_deposed_leader_changes_nothing() -> None:
    store = MemoryObjectStore()
    old = TopicWriter(store, DIRECTORY, leader_epoch=1)
    old.write(FOO)
    newer = replace(FOO, partition_count=5, metadata_offset=50)
    assert TopicWriter(store, DIRECTORY, leader_epoch=2).write(newer)
    assert store.keys() == [f"{DIRECTORY}topic-0000000002"]
    old.write(replace(FOO, partition_count=9, metadata_offset=60))
    assert read_topic(store, DIRECTORY) == newer
    assert not TopicWriter(store, DIRECTORY, leader_epoch=1).write(replace(FOO, metadata_offset=70))


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"version":1}', encode_topic(replace(FOO, partition_count=0))])
def test_invalid_content_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        decode_topic(content)


def test_objects_of_a_deleted_topic_are_removed() -> None:
    store = MemoryObjectStore()
    store.put(f"{DIRECTORY}0/log-start-0000000001", (b"",))
    store.put(f"{DIRECTORY}topic-0000000001", (b"",))
    store.put(f"{DIRECTORY}topic-0000000002", (b"",))
    topic_object(store, DIRECTORY).remove()
    assert store.keys() == [f"{DIRECTORY}0/log-start-0000000001"]

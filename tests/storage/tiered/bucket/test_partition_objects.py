"""Log start and topic objects, through the class that brokers use."""

from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.primitives import Uuid
from storage.tiered.bucket.partition_objects import PartitionObjects
from storage.tiered.format.log_start_object import read_log_start
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.format.topic_object import TopicDescription, read_topic
from storage.tiered.segment_metadata import TopicIdPartition
from tests.support.fakes.memory_object_store import MemoryObjectStore

KEYS = ObjectKeys("p/")
FOO = TopicIdPartition(Uuid(bytes(15) + b"\x05"), "foo", 0)
DIRECTORY = KEYS.partition(FOO)


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def broker(store: MemoryObjectStore, clock: Clock, broker_id: int = 1) -> PartitionObjects:
    return PartitionObjects(store, KEYS, cluster_id="c", broker_id=BrokerId(broker_id), interval_ms=100, now_ms=clock)


def offset(store: MemoryObjectStore) -> int | None:
    found = read_log_start(store, DIRECTORY)
    return None if found is None else found.log_start_offset


def description(partitions: int) -> TopicDescription:
    return TopicDescription(
        topic="foo",
        topic_id=FOO.topic_id,
        partition_count=partitions,
        replication_factor=1,
        cluster_id="c",
        metadata_offset=partitions,
    )


def test_log_start_changes_wait_for_interval_unless_urgent() -> None:
    store, clock = MemoryObjectStore(), Clock()
    leader = broker(store, clock)
    assert leader.on_log_start(FOO, LeaderEpoch(3), Offset(5), at_once=False)
    assert leader.on_log_start(FOO, LeaderEpoch(3), Offset(6), at_once=False), "waiting is no refusal"
    assert offset(store) == 5
    assert leader.on_log_start(FOO, LeaderEpoch(3), Offset(7), at_once=True)
    assert offset(store) == 7
    clock.now_ms = 100
    assert leader.on_log_start(FOO, LeaderEpoch(3), Offset(8), at_once=False)
    assert offset(store) == 8


def test_log_start_of_newest_leader_is_returned() -> None:
    store, clock = MemoryObjectStore(), Clock()
    assert broker(store, clock).kept(FOO) is None
    broker(store, clock).on_log_start(FOO, LeaderEpoch(3), Offset(5), at_once=True)
    assert broker(store, clock, 2).kept(FOO) == 5


def test_deposed_leader_receives_false() -> None:
    store, clock = MemoryObjectStore(), Clock()
    broker(store, clock, 2).on_log_start(FOO, LeaderEpoch(4), Offset(9), at_once=True)
    assert not broker(store, clock).on_log_start(FOO, LeaderEpoch(3), Offset(20), at_once=True)
    assert offset(store) == 9


def test_returning_leader_creates_new_writer() -> None:
    store, clock = MemoryObjectStore(), Clock()
    one, two = broker(store, clock), broker(store, clock, 2)
    one.on_log_start(FOO, LeaderEpoch(3), Offset(5), at_once=True)
    two.on_log_start(FOO, LeaderEpoch(4), Offset(6), at_once=True)
    one.stop_leading(FOO)
    assert one.on_log_start(FOO, LeaderEpoch(5), Offset(7), at_once=True)
    assert offset(store) == 7


def test_topics_are_described_when_they_change() -> None:
    store, clock = MemoryObjectStore(), Clock()
    leader = broker(store, clock)
    assert leader.on_topic(description(1), LeaderEpoch(3))
    assert leader.on_topic(description(2), LeaderEpoch(3))
    assert leader.on_topic(description(2), LeaderEpoch(3))
    assert sum(call.operation == "put" for call in store.calls) == 2
    directory = DIRECTORY.removesuffix("0/")
    assert read_topic(store, directory) == description(2)


def test_objects_of_removed_topic_are_deleted() -> None:
    store, clock = MemoryObjectStore(), Clock()
    leader = broker(store, clock)
    other = FOO._replace(partition=1)
    leader.on_log_start(FOO, LeaderEpoch(3), Offset(5), at_once=True)
    leader.on_log_start(other, LeaderEpoch(3), Offset(5), at_once=True)
    leader.on_topic(description(2), LeaderEpoch(3))
    leader.forget(other)
    assert len(store.keys()) == 2
    leader.forget(FOO)
    leader.forget(FOO)
    assert store.keys() == []

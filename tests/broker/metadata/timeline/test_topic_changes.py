"""Sentences about topics and partitions."""

from collections.abc import Sequence

import pytest

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import MetadataRecord
from broker.metadata.timeline.topic_changes import PARTITIONS_MAX, TOPICS_MAX, describe_topics
from protocol.messages.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.broker.metadata.images import directory_of, image_with, uuid


def sentences(image: MetadataImage, records: Sequence[MetadataRecord]) -> list[str]:
    delta = MetadataDelta(image)
    delta.replay_all(records)
    assert delta.topics is not None
    return [change.sentence for change in describe_topics(delta.topics)]


def partition(topic: int, index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=uuid(topic),
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory_of(1), directory_of(2)],
    )


IMAGE = image_with(topics={"orders": 6, "pay": 1}, brokers=(1, 2))


def test_creation_growth_and_deletion_are_told() -> None:
    records: list[MetadataRecord] = [TopicRecord(name="new", topic_id=uuid(9)), partition(9, 0)]
    assert sentences(IMAGE, records) == ["topic new: created with 1 partition, replication factor 2"]
    assert sentences(IMAGE, [partition(2, index) for index in (1, 2, 3)]) == ["topic pay: 3 partitions added, 4 in all"]
    assert sentences(IMAGE, [RemoveTopicRecord(topic_id=uuid(1))]) == ["topic orders: deleted, with 6 partitions"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (PartitionChangeRecord(leader=2), "partition pay-0: leader 1 → 2"),
        (PartitionChangeRecord(leader=-1), "partition pay-0: leader 1 → none"),
        (PartitionChangeRecord(isr=[1]), "partition pay-0: in-sync replicas 1, 2 → 1"),
        (
            PartitionChangeRecord(replicas=[1, 2, 3], adding_replicas=[3]),
            "partition pay-0: replicas 1, 2 → 1, 2, 3",
        ),
        (PartitionChangeRecord(adding_replicas=[3]), "partition pay-0: adding replicas none → 3"),
        (PartitionChangeRecord(leader_recovery_state=1), "partition pay-0: leader recovery recovered → recovering"),
        (PartitionChangeRecord(leader=1), "partition pay-0: leader epoch 0 → 1"),
        (PartitionChangeRecord(eligible_leader_replicas=[2]), "partition pay-0: eligible leader replicas none → 2"),
    ],
)
def test_change_of_a_partition_is_told(change: PartitionChangeRecord, sentence: str) -> None:
    change.topic_id, change.partition_id = uuid(2), 0
    assert sentence in sentences(IMAGE, [change])


def test_many_partitions_of_a_topic_are_counted() -> None:
    records = [
        PartitionChangeRecord(topic_id=uuid(1), partition_id=index, leader=2, isr=[2])
        for index in range(PARTITIONS_MAX + 1)
    ]
    assert sentences(IMAGE, records) == [
        "topic orders: 5 partitions have another leader",
        "topic orders: 5 partitions have fewer in-sync replicas",
    ]


def test_an_event_in_many_topics_is_one_sentence() -> None:
    count = TOPICS_MAX + 5
    image = image_with(topics={f"t-{number:03}": 2 for number in range(count)}, brokers=(1, 2))
    records = [
        PartitionChangeRecord(topic_id=uuid(number), partition_id=0, leader=2, isr=[2])
        for number in range(1, count + 1)
    ]
    assert sentences(image, records) == [
        f"{count} partitions of {count} topics have another leader",
        f"{count} partitions of {count} topics have fewer in-sync replicas",
    ]

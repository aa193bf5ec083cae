"""Images: every record replays, `write` has a canonical order, deltas share unchanged parts."""

import pytest

from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.loader import MetadataLoader, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metadata.image.quota_image import quota_entity
from broker.metadata.image.records import InvalidMetadata, MetadataRecord, decode_record, encode_record
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from tests.broker.metadata.images import image_of, image_with, uuid


def everything() -> MetadataImage:
    """Return an image with content in every part."""
    base = image_with(
        topics={"b.topic": 3, "a": 1}, brokers=(1, 2, 3), fenced=(3,), configs={"a": {"retention.ms": "1"}}
    )
    return image_of(
        [
            RegisterControllerRecord(
                controller_id=1,
                incarnation_id=uuid(500),
                end_points=[ControllerEndpoint("CONTROLLER", "host-1", 9093, 0)],
                features=[ControllerFeature("metadata.version", 7, 29)],
            ),
            BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, in_controlled_shutdown=1),
            PartitionChangeRecord(partition_id=1, topic_id=uuid(2), isr=[1], leader=1, eligible_leader_replicas=[2]),
            config_record(ConfigResource(ResourceType.BROKER, ""), "min.insync.replicas", "1").message,
            ClientQuotaRecord(
                entity=[EntityData("user", None), EntityData("client-id", "c")], key="consumer_byte_rate", value=2.5
            ),
            ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=3000),
            AccessControlEntryRecord(uuid(11), 2, "t", 3, "User:x", "*", 3, 3),
            UserScramCredentialRecord("u", 1, b"salt", b"stored", b"server", 4096),
            DelegationTokenRecord("User:o", "User:r", ["User:n"], 1, 2, 3, "token"),
        ],
        base,
    )


def written(image: MetadataImage) -> list[MetadataRecord]:
    """Return the records that an image writes, after a round trip through bytes."""
    return [decode_record(encode_record(*record)) for record in image.write()]


def test_written_records_replay_to_an_equal_image() -> None:
    image = everything()
    again = image_of(written(image))
    assert again._replace(provenance=image.provenance) == image
    assert written(again) == written(image)


def test_write_order_does_not_depend_on_history() -> None:
    image = everything()
    records = written(image)
    one_by_one = EMPTY_IMAGE
    for record in records:
        one_by_one = image_of([record], one_by_one)
    assert written(one_by_one) == records
    parts = [type(record).__name__ for record in records if not isinstance(record, PartitionRecord)]
    assert list(dict.fromkeys(parts)) == [
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "RegisterControllerRecord",
        "TopicRecord",
        "ConfigRecord",
        "ClientQuotaRecord",
        "ProducerIdsRecord",
        "AccessControlEntryRecord",
        "UserScramCredentialRecord",
        "DelegationTokenRecord",
    ]


def test_metadata_version_comes_first() -> None:
    first = written(everything())[0]
    assert isinstance(first, FeatureLevelRecord)
    assert first.name == "metadata.version"


def test_each_topic_is_followed_by_its_partitions_in_order() -> None:
    records = [each for each in written(everything()) if isinstance(each, TopicRecord | PartitionRecord)]
    shape = [
        ("topic", each.name) if isinstance(each, TopicRecord) else ("partition", each.partition_id) for each in records
    ]
    assert shape == [
        ("topic", "a"),
        ("partition", 0),
        ("topic", "b.topic"),
        ("partition", 0),
        ("partition", 1),
        ("partition", 2),
    ]


def test_removals_leave_no_entries() -> None:
    image = everything()
    removals: list[MetadataRecord] = [
        RemoveTopicRecord(uuid(1)),
        RemoveTopicRecord(uuid(2)),
        UnregisterBrokerRecord(1, 1),
        UnregisterBrokerRecord(2, 2),
        UnregisterBrokerRecord(3, 3),
        config_record(ConfigResource(ResourceType.BROKER, ""), "min.insync.replicas", None).message,
        ClientQuotaRecord(
            entity=[EntityData("client-id", "c"), EntityData("user", None)], key="consumer_byte_rate", remove=True
        ),
        RemoveAccessControlEntryRecord(uuid(11)),
        RemoveUserScramCredentialRecord("u", 1),
        RemoveDelegationTokenRecord("token"),
        NoOpRecord(),
        ZkMigrationStateRecord(),
    ]
    left = {type(record).__name__ for record in written(image_of(removals, image))}
    assert left == {"FeatureLevelRecord", "RegisterControllerRecord", "ProducerIdsRecord"}


def test_untouched_parts_are_shared() -> None:
    image = everything()
    after = image_of([ProducerIdsRecord(1, 1, 4000)], image)
    assert after.topics is image.topics
    assert after.brokers is image.brokers
    assert after.offset == image.offset + 1


def test_deleted_topic_loses_its_configs_within_one_delta() -> None:
    resource = ConfigResource(ResourceType.TOPIC, "t")
    image = image_of(
        [
            TopicRecord("t", uuid(1)),
            config_record(resource, "retention.ms", "1").message,
            RemoveTopicRecord(uuid(1)),
            TopicRecord("t", uuid(2)),
            config_record(resource, "segment.ms", "2").message,
        ]
    )
    assert dict(image.configs.topic("t")) == {"segment.ms": "2"}


def test_delta_holds_the_changes() -> None:
    image = image_with(topics={"a": 2, "b": 1, "c": 1})
    delta = MetadataDelta(image)
    delta.replay_all(
        [
            PartitionChangeRecord(partition_id=1, topic_id=uuid(1), isr=[]),
            RemoveTopicRecord(uuid(2)),
            TopicRecord("d", uuid(4)),
            PartitionRecord(0, uuid(4), [1], [1], leader=1, leader_epoch=0, partition_epoch=0),
            TopicRecord("e", uuid(5)),
            RemoveTopicRecord(uuid(5)),
        ]
    )
    assert delta.topics is not None
    assert set(delta.topics.changed) == {uuid(1), uuid(4)}
    assert set(delta.topics.deleted) == {uuid(2)}
    assert delta.topics.changed[uuid(4)].is_new
    assert list(delta.topics.changed[uuid(1)].changed_partitions) == [1]
    after = delta.apply(Provenance(100, LeaderEpoch(1), 0))
    assert after.topics.names() == ["a", "c", "d"]
    assert after.topics.partition_count == 4
    assert image.topics.names() == ["a", "b", "c"], "the base is unchanged"


def test_clear_elr_record_applies_to_one_topic_or_all() -> None:
    image = image_with(topics={"a": 1, "b": 1}, brokers=(1, 2))
    both = image_of(
        [PartitionChangeRecord(0, uuid(number), isr=[1], eligible_leader_replicas=[2]) for number in (1, 2)], image
    )
    one = image_of([ClearElrRecord("a")], both)
    assert [eligible(one, number) for number in (1, 2)] == [(), (2,)]
    assert [epoch(one, number) for number in (1, 2)] == [2, 1], "clearing bumps the partition epoch on every node"
    none = image_of([ClearElrRecord("")], both)
    assert [eligible(none, number) for number in (1, 2)] == [(), ()]


def epoch(image: MetadataImage, topic: int) -> int:
    partition = image.topics.partition(uuid(topic), 0)
    assert partition is not None
    return partition.partition_epoch


def eligible(image: MetadataImage, topic: int) -> tuple[int, ...]:
    partition = image.topics.partition(uuid(topic), 0)
    assert partition is not None
    return partition.elr


def test_old_fencing_records_are_replayed() -> None:
    image = image_with(brokers=(1,))
    fenced = image_of([FenceBrokerRecord(1, 1)], image)
    assert not fenced.brokers.is_active(1)
    assert image_of([UnfenceBrokerRecord(1, 1)], fenced).brokers.is_active(1)


def test_quota_entity_is_independent_of_part_order() -> None:
    parts: dict[str, str | None] = {"user": None, "client-id": "c"}
    assert dict(everything().client_quotas.of(quota_entity(parts))) == {"consumer_byte_rate": 2.5}


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord("a", uuid(77)),
        TopicRecord("new", uuid(1)),
        RemoveTopicRecord(uuid(99)),
        PartitionRecord(0, uuid(99), [1], [1]),
        PartitionChangeRecord(0, uuid(99)),
        PartitionChangeRecord(9, uuid(1)),
        UnregisterBrokerRecord(9, 1),
        BrokerRegistrationChangeRecord(1, 99, fenced=1),
        ProducerIdsRecord(1, 1, 3000),
        RemoveAccessControlEntryRecord(uuid(99)),
        ClearElrRecord("nope"),
    ],
)
def test_contradictions_are_fatal_and_change_nothing(record: MetadataRecord) -> None:
    image = everything()
    loader = MetadataLoader()
    loader.load([RecordBatch(0, 40, LeaderEpoch(1), 0, written(image))])
    before = loader.state
    with pytest.raises(InvalidMetadata):
        loader.load([RecordBatch(41, 41, LeaderEpoch(1), 0, [record])])
    assert loader.state is before

"""Sentences about every kind of change, without secrets."""

from collections.abc import Sequence

import pytest

from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.image_difference import difference
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import MetadataRecord
from broker.metadata.image.slices import finish
from broker.metadata.timeline.change import Change
from broker.metadata.timeline.sentences import HIDDEN, describe
from protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    EntityData,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from tests.broker.metadata.histories import History, folded
from tests.broker.metadata.images import image_of, image_with, uuid

IMAGE = image_with(topics={"a": 1}, brokers=(1, 2), configs={"a": {"retention.ms": "5", "k": "v"}})


def is_secret(resource: ConfigResource, key: str) -> bool:
    return key == "password"


def changes(records: Sequence[MetadataRecord], image: MetadataImage = IMAGE) -> list[Change]:
    delta = MetadataDelta(image)
    delta.replay_all(records)
    return list(describe(delta, is_secret))


def sentences(records: Sequence[MetadataRecord], image: MetadataImage = IMAGE) -> list[str]:
    return [change.sentence for change in changes(records, image)]


def config(kind: ResourceType, name: str, key: str, value: str | None) -> MetadataRecord:
    return config_record(ConfigResource(kind, name), key, value).message


def acl(**more: object) -> AccessControlEntryRecord:
    values: dict[str, object] = {
        "id": uuid(5),
        "resource_type": 2,
        "resource_name": "pay",
        "pattern_type": 3,
        "principal": "User:bob",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AccessControlEntryRecord(**{**values, **more})  # type: ignore[arg-type]


CREDENTIAL = UserScramCredentialRecord("bob", 1, b"the-salt", b"stored-key", b"server-key", 4_096)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (config(ResourceType.TOPIC, "a", "retention.ms", "7"), "topic a: retention.ms 5 → 7"),
        (config(ResourceType.TOPIC, "a", "new", "x"), "topic a: new set to x"),
        (config(ResourceType.TOPIC, "a", "k", None), "topic a: k removed"),
        (config(ResourceType.BROKER, "", "k", "x"), "broker (all brokers): k set to x"),
        (config(ResourceType.GROUP, "g", "k", "x"), "group g: k set to x"),
        (acl(), "ACL added: User:bob may read topic pay"),
        (
            acl(permission_type=2, pattern_type=4, operation=2, host="10.0.0.1"),
            "ACL added: User:bob may not all topic pay* from 10.0.0.1",
        ),
        (CREDENTIAL, "user bob: SCRAM-SHA-256 credential set"),
        (ProducerIdsRecord(1, 1, 5_000), "producer ids 0 to 4999 allocated"),
    ],
)
def test_change_is_a_sentence(record: MetadataRecord, sentence: str) -> None:
    assert sentences([record]) == [sentence]


def test_removals_are_told() -> None:
    image = image_of([acl(), CREDENTIAL], IMAGE)
    assert sentences([RemoveAccessControlEntryRecord(uuid(5))], image) == ["ACL removed: User:bob may read topic pay"]
    assert sentences([RemoveUserScramCredentialRecord("bob", 1)], image) == [
        "user bob: SCRAM-SHA-256 credential removed"
    ]


def test_quotas_name_the_entity() -> None:
    record = ClientQuotaRecord(
        [EntityData("user", None), EntityData("client-id", "app")], "producer_byte_rate", 1_000.0
    )
    assert sentences([record]) == ["quota of user (default), client-id app: producer_byte_rate set to 1000"]
    removal = ClientQuotaRecord(record.entity, record.key, 0.0, True)
    assert sentences([removal], image_of([record], IMAGE)) == [
        "quota of user (default), client-id app: producer_byte_rate removed"
    ]


def test_brokers_and_features_are_told() -> None:
    found = sentences([BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=1)])
    assert found == ["broker 2: running → fenced"]
    assert len(sentences([UnregisterBrokerRecord(2, 2)])) == 1
    assert len(sentences([FeatureLevelRecord("group.version", 0)])) == 1


def test_secrets_are_hidden() -> None:
    records = [config(ResourceType.BROKER, "1", "password", "hunter2")]
    (change,) = changes(records)
    assert (change.sentence, change.then, change.now) == ("broker 1: password set", None, HIDDEN)
    image = image_of(records, IMAGE)
    (change,) = changes([config(ResourceType.BROKER, "1", "password", "hunter3")], image)
    assert "hunter" not in str(change)
    (change,) = changes([CREDENTIAL])
    assert "salt" not in str(change)


def test_same_value_is_no_change() -> None:
    assert sentences([config(ResourceType.TOPIC, "a", "retention.ms", "5")]) == []


def test_long_values_are_cut() -> None:
    (change,) = changes([config(ResourceType.TOPIC, "a", "k", "x" * 5_000)])
    assert len(change.sentence) < 600


def test_deleted_topic_tells_nothing_of_its_configs() -> None:
    assert sentences([RemoveTopicRecord(topic_id=uuid(1))]) == ["topic a: deleted, with 1 partition"]


@pytest.mark.parametrize("seed", range(3))
def test_every_batch_and_difference_can_be_told(seed: int) -> None:
    batches = History(seed, steps=200).batches
    image = folded(batches[:1])
    for batch in batches[1:]:
        after = folded([batch], image)
        told = list(describe(finish(difference(image, after)), is_secret))
        assert all(change.sentence and change.kind for change in told)
        assert told or after._replace(provenance=image.provenance) == image or not batch.records
        image = after

"""Random histories of metadata records: every record type, in a consistent order.

The module run as a program prints the SHA-256 of the snapshot of a seed's history, for comparison with a process that
has another hash seed.
"""

import hashlib
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from broker.metadata.image.features import bootstrap_records, feature_record
from broker.metadata.image.loader import LoaderState, MetadataLoader, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.records import MetadataRecord
from broker.metadata.snapshot.codec import image_batches
from protocol.ids import LeaderEpoch
from protocol.messages import metadata_records as messages
from protocol.primitives import Uuid
from protocol.records.compression import Codec
from tests.broker.metadata.images import directory_of

BROKERS = range(1, 8)
NAMES = [f"topic.{number}-\u00e9" if number % 5 == 0 else f"topic-{number}" for number in range(30)]


class History:
    """Draws random records; `batches` is the log so far."""

    def __init__(self, seed: int, steps: int = 400) -> None:
        self._random = random.Random(seed)
        self._live: dict[str, tuple[Uuid, int]] = {}  # id and partition count by name
        self._acls: list[Uuid] = []
        self._brokers: dict[int, int] = {}
        self._next_producer_id = 0
        self.batches: list[RecordBatch] = []
        self._append([each.message for each in bootstrap_records()])
        for broker in BROKERS:
            self._append(self._register(broker))
        for _ in range(steps):
            self._append(self._random.choice(self._steps)(self))

    def _append(self, records: Sequence[MetadataRecord]) -> None:
        first = self.batches[-1].last_offset + 1 if self.batches else 0
        time_ms = 1_000 + 10 * len(self.batches)
        epoch = 1 + len(self.batches) // 100
        if self._random.random() < 0.1:  # a control batch: an offset without a record
            self.batches.append(RecordBatch(first, first, LeaderEpoch(epoch), time_ms, ()))
            first += 1
        if records:
            self.batches.append(RecordBatch(first, first + len(records) - 1, LeaderEpoch(epoch), time_ms, records))

    def _register(self, broker: int) -> list[MetadataRecord]:
        draw = self._random
        self._brokers[broker] = draw.randrange(1_000_000)
        features = [messages.BrokerFeature(name, 0, draw.randrange(5)) for name in ("b", "a", "c")]
        draw.shuffle(features)
        endpoints = [messages.BrokerEndpoint(name, "host", 9092, 0) for name in ("PLAINTEXT", "ANOTHER")]
        draw.shuffle(endpoints)
        directories = [directory_of(broker), self._uuid()]
        return [
            messages.RegisterBrokerRecord(
                broker_id=broker,
                incarnation_id=self._uuid(),
                broker_epoch=self._brokers[broker],
                end_points=endpoints,
                features=features,
                rack=draw.choice([None, "r1", "r2"]),
                fenced=draw.random() < 0.3,
                log_dirs=directories,
            )
        ]

    def _create_topic(self) -> list[MetadataRecord]:
        name = self._random.choice(NAMES)
        if name in self._live:
            return []
        topic_id, count = self._uuid(), self._random.randrange(1, 5)
        self._live[name] = topic_id, count
        return [
            messages.TopicRecord(name=name, topic_id=topic_id),
            *(self._config(name) for _ in range(self._random.randrange(2))),
            *(self._partition(topic_id, index) for index in range(count)),
        ]

    def _partition(self, topic_id: Uuid, index: int) -> messages.PartitionRecord:
        replicas = self._random.sample(BROKERS, self._random.randrange(1, 4))
        record = messages.PartitionRecord(
            partition_id=index, topic_id=topic_id, replicas=replicas, isr=list(replicas), leader=replicas[0]
        )
        if self._random.random() < 0.8:
            record.directories = [directory_of(broker) for broker in replicas]
        return record

    def _add_partitions(self) -> list[MetadataRecord]:
        if not self._live:
            return []
        name = self._random.choice(list(self._live))
        topic_id, count = self._live[name]
        self._live[name] = topic_id, count + 1
        return [self._partition(topic_id, count)]

    def _remove_topic(self) -> list[MetadataRecord]:
        if len(self._live) < 5:
            return []
        topic_id, _ = self._live.pop(self._random.choice(list(self._live)))
        return [messages.RemoveTopicRecord(topic_id=topic_id)]

    def _change_partition(self) -> list[MetadataRecord]:
        if not self._live:
            return []
        draw = self._random
        topic_id, count = self._live[draw.choice(list(self._live))]
        record = messages.PartitionChangeRecord(partition_id=draw.randrange(count), topic_id=topic_id)
        match draw.randrange(6):
            case 0:
                record.leader = draw.choice([-1, *BROKERS])
            case 1:
                record.isr = draw.sample(BROKERS, draw.randrange(4))
            case 2:
                record.replicas = draw.sample(BROKERS, 3)
                record.directories = [directory_of(broker) for broker in record.replicas]
            case 3:
                record.eligible_leader_replicas = draw.sample(BROKERS, draw.randrange(3))
                record.last_known_elr = draw.sample(BROKERS, draw.randrange(2))
            case 4:
                record.adding_replicas = draw.sample(BROKERS, draw.randrange(2))
                record.removing_replicas = draw.sample(BROKERS, draw.randrange(2))
            case 5:
                record.leader_recovery_state = draw.randrange(2)
        return [record]

    def _config(self, name: str) -> messages.ConfigRecord:
        key, value = self._random.choice("xyz"), self._random.choice([None, "1", "2"])
        return messages.ConfigRecord(resource_type=2, resource_name=name, name=key, value=value)

    def _change_config(self) -> list[MetadataRecord]:
        if self._live and self._random.random() < 0.7:
            return [self._config(self._random.choice(list(self._live)))]
        return [messages.ConfigRecord(resource_type=4, resource_name="", name="k", value=str(self._random.random()))]

    def _change_quota(self) -> list[MetadataRecord]:
        entity = [messages.EntityData("user", self._random.choice([None, "u", "v"]))]
        if self._random.random() < 0.5:
            entity.append(messages.EntityData("client-id", self._random.choice([None, "c"])))
        self._random.shuffle(entity)
        remove = self._random.random() < 0.3
        return [messages.ClientQuotaRecord(entity=entity, key="k", value=self._random.random(), remove=remove)]

    def _change_acl(self) -> list[MetadataRecord]:
        if self._acls and self._random.random() < 0.4:
            return [messages.RemoveAccessControlEntryRecord(id=self._acls.pop())]
        self._acls.append(self._uuid())
        return [messages.AccessControlEntryRecord(self._acls[-1], 2, "t", 3, "User:a", "*", 3, 3)]

    def _change_broker(self) -> list[MetadataRecord]:
        broker = self._random.choice(BROKERS)
        if self._random.random() < 0.3:
            return self._register(broker)
        change = messages.BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=self._brokers[broker])
        change.fenced = self._random.choice([-1, 0, 1])
        return [change]

    def _change_credentials(self) -> list[MetadataRecord]:
        name = self._random.choice("abc")
        if self._random.random() < 0.3:
            return [
                messages.RemoveUserScramCredentialRecord(name=name, mechanism=1),
                messages.RemoveDelegationTokenRecord(token_id=name),
            ]
        salt = self._random.randbytes(8)
        return [
            messages.UserScramCredentialRecord(name, 1, salt, salt, salt, 4096),
            messages.DelegationTokenRecord("User:o", "User:r", ["User:y", "User:x"], 1, 2, 3, token_id=name),
        ]

    def _allocate_producer_ids(self) -> list[MetadataRecord]:
        self._next_producer_id += 1000
        return [messages.ProducerIdsRecord(1, 1, self._next_producer_id)]

    def _say_little(self) -> list[MetadataRecord]:
        level = self._random.randrange(2)
        return [messages.NoOpRecord(), feature_record("group.version", level).message]

    def _uuid(self) -> Uuid:
        return Uuid(self._random.randbytes(16))

    _steps: tuple[Callable[[Any], list[MetadataRecord]], ...] = (
        _create_topic,
        _create_topic,
        _add_partitions,
        _remove_topic,
        _change_partition,
        _change_partition,
        _change_partition,
        _change_config,
        _change_quota,
        _change_acl,
        _change_broker,
        _change_credentials,
        _allocate_producer_ids,
        _say_little,
    )


def folded(batches: Sequence[RecordBatch], base: MetadataImage = EMPTY_IMAGE, *, at_once: int = 1) -> MetadataImage:
    """Return the image after the batches, loaded `at_once` at a time."""
    loader = MetadataLoader(LoaderState(base, base.offset, has_records=True))
    for start in range(0, len(batches), at_once):
        loader.load(batches[start : start + at_once])
    return loader.image


def digest(image: MetadataImage, codec: Codec = Codec.NONE) -> str:
    """Return the SHA-256 of the image's snapshot."""
    sha = hashlib.sha256()
    for batch in image_batches(image, None, codec=codec):
        sha.update(batch)
    return sha.hexdigest()


if __name__ == "__main__":
    print(digest(folded(History(int(sys.argv[1])).batches)))

"""One sample of every metadata record type, for tests that hold each fold and each printer of records to all of them.

A new record type in `schemas/metadata` fails `test_every_record.py` until it has a sample here; the sample then fails
the test of each place that forgets the type.
"""

from pathlib import Path
from typing import Final, NamedTuple, get_args

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metadata.image.records import IgnoredRecord, MetadataRecord, TransactionMarkerRecord
from protocol.ids import LeaderEpoch
from protocol.messages import metadata_records as messages
from protocol.primitives import Uuid
from tests.broker.metadata.images import directory_of

SCHEMAS: Final = Path(__file__).parents[3] / "schemas" / "metadata"
TOPIC_ID: Final = Uuid(b"\x42" * 16)
ACL_ID: Final = Uuid(b"\x43" * 16)
MARKERS: Final[tuple[type[MetadataRecord], ...]] = get_args(TransactionMarkerRecord)
IGNORED: Final[tuple[type[MetadataRecord], ...]] = get_args(IgnoredRecord)

LEVEL: Final = messages.FeatureLevelRecord("metadata.version", 29)
BROKER: Final = messages.RegisterBrokerRecord(
    broker_id=1, broker_epoch=7, incarnation_id=Uuid(b"\x01" * 16), fenced=True, log_dirs=[directory_of(1)]
)
UNFENCED_BROKER: Final = messages.RegisterBrokerRecord(
    broker_id=1, broker_epoch=7, incarnation_id=Uuid(b"\x01" * 16), fenced=False, log_dirs=[directory_of(1)]
)
CONTROLLER: Final = messages.RegisterControllerRecord(controller_id=3, incarnation_id=Uuid(b"\x03" * 16))
TOPIC: Final = messages.TopicRecord(name="t", topic_id=TOPIC_ID)
PARTITION: Final = messages.PartitionRecord(
    partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, directories=[directory_of(1)]
)
PARTITION_WITH_ELR: Final = messages.PartitionRecord(
    partition_id=0,
    topic_id=TOPIC_ID,
    replicas=[1],
    isr=[],
    leader=-1,
    directories=[directory_of(1)],
    eligible_leader_replicas=[1],
)
CONFIG: Final = messages.ConfigRecord(2, "t", "retention.ms", "1000")
QUOTA: Final = messages.ClientQuotaRecord([messages.EntityData("user", "u")], "producer_byte_rate", 5.0)
PRODUCER_IDS: Final = messages.ProducerIdsRecord(1, 7, 1_000)
ACL: Final = messages.AccessControlEntryRecord(ACL_ID, 2, "t", 3, "User:u", "*", 3, 3)
SCRAM: Final = messages.UserScramCredentialRecord("u", 1, b"salt", b"stored", b"server", 4_096)
TOKEN: Final = messages.DelegationTokenRecord("User:o", "User:r", ["User:x"], 1, 2, 3, token_id="token")


class Sample(NamedTuple):
    """A record, and the records before it that it needs."""

    record: MetadataRecord
    before: tuple[MetadataRecord, ...] = (LEVEL,)

    @property
    def name(self) -> str:
        return type(self.record).__name__

    @property
    def image_before(self) -> MetadataImage:
        return image_of(*self.before)

    @property
    def image(self) -> MetadataImage:
        return image_of(*self.before, self.record)


SAMPLES: Final = (
    Sample(messages.FeatureLevelRecord("group.version", 1)),
    Sample(BROKER),
    Sample(messages.UnregisterBrokerRecord(1, 7), (LEVEL, BROKER)),
    Sample(messages.BrokerRegistrationChangeRecord(1, 7, fenced=-1), (LEVEL, BROKER)),
    Sample(messages.FenceBrokerRecord(1, 7), (LEVEL, UNFENCED_BROKER)),
    Sample(messages.UnfenceBrokerRecord(1, 7), (LEVEL, BROKER)),
    Sample(CONTROLLER),
    Sample(TOPIC),
    Sample(PARTITION, (LEVEL, TOPIC)),
    Sample(messages.PartitionChangeRecord(0, TOPIC_ID, leader=-1), (LEVEL, TOPIC, PARTITION)),
    Sample(messages.RemoveTopicRecord(TOPIC_ID), (LEVEL, TOPIC, PARTITION)),
    Sample(messages.ClearElrRecord("t"), (LEVEL, TOPIC, PARTITION_WITH_ELR)),
    Sample(CONFIG, (LEVEL, TOPIC)),
    Sample(QUOTA),
    Sample(PRODUCER_IDS),
    Sample(ACL),
    Sample(messages.RemoveAccessControlEntryRecord(ACL_ID), (LEVEL, ACL)),
    Sample(SCRAM),
    Sample(messages.RemoveUserScramCredentialRecord("u", 1), (LEVEL, SCRAM)),
    Sample(TOKEN),
    Sample(messages.RemoveDelegationTokenRecord(token_id="token"), (LEVEL, TOKEN)),
    Sample(messages.NoOpRecord()),
    Sample(messages.ZkMigrationStateRecord()),
    Sample(messages.BeginTransactionRecord()),
    Sample(messages.EndTransactionRecord(), (LEVEL, messages.BeginTransactionRecord())),
    Sample(messages.AbortTransactionRecord(), (LEVEL, messages.BeginTransactionRecord())),
)
IMAGE_SAMPLES: Final = tuple(each for each in SAMPLES if not isinstance(each.record, (*MARKERS, *IGNORED)))
"""The samples of records that change the metadata image."""


def image_of(*records: MetadataRecord) -> MetadataImage:
    """Return the image after records without transactions."""
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(records)
    return delta.apply(Provenance(len(records) - 1, LeaderEpoch(1), 1_000))


def sample_name(sample: Sample) -> str:
    """Return the parametrize id of a sample."""
    return sample.name

"""Record types of the metadata log that the Spark fold supports, by the part of the fold that handles them.

`frame_heads.require_known` stops a job at a record of any other type or version. A record type added to the broker is
therefore refused by the jobs, and never lost, until it is listed here together with code that folds it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.metadata.image.records import MetadataRecord
from protocol.messages import metadata_records as messages


class VersionBounds(NamedTuple):
    """The lowest and highest supported version of a record type, both inclusive."""

    lowest: int
    highest: int


TOPIC_RECORDS: Final[Mapping[type[MetadataRecord], VersionBounds]] = {
    messages.TopicRecord: VersionBounds(0, 0),
    messages.PartitionRecord: VersionBounds(0, 2),
    messages.PartitionChangeRecord: VersionBounds(0, 2),
    messages.RemoveTopicRecord: VersionBounds(0, 0),
    messages.ClearElrRecord: VersionBounds(0, 0),
}
"""Folded by `section_fold.py`, which reads fields at fixed places: a new version needs code here."""

REGISTRY_RECORDS: Final[tuple[type[MetadataRecord], ...]] = (
    messages.AccessControlEntryRecord,
    messages.BrokerRegistrationChangeRecord,
    messages.ClientQuotaRecord,
    messages.ConfigRecord,
    messages.DelegationTokenRecord,
    messages.FeatureLevelRecord,
    messages.FenceBrokerRecord,
    messages.ProducerIdsRecord,
    messages.RegisterBrokerRecord,
    messages.RegisterControllerRecord,
    messages.RemoveAccessControlEntryRecord,
    messages.RemoveDelegationTokenRecord,
    messages.RemoveUserScramCredentialRecord,
    messages.UnfenceBrokerRecord,
    messages.UnregisterBrokerRecord,
    messages.UserScramCredentialRecord,
)
"""Folded by `registry.py` with the node's own decoder and replay, in every version that the node decodes."""

TRANSACTION_RECORDS: Final[tuple[type[MetadataRecord], ...]] = (
    messages.BeginTransactionRecord,
    messages.EndTransactionRecord,
    messages.AbortTransactionRecord,
)
"""Consumed by `transactions.py`, which decides which rows are folded."""

IGNORED_RECORDS: Final[Mapping[type[MetadataRecord], str]] = {
    messages.NoOpRecord: "an idle controller writes it to advance the log end offset",
    messages.ZkMigrationStateRecord: "the migration from ZooKeeper ended before the releases that Ottla supports",
}
"""Record types without effect on the state, with the reason."""


def supported_versions() -> dict[type[MetadataRecord], VersionBounds]:
    """Return every supported record type with its versions."""
    decoded = (*REGISTRY_RECORDS, *TRANSACTION_RECORDS, *IGNORED_RECORDS)
    return {**TOPIC_RECORDS, **{each: VersionBounds(each.MIN_VERSION, each.MAX_VERSION) for each in decoded}}

"""The levels of `metadata.version` and their effects on records and rules.

A FeatureLevelRecord finalizes a level for the whole cluster; writers use only what the level supports. Levels below
3.3-IV3 are not usable with Kafka 4.x and not listed.
"""

from enum import IntEnum

METADATA_VERSION = "metadata.version"


class MetadataVersion(IntEnum):
    """A finalized level; the value is that of FeatureLevelRecord."""

    IV_3_3_3 = 7
    IV_3_4_0 = 8
    IV_3_5_0 = 9
    IV_3_5_1 = 10
    IV_3_5_2 = 11
    IV_3_6_0 = 12
    IV_3_6_1 = 13
    IV_3_6_2 = 14
    IV_3_7_0 = 15
    IV_3_7_1 = 16
    IV_3_7_2 = 17
    IV_3_7_3 = 18
    IV_3_7_4 = 19
    IV_3_8_0 = 20
    IV_3_9_0 = 21
    IV_4_0_0 = 22
    IV_4_0_1 = 23
    IV_4_0_2 = 24
    IV_4_0_3 = 25
    IV_4_1_0 = 26
    IV_4_1_1 = 27
    IV_4_2_0 = 28
    IV_4_2_1 = 29

    @property
    def release(self) -> str:
        """Kafka's name of the level, such as `4.2-IV1`."""
        major, minor, step = self.name.removeprefix("IV_").split("_")
        return f"{major}.{minor}-IV{step}"

    @property
    def changes_records(self) -> bool:
        """Whether records or their meaning changed at this level, so that a downgrade below it loses metadata."""
        return self in _CHANGING_RECORDS

    @property
    def register_broker_record_version(self) -> int:
        """The version of RegisterBrokerRecord: 2 adds a migration flag, 3 the log directories (KIP-858)."""
        if self.supports_directories:
            return 3
        return 2 if self >= MetadataVersion.IV_3_4_0 else 1

    @property
    def partition_record_version(self) -> int:
        """The version of PartitionRecord and PartitionChangeRecord: 1 adds directories, 2 ELR (KIP-858, KIP-966)."""
        if self >= MetadataVersion.IV_4_0_1:
            return 2
        return 1 if self.supports_directories else 0

    @property
    def supports_scram(self) -> bool:
        return self >= MetadataVersion.IV_3_5_2

    @property
    def bumps_leader_epoch_on_isr_shrink(self) -> bool:
        return self < MetadataVersion.IV_3_6_0

    @property
    def supports_transactions(self) -> bool:
        """Whether several batches may form one change (KIP-868)."""
        return self >= MetadataVersion.IV_3_6_1

    @property
    def supports_delegation_tokens(self) -> bool:
        return self >= MetadataVersion.IV_3_6_2

    @property
    def supports_controller_registration(self) -> bool:
        return self >= MetadataVersion.IV_3_7_0

    @property
    def supports_directories(self) -> bool:
        """Whether brokers register log directories and partitions name them (KIP-858)."""
        return self >= MetadataVersion.IV_3_7_2


_CHANGING_RECORDS = frozenset(
    {
        MetadataVersion.IV_3_3_3,
        MetadataVersion.IV_3_4_0,
        MetadataVersion.IV_3_5_2,
        MetadataVersion.IV_3_6_1,
        MetadataVersion.IV_3_6_2,
        MetadataVersion.IV_3_7_0,
        MetadataVersion.IV_3_7_2,
        MetadataVersion.IV_4_0_1,
    }
)
MINIMUM_METADATA_VERSION = MetadataVersion.IV_3_3_3
LATEST_METADATA_VERSION = MetadataVersion.IV_4_2_1

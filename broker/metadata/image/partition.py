"""The registration of a partition: replicas, in-sync set, leader and the two epochs, as records state them.

`partition_changes.py` decides changes; this module holds the value and the effect of a record on it.
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.records import VersionedRecord
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord
from protocol.primitives import Uuid

NO_LEADER: Final = BrokerId(-1)
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_STATE_CHANGE: Final = -1

# Reserved directory ids (KIP-858); ids below 100 are reserved.
MIGRATING_DIRECTORY: Final = Uuid(bytes(16))
UNASSIGNED_DIRECTORY: Final = Uuid(bytes(15) + b"\x01")
LOST_DIRECTORY: Final = Uuid(bytes(15) + b"\x02")
RESERVED_DIRECTORY_COUNT: Final = 100

SHARED_MAX: Final = 16_384
"""Limit of the lists that partitions share: most clusters have far fewer, and clusters with more would save little."""


def is_reserved_directory(directory: Uuid) -> bool:
    """Whether a directory id is reserved, so that no real directory may have it."""
    return int.from_bytes(directory, "big") < RESERVED_DIRECTORY_COUNT


class LeaderRecoveryState(IntEnum):
    """Whether the leader was in sync, or must recover first after an unclean election (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class PartitionRegistration(NamedTuple):
    """A partition as the metadata log states it.

    `directories` is parallel to `replicas`, or empty if the record had none. `leader` is a broker id or -1.
    `leader_epoch` grows with every election, `partition_epoch` with every change.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED

    @property
    def has_leader(self) -> bool:
        return self.leader >= 0

    @property
    def preferred_replica(self) -> BrokerId:
        """The first replica, -1 without replicas."""
        return BrokerId(self.replicas[0]) if self.replicas else NO_LEADER

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.preferred_replica

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    @property
    def has_elr(self) -> bool:
        """Whether there are eligible or last known leader replicas."""
        return bool(self.elr or self.last_known_elr)

    def directory_of(self, replica: int) -> Uuid:
        """Return the log directory of this replica. Raises KeyError if the broker is not a replica."""
        if replica not in self.replicas:
            raise KeyError(replica)
        return self.directories[self.replicas.index(replica)] if self.directories else MIGRATING_DIRECTORY

    def merge(self, change: PartitionChangeRecord) -> "PartitionRegistration":
        """Return the registration after `change`.

        Every change adds one to the partition epoch. The leader epoch grows whenever the record names a leader, even
        the present one, which distinguishes an election from an update.
        """
        replicas = self.replicas if change.replicas is None else shared_ids(tuple(change.replicas))
        if change.directories is not None:
            directories = shared_directories(tuple(change.directories))
        elif change.replicas is None or replicas == self.replicas:
            directories = self.directories
        else:  # written at a level without directories
            directories = tuple(self.directory_of(r) if r in self.replicas else UNASSIGNED_DIRECTORY for r in replicas)
        elects = change.leader != NO_LEADER_CHANGE
        recovery = change.leader_recovery_state
        return PartitionRegistration(  # positional for speed: removing a broker changes tens of thousands
            replicas,
            self.isr if change.isr is None else shared_ids(tuple(change.isr)),
            BrokerId(change.leader) if elects else self.leader,
            LeaderEpoch(self.leader_epoch + elects),
            self.partition_epoch + 1,
            directories,
            _replaced(self.removing_replicas, change.removing_replicas),
            _replaced(self.adding_replicas, change.adding_replicas),
            _replaced(self.elr, change.eligible_leader_replicas),
            _replaced(self.last_known_elr, change.last_known_elr),
            self.leader_recovery_state if recovery == NO_RECOVERY_STATE_CHANGE else LeaderRecoveryState(recovery),
        )

    def without_elr(self) -> "PartitionRegistration":
        """Return the registration without ELR, which like any change increments the partition epoch."""
        if not self.has_elr:
            return self
        return self._replace(elr=(), last_known_elr=(), partition_epoch=self.partition_epoch + 1)

    @classmethod
    def from_record(cls, record: PartitionRecord) -> "PartitionRegistration":
        """Return the registration that a PartitionRecord states."""
        return cls(
            replicas=shared_ids(tuple(record.replicas)),
            isr=shared_ids(tuple(record.isr)),
            leader=BrokerId(record.leader),
            leader_epoch=LeaderEpoch(record.leader_epoch),
            partition_epoch=record.partition_epoch,
            directories=shared_directories(tuple(record.directories)),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader_recovery_state=LeaderRecoveryState(record.leader_recovery_state),
        )

    def to_record(self, topic_id: Uuid, partition: int, version: MetadataVersion) -> VersionedRecord:
        """Return the PartitionRecord of this registration at a metadata.version, the inverse of `from_record`."""
        record_version = version.partition_record_version
        record = PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        if record_version >= 1:
            record.directories = list(self.directories or (MIGRATING_DIRECTORY,) * len(self.replicas))
        if record_version >= 2:  # null and empty are equivalent; writers never use the empty list
            record.eligible_leader_replicas = list(self.elr) or None
            record.last_known_elr = list(self.last_known_elr) or None
        return VersionedRecord(record, record_version)


def _replaced(old: tuple[int, ...], new: Sequence[int] | None) -> tuple[int, ...]:
    return old if new is None else tuple(new)


@lru_cache(maxsize=SHARED_MAX)
def shared_ids(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Return one object for equal lists of broker ids: a million partitions take a third less memory."""
    return ids


@lru_cache(maxsize=SHARED_MAX)
def shared_directories(ids: tuple[Uuid, ...]) -> tuple[Uuid, ...]:
    """Return one object for equal lists of directory ids."""
    return ids

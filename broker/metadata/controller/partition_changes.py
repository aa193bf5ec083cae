"""Changes of a partition's leader, in-sync set and replicas; the only place that elects leaders.

Every change sets its targets on a `PartitionChange` and takes the record from `build`. The order in `build` matters:
completing a reassignment and the eligible-leader rules of KIP-966 both decide which replicas may lead, and the elected
leader and the removed replicas decide whether the leader epoch grows.
"""

from collections.abc import Callable, Collection, Sequence
from enum import Enum, auto
from typing import NamedTuple

from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.partition import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    LeaderRecoveryState,
    PartitionRegistration,
)
from broker.metadata.image.records import VersionedRecord
from protocol.ids import BrokerId
from protocol.messages.metadata_records import PartitionChangeRecord
from protocol.primitives import Uuid


class Election(Enum):
    """The permitted leaders: the preferred replica, any in-sync replica, or any replica at the risk of data loss."""

    PREFERRED = auto()
    ONLINE = auto()
    UNCLEAN = auto()


class Elected(NamedTuple):
    """The outcome of an election; an `unclean` leader may lack acknowledged records."""

    leader: BrokerId
    unclean: bool = False


class ElectionRules(NamedTuple):
    """The cluster-wide rules of elections."""

    version: MetadataVersion
    elr_enabled: bool


class PartitionChange:
    """A change of one partition: set targets, then call `build`.

    `is_acceptable(broker)` returns whether a broker may lead: registered, active, its directory online. `min_isr` is
    the topic's `min.insync.replicas`. `directory_for(broker)` returns the directory of a new replica.
    """

    def __init__(
        self,
        registration: PartitionRegistration,
        *,
        topic_id: Uuid,
        partition: int,
        rules: ElectionRules,
        min_isr: int,
        is_acceptable: Callable[[int], bool],
        directory_for: Callable[[int], Uuid],
    ) -> None:
        self._before = registration
        self._topic_id = topic_id
        self._partition = partition
        self._rules = rules
        self._min_isr = min_isr
        self._is_acceptable = is_acceptable
        self._directory_for = directory_for
        self._elr = registration.elr
        self._moved: dict[int, Uuid] = {}
        self.election = Election.ONLINE
        self.isr: tuple[int, ...] = registration.isr
        self.replicas: tuple[int, ...] = registration.replicas
        self.removing: tuple[int, ...] = registration.removing_replicas
        self.adding: tuple[int, ...] = registration.adding_replicas
        self.recovery_state = registration.leader_recovery_state
        self.unclean_shutdown_replicas: Collection[int] = ()

    def move_replica(self, broker: int, directory: Uuid) -> None:
        """Set the directory of a broker's replica."""
        self._moved[broker] = directory

    def build(self) -> VersionedRecord | None:
        """Return the record of the change, None without a change."""
        record = PartitionChangeRecord(topic_id=self._topic_id, partition_id=self._partition)
        self._complete_reassignment()
        self._recompute_elr()
        self._elect(record)
        self._bump_leader_epoch_for_lost_replicas(record)
        self._write_elr(record)
        self._write_isr(record)
        self._bump_leader_epoch_for_isr_shrink(record)
        self._write_last_known_leader(record)
        self._write_assignment(record)
        if self.recovery_state != self._before.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        if _is_empty(record):
            return None
        return VersionedRecord(record, self._rules.version.partition_record_version)

    def _complete_reassignment(self) -> None:
        """Complete a reassignment once every remaining replica is in sync: drop the removed replicas."""
        if not self.removing and not self.adding:
            return
        staying = _without(self.replicas, self.removing)
        in_sync = _without(self.isr, self.removing)
        if in_sync and set(staying) <= set(in_sync):
            self.replicas, self.isr = staying, in_sync
            self.removing = self.adding = ()

    def _recompute_elr(self) -> None:
        """Keep former in-sync replicas eligible while the in-sync set is below the minimum; clear the list above it."""
        if not self._rules.elr_enabled:
            return
        if len(self.isr) >= min(self._min_isr, len(self.replicas)):
            self._elr = ()
            return
        excluded = {*self.isr, *self.unclean_shutdown_replicas}
        candidates = dict.fromkeys((*self._before.elr, *self._before.isr))
        self._elr = tuple(r for r in candidates if r not in excluded and r in self.replicas)

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, unclean = self._choose_leader()
        if leader == self._before.leader:
            return
        record.leader = leader
        if unclean:
            self.isr = (leader,)
            self._elr = ()
            self.recovery_state = LeaderRecoveryState.RECOVERING
        elif leader != NO_LEADER and leader not in self.isr:  # an eligible leader replica, which has all records
            self.isr = (leader,)
            self._elr = _without(self._elr, (leader,))

    def _choose_leader(self) -> Elected:
        if self.election is Election.PREFERRED and self.replicas and self._is_valid(self.replicas[0]):
            return Elected(BrokerId(self.replicas[0]))
        for replica in (self._before.leader, *self.replicas):
            if self._is_valid(replica):
                return Elected(BrokerId(replica))
        last_known = self._last_known_leader()
        if last_known is not None:
            return Elected(last_known, unclean=True)
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._is_acceptable(replica):
                    return Elected(BrokerId(replica), unclean=True)
        return Elected(NO_LEADER)

    def _is_valid(self, replica: int) -> bool:
        if replica == NO_LEADER:
            return False
        may_lead = replica in self.isr or (self._rules.elr_enabled and not self.isr and replica in self._elr)
        return may_lead and self._is_acceptable(replica)

    def _last_known_leader(self) -> BrokerId | None:
        """Return the last leader of a partition without in-sync and eligible replicas (KIP-966)."""
        known = self._before.last_known_elr
        if not self._rules.elr_enabled or self.isr or self._elr or len(known) != 1:
            return None
        return BrokerId(known[0]) if known[0] in self.replicas and self._is_acceptable(known[0]) else None

    def _bump_leader_epoch_for_lost_replicas(self, record: PartitionChangeRecord) -> None:
        """Start a new leader epoch when replicas are removed, so that they learn of it even with the same leader."""
        if record.leader == NO_LEADER_CHANGE and not set(self._before.replicas) <= set(self.replicas):
            record.leader = self._before.leader

    def _bump_leader_epoch_for_isr_shrink(self, record: PartitionChangeRecord) -> None:
        shrank = record.isr is not None and not set(self._before.isr) <= set(record.isr)
        if record.leader == NO_LEADER_CHANGE and shrank and self._rules.version.bumps_leader_epoch_on_isr_shrink:
            record.leader = self._before.leader

    def _write_elr(self, record: PartitionChangeRecord) -> None:
        if self._rules.elr_enabled and set(self._elr) != set(self._before.elr):
            record.eligible_leader_replicas = list(self._elr)

    def _write_isr(self, record: PartitionChangeRecord) -> None:
        """Write the in-sync set. Without ELR the last members are kept as the only evidence of the data."""
        if self.isr != self._before.isr and (self.isr or self._rules.elr_enabled):
            record.isr = list(self.isr)

    def _write_last_known_leader(self, record: PartitionChangeRecord) -> None:
        """Record the last leader as soon as there is none: all in-sync replicas may leave before an election."""
        if not self._rules.elr_enabled:
            return
        before = self._before
        if record.leader == NO_LEADER and before.has_leader and not before.last_known_elr:
            record.last_known_elr = [before.leader]
        elif record.leader >= 0 and before.last_known_elr:
            record.last_known_elr = []

    def _write_assignment(self, record: PartitionChangeRecord) -> None:
        before = self._before
        if self.replicas and self.replicas != before.replicas:
            record.replicas = list(self.replicas)
        if self.removing != before.removing_replicas:
            record.removing_replicas = list(self.removing)
        if self.adding != before.adding_replicas:
            record.adding_replicas = list(self.adding)
        if not self._rules.version.supports_directories:
            return
        if self._moved or self.replicas != before.replicas or len(before.directories) != len(before.replicas):
            known = dict(zip(before.replicas, before.directories, strict=False)) | self._moved
            directories = tuple(known[r] if r in known else self._directory_for(r) for r in self.replicas)
            if directories != before.directories:
                record.directories = list(directories)


def _is_empty(record: PartitionChangeRecord) -> bool:
    """Whether a record changes nothing. Field checks are cheaper than a comparison, once per affected partition."""
    return (
        record.isr is None
        and record.leader == NO_LEADER_CHANGE
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )


def _without(replicas: Sequence[int], excluded: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in excluded)

"""Changes of a led partition's in-sync replicas: proposals to the controller, their outcomes, and the metrics.

`broker.replication.leader` decides on changes; `alter_partition_manager.py` sends the proposals.
"""

from typing import TYPE_CHECKING

from broker.clock import Clock
from broker.logs import EventLog
from broker.metrics.replicas import NOT_HOSTED, ReplicaStanding
from broker.replication.isr import PendingExpand, PendingIsr
from broker.replication.isr_changes import Confirmed, Outcome, Refused
from broker.replication.leader import LeaderRole
from broker.runtime.partitions.partition_services import BrokerView, RoleEvents
from protocol.ids import BrokerEpoch, BrokerId
from protocol.primitives import Uuid

if TYPE_CHECKING:
    from broker.runtime.partitions.partition import Partition

_log = EventLog("broker.partitions")


class IsrUpdater:
    """Implements IsrProposer for one partition."""

    __slots__ = ("_brokers", "_clock", "_events", "_partition", "_standing", "index", "topic_id")

    def __init__(self, partition: "Partition", clock: Clock, brokers: BrokerView, events: RoleEvents) -> None:
        self.topic_id: Uuid = partition.topic_id
        self.index: int = partition.index
        self._partition = partition
        self._clock = clock
        self._brokers = brokers
        self._events = events
        self._standing = NOT_HOSTED

    def is_in_sync(self, broker_id: BrokerId) -> bool:
        """Whether this broker leads and the controller has confirmed a follower as an ISR member."""
        role = self._partition.role
        return isinstance(role, LeaderRole) and broker_id in role.isr.committed

    def is_possible_member(self, broker_id: BrokerId) -> bool:
        """Whether this broker leads, and a follower is a member of the ISR or proposed as one."""
        role = self._partition.role
        return isinstance(role, LeaderRole) and broker_id in role.isr.maximal

    def may_join(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Whether the metadata allows a broker to join an ISR."""
        return self._brokers.is_isr_eligible(broker_id, broker_epoch)

    def maybe_expand(self, broker_id: BrokerId) -> None:
        """Propose to add a follower if it has caught up and is eligible. Raises KafkaError if another broker leads."""
        role, high_watermark = self._partition.leader_role, self._partition.log.high_watermark
        self._propose(role, role.propose_expand(broker_id, high_watermark, self._brokers.is_isr_eligible))

    def shrink(self) -> None:
        """Propose to remove the ISR members that have lagged for longer than `replica.lag.time.max.ms`.

        The high watermark may move: a lagging follower that could have joined does not hold it back any more.
        """
        partition, role = self._partition, self._partition.role
        if isinstance(role, LeaderRole):
            now_ms, lag_time_max_ms = int(self._clock.monotonic_ms()), self._brokers.lag_time_max_ms
            self._propose(role, role.propose_shrink(partition.log.log_end_offset, now_ms, lag_time_max_ms))
            partition.move_high_watermark()

    def _propose(self, role: LeaderRole, pending: PendingIsr | None) -> None:
        if pending is None:
            return
        partition, brokers = self._partition, self._brokers
        proposal = role.proposal(pending, brokers.registered_epoch(brokers.broker_id))
        _log.info(
            "proposing to expand the ISR" if isinstance(pending, PendingExpand) else "proposing to shrink the ISR",
            partition=partition,
            committed=sorted(pending.committed),
            proposed=sorted(pending.proposed),
            high_watermark=partition.log.high_watermark,
            end=partition.log.log_end_offset,
        )
        self._events.propose_isr(self, proposal)

    def on_isr_outcome(self, outcome: Outcome) -> None:
        """Apply the controller's answer to a proposal; ignore the answer if the ISR state has changed since."""
        role = self._partition.role
        if not isinstance(role, LeaderRole) or role.isr is not outcome.proposal.pending:
            return
        if isinstance(outcome, Confirmed):
            self._confirm(role, outcome)
            return
        if outcome.error is not None:
            self._events.figures.failed_isr_updates += 1
            _log.warning("the ISR was not changed", partition=self._partition, reason=outcome.error.name)
        if isinstance(outcome, Refused):
            role.on_isr_refused()
            self._partition.move_high_watermark()
            self._partition.log_end.fire()  # the next fetch of the follower proposes it again

    def _confirm(self, role: LeaderRole, outcome: Confirmed) -> None:
        possible = role.isr.maximal
        if not role.on_isr_confirmed(outcome.leader_epoch, outcome.partition_epoch, outcome.isr):
            return
        partition = self._partition
        self._count_change(outcome.proposal.pending)
        _log.info("the ISR has changed", partition=partition, isr=sorted(outcome.isr))
        self.update_metrics()
        partition.move_high_watermark()
        if not possible <= outcome.isr:
            partition.log_end.fire()  # the next fetch of a follower that has left reports its position

    def on_role_change(self, before: LeaderRole) -> None:
        """Withdraw the former leader role's proposal if it is void."""
        role = self._partition.role
        if not isinstance(before.isr, PendingIsr) or (isinstance(role, LeaderRole) and role.isr is before.isr):
            return
        self._events.withdraw_isr(self)
        if isinstance(role, LeaderRole) and role.isr.committed == before.isr.proposed:
            self._count_change(before.isr)  # the metadata arrived before the controller's answer

    def withdraw(self) -> None:
        """Drop any proposal and leave the metrics: the partition is no longer hosted."""
        self._events.withdraw_isr(self)
        self._set_standing(NOT_HOSTED)

    def _count_change(self, made: PendingIsr) -> None:
        figures = self._events.figures
        if isinstance(made, PendingExpand):
            figures.isr_expands += 1
        else:
            figures.isr_shrinks += 1

    def update_metrics(self) -> None:
        """Count the partition as led, under-replicated, under or at `min.insync.replicas`, and so on."""
        role = self._partition.role
        if isinstance(role, LeaderRole):
            min_insync_replicas = self._partition.log.config.min_insync_replicas
            self._set_standing(ReplicaStanding(True, True, *role.standing(min_insync_replicas)))
        else:
            self._set_standing(ReplicaStanding(True))

    def _set_standing(self, now: ReplicaStanding) -> None:
        self._events.figures.move(self._standing, now)
        self._standing = now

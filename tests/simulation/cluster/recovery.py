"""Recovery after the faults: what keeps a cluster from being settled."""

from typing import TYPE_CHECKING, Final

from broker.metadata.image.partition import PartitionRegistration
from tests.simulation.cluster.replica import MetadataReplica
from tests.simulation.cluster.tier_checker import TIERED_NAME
from tests.simulation.cluster.tier_consumer import TieredConsumer
from tests.simulation.quorum.disk import METADATA_DIRECTORY
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.history import History

if TYPE_CHECKING:
    from tests.simulation.cluster.simulation import ClusterSimulator

_LOG_SLACK_BYTES: Final = 4_000


class Recovery:
    """Judges the recovery of a cluster; `begin` marks the end of the faults."""

    def __init__(self, simulation: "ClusterSimulator") -> None:
        self._simulation = simulation
        self._goal = 0

    def begin(self) -> None:
        """Require that something is committed after the present end of the metadata log."""
        self._goal = self._simulation.checker.committed.end

    def unsettled_reason(self) -> str | None:
        return (
            self._unsettled_metadata()
            or self._unsettled_applications()
            or self._unsettled_data()
            or self._unsettled_tier()
        )

    def _unsettled_applications(self) -> str | None:
        applications = self._simulation.applications
        return None if applications is None else applications.unsettled_reason()

    def _unsettled_tier(self) -> str | None:
        if self._simulation.checker.tier is None:
            return None
        return self._simulation.checker.tier.unsettled_reason(
            self._simulation.registration(TIERED_NAME), self._simulation.dead
        )

    def _unsettled_metadata(self) -> str | None:
        active = self._simulation.active()
        if active is None:
            return "no controller is active"
        leader, committed = active.replica, self._simulation.checker.committed
        if committed.end <= self._goal:
            return f"nothing is committed since {self._goal}"
        for node_id in self._simulation.quorum_nodes:
            replica = self._simulation.replica(node_id)
            if node_id in self._simulation.dead:
                continue
            if replica is None:
                return f"node {node_id} is not up"
            if replica.quorum.leader != leader.quorum.leader:
                return f"node {node_id} follows {replica.quorum.leader} instead of {leader.quorum.leader}"
            if replica.controller.last_offset < self._goal:
                return (
                    f"node {node_id} has applied everything below {replica.controller.last_offset + 1} of {self._goal}"
                )
        return self._untrimmed(leader) if self._simulation.is_schedule_over else "a request is pending"

    def _untrimmed(self, leader: MetadataReplica) -> str | None:
        """Return why the metadata log is too long, in a history whose settings lead to snapshots at regular times."""
        scenario = self._simulation.metadata_scenario
        if scenario.min_changed_ratio > 0 and not scenario.snapshot_interval_ms:
            return None
        size = sum(len(segment.content) for segment in leader.node.disk.segments(METADATA_DIRECTORY))
        limit = scenario.retention_bytes + 4 * scenario.snapshot_bytes + 2 * scenario.segment_bytes + _LOG_SLACK_BYTES
        return None if size <= limit else f"the metadata log of {leader.node.id} has {size} bytes, the limit is {limit}"

    def _unsettled_data(self) -> str | None:
        lost: set[ReplicaName] = set()
        for name, history in self._simulation.checker.data.histories.items():
            registration = self._simulation.registration(name)
            assert registration is not None
            if {*registration.isr, *registration.elr} <= self._simulation.dead and registration.leader < 0:
                lost.add(name)
                continue
            reason = self._unsettled_reason_of(name, history, registration)
            if reason is not None:
                return f"{name} {reason}"
        tiered = self._simulation.registration(TIERED_NAME)
        if tiered is not None and {*tiered.isr, *tiered.elr} <= self._simulation.dead and tiered.leader < 0:
            lost.add(TIERED_NAME)
        for producer in self._simulation.producers:
            if producer.name in lost:
                continue
            if producer.name not in self._simulation.checker.data.acknowledged:
                return f"producer {producer.process.node_id} of {producer.name} has no acknowledgement"
            if producer.pending_count:
                return f"producer {producer.process.node_id} of {producer.name} has {producer.pending_count} pending"
        for consumer in self._simulation.consumers:
            end = self._end_of(consumer.name)
            if consumer.position < end and consumer.name not in lost:
                return f"consumer {consumer.process.node_id} of {consumer.name} is at {consumer.position} of {end}"
            if isinstance(consumer, TieredConsumer) and consumer.owes_look_ups and consumer.name not in lost:
                return f"consumer {consumer.process.node_id} of {consumer.name} has no answers to look-ups by time"
        return None

    def _end_of(self, name: ReplicaName) -> int:
        """Return the end of the committed records of a partition, as consumers must reach it."""
        history, tier = self._simulation.checker.data.histories.get(name), self._simulation.checker.tier
        if history is not None or tier is None:
            return self._simulation.checker.data.histories[name].end
        registration = self._simulation.registration(name)
        return 0 if registration is None else tier.committed_end(registration.leader)

    def _unsettled_reason_of(
        self, name: ReplicaName, history: History, registration: PartitionRegistration
    ) -> str | None:
        live = set(registration.replicas) - self._simulation.dead
        if set(registration.isr) != live:
            return f"has the ISR {registration.isr} of {registration.replicas}, leader {registration.leader}"
        for node_id in sorted(live):
            node = self._simulation.nodes[node_id]
            partition = None if node.broker is None else node.broker.partition(*name)
            if partition is None:
                return f"is not hosted on {node_id}"
            log = partition.log
            bounds = (log.high_watermark, log.log_end_offset)
            if bounds != (history.end, history.end):
                return f"has high watermark and end {bounds} on {node_id}, and {history.end} are committed"
            if partition.leader_epoch != registration.leader_epoch or partition.leader_id != registration.leader:
                return f"is led by {partition.leader_id} in {partition.leader_epoch} for {node_id}"
            if self._simulation.checker.data.first_missing(node, history) is not None:
                return f"is incomplete on {node_id}"
            self._simulation.checker.data.check_served(node, history, log.log_start_offset)
        return None

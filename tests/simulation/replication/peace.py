"""The state of a cluster once faults have ended: every partition that has an eligible live replica is led.

With some seeds a minority of the brokers stays dead. Then the in-sync set of each led partition is that of its live
replicas, equal and complete; producers have nothing pending where the live replicas satisfy `min.insync.replicas`, and
consumers have read to the end. No directory of a deleted topic is left. A partition of which only dead brokers are
eligible has no leader. Its reassignment can then neither end nor be cancelled while no original replica is in sync, as
in Kafka.
"""

from collections.abc import Callable, Iterable, Mapping

from broker.metadata.image.partition import NO_LEADER, PartitionRegistration
from tests.simulation.replication.broker import Node
from tests.simulation.replication.checker import Checker
from tests.simulation.replication.consumers import Consumer
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.history import History
from tests.simulation.replication.producers import Producer

Registered = Callable[[ReplicaName], PartitionRegistration | None]


class Peace:
    """Judge of the end of a history. `dead` are the brokers that never return."""

    def __init__(self, checker: Checker, nodes: Mapping[int, Node]) -> None:
        self.dead: set[int] = set()
        self._checker = checker
        self._nodes = nodes

    def unsettled_reason(
        self, producers: Iterable[Producer], consumers: Iterable[Consumer], registered: Registered
    ) -> str | None:
        """Return the first reason why the system has not settled; None if it has."""
        states: dict[ReplicaName, PartitionRegistration] = {}
        for name in self._checker.histories:
            registration = registered(name)
            if registration is None:
                return f"{name} does not exist"
            states[name] = registration
        for producer in producers:
            if producer.pending_count and self._is_writable(states[producer.name], producer.name):
                return f"producer {producer.process.node_id} of {producer.name} has {producer.pending_count} pending"
        for name, history in self._checker.histories.items():
            reason = self._reason_of(name, history, states[name])
            if reason is not None:
                return f"{name} {reason}"
        for node in self._nodes.values():
            if node.is_up and (left := node.disk.deleted_directories()):
                return f"node {node.id} has {left}"
        for consumer in consumers:
            end = self._checker.histories[consumer.name].end
            if consumer.position < end and self._is_writable(states[consumer.name], consumer.name):
                return f"consumer {consumer.process.node_id} of {consumer.name} is at {consumer.position} of {end}"
        return None

    def _live(self, replicas: Iterable[int]) -> set[int]:
        return set(replicas) - self.dead

    def _is_offline(self, registration: PartitionRegistration, name: ReplicaName) -> bool:
        """Whether a partition rightly has no leader: only dead brokers are eligible."""
        eligible = {*registration.isr, *registration.elr}
        if not eligible:
            eligible = set(registration.last_known_elr)
        if not self._checker.histories[name].is_clean:
            eligible |= set(registration.replicas)
        return registration.leader == NO_LEADER and not self._live(eligible)

    def _is_writable(self, registration: PartitionRegistration, name: ReplicaName) -> bool:
        minimum = 2 if self._checker.histories[name].is_clean else 1
        live = len(self._live(registration.replicas))
        return live >= min(minimum, len(registration.replicas)) and not self._is_offline(registration, name)

    def _reason_of(self, name: ReplicaName, history: History, registration: PartitionRegistration) -> str | None:
        is_offline = self._is_offline(registration, name)
        if registration.is_reassigning and not (is_offline and not _may_be_cancelled(registration, history)):
            return "is being reassigned"
        if is_offline:
            return None
        live = self._live(registration.replicas)
        if registration.leader == NO_LEADER or set(registration.isr) != live:
            return f"has the ISR {registration.isr} of live {sorted(live)}, leader {registration.leader}"
        is_writable = self._is_writable(registration, name)
        for node_id in sorted(live):
            reason = self._reason_at(self._nodes[node_id], name, history, registration, is_writable=is_writable)
            if reason is not None:
                return reason
        return None

    def _reason_at(
        self, node: Node, name: ReplicaName, history: History, registration: PartitionRegistration, *, is_writable: bool
    ) -> str | None:
        partition = None if node.broker is None else node.broker.partition(*name)
        if partition is None:
            return f"is not hosted on {node.id}"
        log = partition.log
        bounds = (log.high_watermark, log.log_end_offset)
        if is_writable and bounds != (history.end, history.end):
            return f"has high watermark and end {bounds} on {node.id}, and {history.end} are committed"
        if partition.leader_epoch != registration.leader_epoch or partition.leader_id != registration.leader:
            return f"is led by {partition.leader_id} in {partition.leader_epoch} for {node.id}"
        if self._checker.first_missing(node, history) is not None:
            return f"is incomplete on {node.id}"
        self._checker.check_served(node, history, log.log_start_offset)
        return None


def _may_be_cancelled(registration: PartitionRegistration, history: History) -> bool:
    """Whether the controller accepts the cancellation of a reassignment: an original replica is in sync, or the topic
    allows unclean elections.
    """
    return not history.is_clean or not set(registration.isr) <= set(registration.adding_replicas)

"""Invariants of broker sessions and of requests with old epochs, checked at each controller."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.metadata.image.cluster_image import BrokerRegistration
from broker.metadata.image.metadata_image import MetadataImage
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest
from tests.simulation.cluster.replica import MetadataReplica
from tests.simulation.replication.broker import Node
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.cluster.checker import ClusterChecker
    from tests.simulation.cluster.watch import EndedProcesses

_SLACK_MS: Final = 20.0
"""Time for the timer and the records of a fencing."""


class _Reign:
    """One term of an active controller: last contacts by broker, in its monotonic time, and its latest image."""

    def __init__(self, epoch: int, now_ms: float, image: MetadataImage) -> None:
        self.epoch = epoch
        self.image = image
        self.began_ms = now_ms
        self.contacts: dict[int, float] = {}
        self.leaving: set[tuple[int, int]] = set()
        """Brokers, with their epochs, that asked to shut down."""
        self.starting: set[tuple[int, int]] = set()
        """Brokers, with their epochs, whose last heartbeat asked to be fenced."""

    def contact_ms(self, broker_id: int) -> float:
        return max(self.contacts.get(broker_id, self.began_ms), self.began_ms)


class SessionChecker:
    """The witness of heartbeats and registrations at all controllers."""

    def __init__(self, checker: "ClusterChecker", nodes: Mapping[int, Node], timeout_ms: int) -> None:
        self._checker = checker
        self._nodes = nodes
        self._timeout_ms = timeout_ms
        self._reigns: dict[Process, _Reign] = {}
        self.ends: EndedProcesses | None = None

    def on_stop(self, process: Process) -> None:
        self._reigns.pop(process, None)

    # Events of controllers

    def on_event(self, replica: MetadataReplica) -> None:
        """Check an active controller after an event of its own."""
        process, image = replica.process, replica.controller.image
        if not replica.driver.is_active:
            self._reigns.pop(process, None)
            return
        reign, now_ms = self._reign(replica), process.monotonic_ms()
        before, reign.image = reign.image, image
        for broker in image.brokers.all():
            known = before.brokers.get(broker.id)
            if known is None or known.epoch != broker.epoch or (known.fenced and not broker.fenced):
                reign.contacts[broker.id] = now_ms
            elif broker.fenced and not known.fenced:
                self._check_fencing(replica, reign, broker, now_ms)
            elif not broker.fenced:
                self._check_silence(replica, reign, broker, now_ms)
            self._check_session(replica, broker)

    def _reign(self, replica: MetadataReplica) -> _Reign:
        epoch, process = replica.quorum.leader.epoch, replica.process
        reign = self._reigns.get(process)
        if reign is None or reign.epoch != epoch:
            reign = self._reigns[process] = _Reign(epoch, process.monotonic_ms(), replica.controller.committed_image)
        return reign

    def _check_fencing(
        self, replica: MetadataReplica, reign: _Reign, broker: BrokerRegistration, now_ms: float
    ) -> None:
        silent_ms = now_ms - reign.contact_ms(broker.id)
        may_fence = (broker.id, broker.epoch) in reign.leaving | reign.starting
        if not may_fence and self.ends is not None and self.ends.is_on and self._has_ended(broker):
            may_fence = True
            self._checker.counts.add("ended processes found", int(silent_ms < self._timeout_ms - 1))
        if not may_fence and silent_ms < self._timeout_ms - 1:
            self._checker.fail(
                "LiveBrokersStayUnfenced",
                f"controller {replica.node.id} fences broker {broker.id} after {silent_ms:.0f} ms without contact",
            )

    def _has_ended(self, broker: BrokerRegistration) -> bool:
        """Whether the process with the broker's epoch does not run any more."""
        running = self._nodes[broker.id].broker
        return running is None or running.lifecycle is None or running.lifecycle.epoch != broker.epoch

    def _check_silence(
        self, replica: MetadataReplica, reign: _Reign, broker: BrokerRegistration, now_ms: float
    ) -> None:
        process = replica.process
        since_stall_ms = process.world.now_ms - process.stalled_until_ms
        silent_ms = now_ms - reign.contact_ms(broker.id)
        if silent_ms > self._timeout_ms + _SLACK_MS and since_stall_ms > _SLACK_MS:
            self._checker.fail(
                "SilentBrokersAreFenced",
                f"controller {replica.node.id} keeps broker {broker.id} unfenced after {silent_ms:.0f} ms of silence",
            )

    def _check_session(self, replica: MetadataReplica, broker: BrokerRegistration) -> None:
        session = replica.controller._state.sessions._sessions.get(broker.id)
        if session is None or session.epoch != broker.epoch or session.fenced != broker.fenced:
            self._checker.fail(
                "ControllerStateIsImage", f"controller {replica.node.id} has the session {session} of {broker}"
            )

    # Requests

    def on_request(self, replica: MetadataReplica, message: object, before: MetadataImage) -> None:
        """Check an accepted request; `before` is the controller's image when it arrived."""
        match message:
            case BrokerHeartbeatRequest():
                self._check_epoch("a heartbeat", before, message.broker_id, message.broker_epoch)
                reign = self._reign(replica)
                reign.contacts[message.broker_id] = replica.process.monotonic_ms()
                sender = (message.broker_id, message.broker_epoch)
                if message.want_shut_down:
                    reign.leaving.add(sender)
                elif not message.want_fence:
                    reign.starting.discard(sender)
                elif not self._is_late(message):
                    reign.starting.add(sender)
            case AssignReplicasToDirsRequest():
                self._check_epoch("an assignment", before, message.broker_id, message.broker_epoch)
            case AlterPartitionRequest():
                self._check_epoch("AlterPartition", before, message.broker_id, message.broker_epoch)
                self._check_partitions(replica, message, before)
            case BrokerRegistrationRequest():
                self._check_registration(replica, message, before)

    def _is_late(self, heartbeat: BrokerHeartbeatRequest) -> bool:
        """Whether the sender of a heartbeat that asks to be fenced asks for the contrary by now."""
        broker = self._nodes[heartbeat.broker_id].broker
        lifecycle = None if broker is None else broker.lifecycle
        return lifecycle is not None and lifecycle.epoch == heartbeat.broker_epoch and not lifecycle._want_fence

    def _check_epoch(self, what: str, image: MetadataImage, broker_id: int, epoch: int) -> None:
        broker = image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            self._fail(f"{what} of broker {broker_id} with epoch {epoch} is accepted; it is {broker}")

    def _check_partitions(
        self, replica: MetadataReplica, message: AlterPartitionRequest, before: MetadataImage
    ) -> None:
        after = replica.controller.image
        for topic in message.topics:
            for each in topic.partitions:
                was = before.topics.partition(topic.topic_id, each.partition_index)
                now = after.topics.partition(topic.topic_id, each.partition_index)
                if was is None or now is was:
                    continue
                if (each.leader_epoch, each.partition_epoch) != (was.leader_epoch, was.partition_epoch):
                    self._fail(f"AlterPartition with {each} is accepted for {was}")

    def _check_registration(
        self, replica: MetadataReplica, message: BrokerRegistrationRequest, before: MetadataImage
    ) -> None:
        """Check a registration: a live broker is replaced only before its first heartbeat to this controller, by a
        process that has its log directories and its endpoints.
        """
        known = before.brokers.get(message.broker_id)
        reign = self._reign(replica)
        if known is None or known.incarnation_id == message.incarnation_id:
            return
        if known.id == replica.node.id and known.id not in reign.contacts:
            return  # the controller's own process replaces the former one
        silent_ms = replica.process.monotonic_ms() - reign.contact_ms(known.id)
        proves_end = bool(set(known.directories) & set(message.log_dirs)) and {
            each.name: (each.host, each.port) for each in message.listeners
        } == {name: (each.host, each.port) for name, each in known.endpoints.items()}
        proves_end = proves_end and known.id not in reign.contacts
        if not known.fenced and silent_ms < self._timeout_ms - 1 and not proves_end:
            self._fail(f"another process registers as broker {known.id}, which is alive: {message}")

    def _fail(self, text: str) -> None:
        self._checker.fail("StaleRequestsAreRefused", text)

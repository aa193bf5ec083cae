"""A broker's process with a real replica of the metadata log, and with a controller on combined nodes."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, cast

from broker.api.serving.context import RequestContext
from broker.metadata.controller.controller import LocalBroker
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.loader import LoaderState, Publication
from broker.metadata.image.metadata_image import MetadataImage
from broker.net.peer import SocketAddress
from broker.quorum.identity import LeaderAndEpoch
from broker.runtime.controller.channel import ChannelTimes, ControllerChannel
from broker.runtime.controller.controller_router import ControllerRouter
from broker.runtime.loop.pending_result import PendingResult
from protocol.ids import BrokerId
from tests.simulation.cluster.acls.access import BrokerAccess
from tests.simulation.cluster.broker_tier import BrokerTier
from tests.simulation.cluster.connections import ControllerWires
from tests.simulation.cluster.controller import ControllerProcess, WitnessedLocalChannel
from tests.simulation.cluster.coordinators.checker import CoordinatorChecker
from tests.simulation.cluster.coordinators.wiring import BrokerCoordinators
from tests.simulation.cluster.disks import StallableIo
from tests.simulation.cluster.replica import MetadataReplica, MetadataSurroundings
from tests.simulation.quorum.node import Node as QuorumNode
from tests.simulation.replication.broker import Broker, Node, Surroundings
from tests.simulation.replication.data_part import DataPart
from tests.simulation.replication.metadata import Feed, MetadataReader
from tests.simulation.replication.network import Call

if TYPE_CHECKING:
    from tests.simulation.cluster.simulation import ClusterSimulator


class ObserverFeed:
    """Starts a broker's replica of the metadata log. Takes the place of the ideal quorum's Feed."""

    held_until_ms = 0.0

    def start(self, reader: MetadataReader) -> LoaderState:
        """Start the replica; its images arrive later, beginning with a whole one."""
        assert isinstance(reader, ClusterBroker)
        reader.start_replica()
        return LoaderState()

    def stop(self) -> None:
        """Do nothing: the replica dies with its process."""

    def as_feed(self) -> Feed:
        return cast(Feed, self)


class Machine(Node):
    """A machine whose broker has another address than its controller."""

    @property
    def endpoint(self) -> SocketAddress:
        return SocketAddress(f"broker-{self.id}", 9000 + self.moves)


class ClusterBroker(Broker):
    """One broker process, with its replica of the metadata log and the product's channels to the controller."""

    def __init__(self, node: Node, quorum_node: QuorumNode, around: "ClusterSimulator", seed: int) -> None:
        super().__init__(node, cast(Surroundings, around), seed)
        scenario = around.scenario
        self.seed = seed
        self._quorum_node = quorum_node
        self._cluster: MetadataSurroundings = around
        self._serve_controller = around.serve_controller
        self._shared_tier = around.tier
        self.stallable_io = StallableIo(
            self.process, self._random, inline_share=scenario.io_inline_share, delay_ms=scenario.io_delay_ms
        )
        self.io = self.stallable_io
        self.replica: MetadataReplica | None = None
        self.tier: BrokerTier | None = None
        self.coordinators: BrokerCoordinators | None = None
        self.coordinator_checker: CoordinatorChecker | None = around.checker.coordinators
        self.access: BrokerAccess | None = None
        self.controller_wires: list[ControllerWires] = []
        """Connections to the controllers."""
        self.on_request: Callable[[ControllerWires, Any], None] | None = None
        """Called after each request to the controllers is sent."""

    def start_replica(self) -> None:
        """Open the metadata log and join the quorum, on a combined node as a controller."""
        random = Random(f"observer {self.seed} {self.node.id} {self.node.starts}")
        disk = self._quorum_node.disk
        disk.is_starting = True
        replica = MetadataReplica(
            self._quorum_node,
            self.process,
            self.io,
            self._cluster,
            random,
            on_fatal=self._on_fatal,
            local_broker=LocalBroker(BrokerId(self.node.id), self.incarnation_id),
        )
        disk.is_starting = False
        replica.driver.add_publisher(_BrokerPublisher(self))
        self.replica = replica
        if self._quorum_node.can_vote:
            controller = ControllerProcess(self.process, self.stallable_io, replica, self._cluster)
            self._serve_controller(self._quorum_node, controller)
        replica.start()

    def _take_up_roles(self, data: DataPart) -> None:
        metadata_scenario = self._cluster.metadata_scenario
        if metadata_scenario.acls:
            self.access = BrokerAccess(
                self._cluster.checker, self.node.id, lambda: self.cache.image, is_open=metadata_scenario.acls_open
            )
            self._add_publisher(self.access)
        self._take_up_tier(data)
        if metadata_scenario.coordinators:
            coordinators = self.coordinators = BrokerCoordinators(self, data)
            data.handlers.update(coordinators.handlers())
            coordinators.start()
            self._add_publisher(coordinators)

    def _close_roles(self, data: DataPart) -> None:
        if self.coordinators is not None:
            self.coordinators.close()
        super()._close_roles(data)

    def serve(self, call: Call) -> "asyncio.Future[Any] | Any":
        access = self.access
        rights = {} if access is None else access.rights(call.message, self._context(call))
        answer = super().serve(call)
        if isinstance(answer, PendingResult):
            answer = _result_of(answer)
        if isinstance(answer, Coroutine):  # also a compiled one, which inspect.iscoroutine refuses
            answer = self.process.create_task(answer)
        if access is not None:
            access.witness(rights, answer)
        return answer

    def _context(self, call: Call) -> RequestContext:
        context = super()._context(call)
        if self.access is not None:
            self.access.admit(context)
        return context

    def _take_up_tier(self, data: DataPart) -> None:
        shared = self._shared_tier
        if shared is None:
            super()._take_up_roles(data)
            return
        random = Random(f"tier {self.seed} {self.node.id} {self.node.starts}")
        tier = self.tier = BrokerTier(shared, self, data, random)
        data.use_remote_reads(tier.reads, tier.offsets, self)
        super()._take_up_roles(data)
        self._add_publisher(tier.manager)
        tier.start(self.process)

    def _on_fatal(self, error: BaseException) -> None:
        assert isinstance(error, Exception), error
        self.around.on_end(self.node, self, error)

    def publish(self, publication: Publication) -> None:
        """Give an image to all publishers of this process; what a role reports until the next image counts."""
        self._publish(publication)
        self._cluster.checker.data.on_broker_event(self.node)

    def controller_path(self, name: str) -> ControllerChannel:
        """Return a channel to the active controller, with a router and connections of its own."""
        replica, scenario = self.replica, self.around.scenario
        assert replica is not None
        is_urgent = name == "membership"
        request_ms = 2 * scenario.session_timeout_ms
        timeout_ms = scenario.heartbeat_interval_ms if is_urgent else request_ms
        connections = ControllerWires(self.around.wires, self.process, name, timeout_ms)
        self.controller_wires.append(connections)
        if self.on_request is not None:
            connections.on_request = self.on_request
        router = ControllerRouter(self.node.id, replica.driver, replica.part.controller, connections)
        replica.quorum.watch_leader(_on_leader_change(router))
        times = ChannelTimes(scenario.heartbeat_interval_ms, scenario.session_timeout_ms, request_ms)
        channel = ControllerChannel(replica.driver, router, times)
        channel._local = WitnessedLocalChannel(replica)
        return channel


async def _result_of(pending: PendingResult[Any]) -> Any:
    return await pending


def _on_leader_change(router: ControllerRouter) -> Callable[[LeaderAndEpoch], None]:
    return lambda _leader: router.on_leader_change()


class _BrokerPublisher:
    """Publishes the replica's images in the broker."""

    def __init__(self, broker: ClusterBroker) -> None:
        self._broker = broker

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._broker.publish(Publication(delta, image))

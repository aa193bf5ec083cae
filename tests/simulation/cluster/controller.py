"""A controller's process, and the requests that brokers and operators send to it."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from broker.runtime.controller.channel import LocalControllerChannel
from broker.runtime.controller.driver import Command
from protocol.errors import KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from tests.simulation.cluster.disks import StallableIo
from tests.simulation.cluster.replica import MetadataReplica, MetadataSurroundings
from tests.simulation.quorum.node import Node as QuorumNode
from tests.simulation.replication.metadata import Refusal, _command, _refused
from tests.simulation.replication.network import Call
from tests.simulation.replication.process import TaskProcess

R = TypeVar("R")
Q = TypeVar("Q")
A = TypeVar("A")


class ControllerProcess:
    """One run of a controller, on a node of its own or beside a broker. Implements the brokers' Server."""

    def __init__(
        self, process: TaskProcess, io: StallableIo, replica: MetadataReplica, around: MetadataSurroundings
    ) -> None:
        self.process = process
        self.io = io
        self.replica = replica
        self._around = around
        self.watch = around.ends.watch(replica, process)

    def serve(self, call: Call) -> "asyncio.Future[Any]":
        """Handle a request of a broker."""
        answer: asyncio.Future[Any] = self.process.create_future()
        before = self.replica.controller.image
        if self.watch is not None and isinstance(call.message, BrokerHeartbeatRequest):
            sender = BrokerId(call.message.broker_id), BrokerEpoch(call.message.broker_epoch)
            self.watch.on_heartbeat(*sender, call.request.connection)
        try:
            decided = self.replica.driver.submit(_command(call.message))
        except KafkaError as error:
            answer.set_result(Refusal(error.code))
            return answer
        self._around.checker.on_request(self.replica, call.message, before)

        def settle(done: "asyncio.Future[Any]") -> None:
            error = done.exception()
            if not answer.done():
                answer.set_result(Refusal(error.code) if isinstance(error, KafkaError) else done.result())

        decided.add_done_callback(settle)
        return answer

    def command(self, command: Command[R], done: Callable[[R | Refusal], None]) -> None:
        """Run an operator's request as an event of this process."""

        def run() -> None:
            try:
                decided = self.replica.driver.submit(command)
            except KafkaError as error:
                done(Refusal(error.code))
                return
            decided.add_done_callback(
                lambda future: done(_refused(future.exception()) if future.exception() else future.result())
            )

        self.process.world.run(self.process, run)


def open_controller(
    node: QuorumNode,
    process: TaskProcess,
    around: MetadataSurroundings,
    random: Random,
    on_fatal: Callable[[BaseException], None],
) -> ControllerProcess:
    """Open the metadata log of a dedicated controller. Raises OSError and LogDirFailure."""
    scenario = around.scenario
    io = StallableIo(process, random, inline_share=scenario.io_inline_share, delay_ms=scenario.io_delay_ms)
    return ControllerProcess(process, io, MetadataReplica(node, process, io, around, random, on_fatal=on_fatal), around)


class WitnessedLocalChannel(LocalControllerChannel):
    """A broker's way to the controller of its own process; the checker sees every accepted request."""

    def __init__(self, replica: MetadataReplica) -> None:
        super().__init__(replica.driver)
        self._replica = replica

    def register_broker(self, request: BrokerRegistrationRequest) -> "asyncio.Future[BrokerRegistrationResponse]":
        return self._witnessed(super().register_broker, request)

    def heartbeat(self, request: BrokerHeartbeatRequest) -> "asyncio.Future[BrokerHeartbeatResponse]":
        return self._witnessed(super().heartbeat, request)

    def assign_directories(
        self, request: AssignReplicasToDirsRequest
    ) -> "asyncio.Future[AssignReplicasToDirsResponse]":
        return self._witnessed(super().assign_directories, request)

    def alter_partitions(self, request: AlterPartitionRequest) -> "asyncio.Future[AlterPartitionResponse]":
        return self._witnessed(super().alter_partitions, request)

    def _witnessed(self, handle: Callable[[Q], "asyncio.Future[A]"], request: Q) -> "asyncio.Future[A]":
        before = self._replica.controller.image
        answer = handle(request)
        self._replica.around.checker.on_request(self._replica, request, before)
        return answer

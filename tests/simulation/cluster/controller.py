"""A controller's process, and the requests that brokers and operators send to it."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from broker.runtime.controller.driver import Command
from protocol.errors import KafkaError
from tests.simulation.cluster.disks import StallableIo
from tests.simulation.cluster.replica import MetadataReplica, MetadataSurroundings
from tests.simulation.quorum.node import Node as QuorumNode
from tests.simulation.replication.metadata import Refusal, _command, _refused
from tests.simulation.replication.network import Call
from tests.simulation.replication.process import TaskProcess

R = TypeVar("R")


class ControllerProcess:
    """One run of a controller. Implements the brokers' Server."""

    def __init__(
        self,
        node: QuorumNode,
        process: TaskProcess,
        around: MetadataSurroundings,
        random: Random,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.process = process
        self._around = around
        scenario = around.scenario
        self.io = StallableIo(process, random, inline_share=scenario.io_inline_share, delay_ms=scenario.io_delay_ms)
        self.replica = MetadataReplica(node, process, self.io, around, random, on_fatal=on_fatal)

    def serve(self, call: Call) -> "asyncio.Future[Any]":
        """Handle a request of a broker."""
        answer: asyncio.Future[Any] = self.process.create_future()
        before = self.replica.controller.image
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

"""Runs the supervisors of all nodes until a signal, or until a node fails to start, and stops all nodes together."""

import asyncio
import signal
from collections.abc import Sequence

from broker.supervisor.layout import LocalNode
from broker.supervisor.node_supervisor import NodeDidNotStart, NodeSupervisor, Prepare
from broker.supervisor.process import Spawn, spawn
from broker.supervisor.status_report import StatusReport

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ClusterSupervisor:
    """Single-use object: construct and `run` on the event loop of the process's main thread."""

    def __init__(
        self,
        nodes: Sequence[LocalNode],
        report: StatusReport,
        prepare: Prepare,
        *,
        restart: bool,
        spawn_process: Spawn = spawn,
    ) -> None:
        self._node_supervisors = [
            NodeSupervisor(node, spawn_process, report, prepare, restart=restart) for node in nodes
        ]
        self._stop = asyncio.Event()
        self._failure: NodeDidNotStart | None = None

    async def run(self) -> None:
        """Return after `stop`, when all nodes have exited. Raise NodeDidNotStart, also after all nodes have exited."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            async with asyncio.TaskGroup() as tasks:
                for node_supervisor in self._node_supervisors:
                    tasks.create_task(self._supervise(node_supervisor))
                await self._stop.wait()
                for node_supervisor in self._node_supervisors:
                    node_supervisor.stop()
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop all nodes; `run` returns afterwards."""
        self._stop.set()

    async def _supervise(self, node_supervisor: NodeSupervisor) -> None:
        try:
            await node_supervisor.run()
        except NodeDidNotStart as failure:
            self._failure = self._failure or failure
            self.stop()

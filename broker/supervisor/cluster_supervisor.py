"""Runs the supervisors of all nodes until a signal, or until a node fails to start, and stops all nodes together."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence

from broker.bounded_log import BoundedLog
from broker.supervisor.layout import LocalNode
from broker.supervisor.node_supervisor import NodeDidNotStart, NodeSupervisor, Prepare
from broker.supervisor.output import NodeLog
from broker.supervisor.process import Spawn, spawn
from broker.supervisor.status_report import StatusReport

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Settle = Callable[[LocalNode], Awaitable[None]]
"""Waits until a restarted node carries its full load, so that the next one may stop."""


class ClusterSupervisor:
    """Single-use object: construct and `run` on the event loop of the process's main thread.

    With `settle`, SIGHUP restarts the nodes one after another. Without it, SIGHUP stops them.
    """

    def __init__(
        self,
        nodes: Sequence[LocalNode],
        report: StatusReport,
        prepare: Prepare,
        *,
        restart: bool,
        spawn_process: Spawn = spawn,
        log_of: Callable[[LocalNode], NodeLog] = lambda node: BoundedLog(node.log_file),
        settle: Settle | None = None,
    ) -> None:
        self._node_supervisors = [
            NodeSupervisor(node, spawn_process, report, prepare, restart=restart, log=log_of(node)) for node in nodes
        ]
        self._settle = settle
        self._rolling: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._failure: NodeDidNotStart | None = None

    async def run(self) -> None:
        """Return after `stop`, when all nodes have exited. Raise NodeDidNotStart, also after all nodes have exited."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self.stop)
        if self._settle is not None:
            loop.add_signal_handler(signal.SIGHUP, self.restart_in_turn)
        try:
            async with asyncio.TaskGroup() as tasks:
                for node_supervisor in self._node_supervisors:
                    tasks.create_task(self._supervise(node_supervisor))
                await self._stop.wait()
                if self._rolling is not None:
                    self._rolling.cancel()
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

    def restart_in_turn(self) -> None:
        """Restart the nodes one after another, each after its predecessor has settled. A restart under way goes on."""
        if self._settle is not None and (self._rolling is None or self._rolling.done()):
            self._rolling = asyncio.get_running_loop().create_task(self._restart_each(self._settle))

    async def _restart_each(self, settle: Settle) -> None:
        for node_supervisor in self._node_supervisors:
            await node_supervisor.restart()
            await settle(node_supervisor.node)

    async def _supervise(self, node_supervisor: NodeSupervisor) -> None:
        try:
            await node_supervisor.run()
        except NodeDidNotStart as failure:
            self._failure = self._failure or failure
            self.stop()

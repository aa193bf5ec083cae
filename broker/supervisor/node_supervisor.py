"""Keeps one node running: starts its process, listens to it, starts it again when it exits, and stops it when told."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from broker.supervisor.bounded_log import BoundedLog
from broker.supervisor.layout import LocalNode
from broker.supervisor.output import NodeOutput
from broker.supervisor.pid_file import remove_pid, write_pid
from broker.supervisor.process import NodeProcess, Spawn
from broker.supervisor.restarts import RestartPauses
from broker.supervisor.status_report import StatusReport

STOP_TIMEOUT_S = 30.0
"""A node that has not stopped by then is killed: longer than it takes to drain requests and flush its logs."""


class NotPrepared(Exception):
    """What a node needs before it can start cannot be had. Says why in one sentence."""


Prepare = Callable[[LocalNode], None]
"""Sees to it that a node can be started, each time before it is. Raises NotPrepared."""


class NodeDidNotStart(Exception):
    """A node ended by itself before it ever served: doing the same again would not help. Says why in one sentence."""


@dataclass(frozen=True, slots=True)
class ProcessRun:
    """How a process went: its exit code (None if it could not be started), whether it served, its last words."""

    code: int | None
    served: bool
    last_words: str
    lasted_s: float

    @property
    def failed_to_start(self) -> bool:
        """By its own doing, not by someone's signal."""
        return not self.served and (self.code is None or self.code >= 0)


class NodeSupervisor:
    """`run` until `stop`, or until the node turns out not to start at all. `restart=False` lets it live once."""

    def __init__(self, node: LocalNode, spawn: Spawn, report: StatusReport, prepare: Prepare, *, restart: bool) -> None:
        self._node = node
        self._spawn = spawn
        self._report = report
        self._prepare = prepare
        self._restart = restart
        self._log = BoundedLog(node.log_file)
        self._process: NodeProcess | None = None
        self._stopping = asyncio.Event()
        self._killer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Returns when the node is gone for good. Raises NodeDidNotStart."""
        try:
            await self._keep()
        finally:
            self._log.close()
            if self._killer is not None:
                self._killer.cancel()

    def stop(self) -> None:
        """Ask the node to stop, and let it be gone. Does nothing the second time."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._process is not None:
            self._stop_process(self._process)

    async def _keep(self) -> None:
        pauses = RestartPauses()
        has_served = False
        while not self._stopping.is_set():
            life = await self._live()
            if self._stopping.is_set():
                return
            if life.failed_to_start and not has_served:
                raise NodeDidNotStart(f"node {self._node.id} did not start: {life.last_words}")
            has_served = has_served or life.served
            pause_s = pauses.after(life.lasted_s) if self._restart else None
            self._report.exited(self._node, life.code, life.last_words, pause_s)
            if pause_s is None:
                return
            await self._rest(pause_s)

    async def _live(self) -> ProcessRun:
        """Start the process and stay with it to its end."""
        started_s = _now_s()
        try:
            self._prepare(self._node)
            process = await self._spawn(self._node.command)
        except (NotPrepared, OSError) as error:
            reason = f"{error.strerror}." if isinstance(error, OSError) else str(error)
            return ProcessRun(None, False, reason, _now_s() - started_s)
        self._process = process
        self._publish_pid(process.pid)
        if self._stopping.is_set():  # told while the process was being made
            self._stop_process(process)
        try:
            output = await self._listen(process, started_s)
            return ProcessRun(await process.wait(), output.is_serving, output.last_words, _now_s() - started_s)
        finally:
            self._process = None
            remove_pid(self._node.pid_file)

    async def _listen(self, process: NodeProcess, started_s: float) -> NodeOutput:
        output = NodeOutput(self._node.id, self._log)
        while data := await process.read():
            was_serving, was_leading = output.is_serving, output.is_active_controller
            output.feed(data)
            if output.is_serving and not was_serving:
                self._report.ready(self._node, process.pid, _now_s() - started_s, output.http_url)
            if output.is_active_controller and not was_leading:
                self._report.leads(self._node)
        return output

    def _publish_pid(self, pid: int) -> None:
        try:
            write_pid(self._node.pid_file, pid)
        except OSError as error:  # a full disk is the node's to complain about
            self._report.trouble(self._node, f"cannot write {self._node.pid_file}: {error.strerror}.")

    def _stop_process(self, process: NodeProcess) -> None:
        process.terminate()
        self._killer = asyncio.get_running_loop().call_later(STOP_TIMEOUT_S, process.kill)

    async def _rest(self, seconds: float) -> None:
        """Sleep, unless it is time to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


def _now_s() -> float:
    return asyncio.get_running_loop().time()

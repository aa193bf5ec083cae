"""The supervisor of one node: starts its process, reads its output, restarts it, and stops it."""

import asyncio
import contextlib
from collections.abc import Callable

from broker.bounded_log import BoundedLog
from broker.supervisor.layout import LocalNode
from broker.supervisor.output import NodeLog, NodeOutput
from broker.supervisor.pid_file import remove_pid, write_pid
from broker.supervisor.process import NodeProcess, Spawn
from broker.supervisor.restart_backoff import RestartBackoff
from broker.supervisor.status_report import StatusReport
from protocol.lazy_dataclass import lazy_dataclass

STOP_TIMEOUT_S = 30.0
"""Time after which a stopping node is killed: longer than it takes to drain requests and flush logs."""


class NotPrepared(Exception):
    """A precondition of a node's start is missing. The message is one sentence."""


Prepare = Callable[[LocalNode], None]
"""Prepares a node before each start. Raises NotPrepared."""


class NodeDidNotStart(Exception):
    """A node exited before it ever served, so that a restart would not help. The message is one sentence."""


@lazy_dataclass(frozen=True, slots=True)
class ProcessRun:
    """A finished process: exit code (None if it could not be started), whether it served, its last message, its
    duration.
    """

    code: int | None
    served: bool
    last_message: str
    duration_s: float

    @property
    def failed_to_start(self) -> bool:
        """Whether the process ended by itself before it served, not by a signal."""
        return not self.served and (self.code is None or self.code >= 0)


class NodeSupervisor:
    """Keeps a node running: `run` until `stop`, or until the node fails to start. `restart=False` runs it once.

    The output goes to `log`, by default the node's log file.
    """

    def __init__(
        self,
        node: LocalNode,
        spawn: Spawn,
        report: StatusReport,
        prepare: Prepare,
        *,
        restart: bool,
        log: NodeLog | None = None,
    ) -> None:
        self._node = node
        self._spawn = spawn
        self._report = report
        self._prepare = prepare
        self._restart = restart
        self._log = BoundedLog(node.log_file) if log is None else log
        self._process: NodeProcess | None = None
        self._stopping = asyncio.Event()
        self._is_terminated = False
        self._restarted: asyncio.Future[None] | None = None
        self._killer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Return when the node has exited for good. Raise NodeDidNotStart."""
        try:
            await self._supervise()
        finally:
            self._log.close()
            self._spare()
            self._on_restarted()

    @property
    def node(self) -> LocalNode:
        return self._node

    async def restart(self) -> None:
        """Stop the process in order, and return when its successor serves, or after `stop`."""
        if self._restarted is None:
            self._restarted = asyncio.get_running_loop().create_future()
            if self._process is not None:
                self._stop_process(self._process)
        await asyncio.shield(self._restarted)

    def stop(self) -> None:
        """Request the node to stop. Further calls do nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._process is not None:
            self._stop_process(self._process)

    async def _supervise(self) -> None:
        backoff = RestartBackoff()
        has_served = False
        while not self._stopping.is_set():
            run = await self._run_once()
            if self._stopping.is_set():
                return
            if self._is_terminated:  # by `restart`
                has_served = has_served or run.served
                continue
            if run.failed_to_start and not has_served:
                raise NodeDidNotStart(f"node {self._node.id} did not start: {run.last_message}")
            has_served = has_served or run.served
            delay_s = backoff.after(run.duration_s) if self._restart else None
            self._report.exited(self._node, run.code, run.last_message, delay_s)
            if delay_s is None:
                return
            await self._sleep(delay_s)

    async def _run_once(self) -> ProcessRun:
        """Start the process and read its output until it exits."""
        started_s = _now_s()
        self._is_terminated = False
        try:
            self._prepare(self._node)
            process = await self._spawn(self._node.command)
        except (NotPrepared, OSError) as error:
            reason = f"{error.strerror}." if isinstance(error, OSError) else str(error)
            return ProcessRun(None, False, reason, _now_s() - started_s)
        self._process = process
        self._publish_pid(process.pid)
        if self._stopping.is_set():  # stop was called while the process was created
            self._stop_process(process)
        try:
            output = await self._read_output(process, started_s)
            return ProcessRun(await process.wait(), output.is_serving, output.last_message, _now_s() - started_s)
        finally:
            self._process = None
            self._spare()
            remove_pid(self._node.pid_file)

    async def _read_output(self, process: NodeProcess, started_s: float) -> NodeOutput:
        output = NodeOutput(self._node.id, self._log)
        while data := await process.read():
            was_serving, was_leading = output.is_serving, output.is_active_controller
            output.feed(data)
            if output.is_serving and not was_serving:
                self._report.ready(self._node, process.pid, _now_s() - started_s, output.http_url)
                if not self._is_terminated:
                    self._on_restarted()
            if output.is_active_controller and not was_leading:
                self._report.leads(self._node)
        return output

    def _publish_pid(self, pid: int) -> None:
        try:
            write_pid(self._node.pid_file, pid)
        except OSError as error:  # e.g. a full disk, which the node itself reports
            self._report.trouble(self._node, f"cannot write {self._node.pid_file}: {error.strerror}.")

    def _on_restarted(self) -> None:
        if self._restarted is not None:
            self._restarted.set_result(None)
            self._restarted = None

    def _spare(self) -> None:
        """Call off the kill of a process that did not stop in time."""
        if self._killer is not None:
            self._killer.cancel()
            self._killer = None

    def _stop_process(self, process: NodeProcess) -> None:
        self._spare()
        self._is_terminated = True
        process.terminate()
        self._killer = asyncio.get_running_loop().call_later(STOP_TIMEOUT_S, process.kill)

    async def _sleep(self, seconds: float) -> None:
        """Sleep until the time is over or `stop` is called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()


def _now_s() -> float:
    return asyncio.get_running_loop().time()

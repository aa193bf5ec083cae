"""A node's process, as its node_supervisor uses it, and the real one.

The process gets a session of its own: an interrupt from the terminal reaches the supervisor alone, which then stops
all nodes in order. It must not outlive the supervisor either, even one that is killed. For that it holds one end of a
pipe, its standard input, whose other end the kernel closes with us: unlike a signal at the death of the parent
(PR_SET_PDEATHSIG), this needs no code between fork and exec, cannot be missed by a parent that dies too early, and
lets the node stop in order, with its logs closed.
"""

import asyncio
import contextlib
import signal
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

READ_BYTES = 64 * 1024


class NodeProcess(Protocol):
    @property
    def pid(self) -> int: ...

    async def read(self) -> bytes:
        """The next piece of its output; empty at the end, which comes when it exits."""
        ...

    async def wait(self) -> int:
        """Its exit code; the negative number of the signal that killed it."""
        ...

    def terminate(self) -> None:
        """Ask it to stop, also if it is suspended just now. Does nothing if it is gone."""
        ...

    def kill(self) -> None: ...


Spawn = Callable[[Sequence[str]], Awaitable[NodeProcess]]
"""Starts a command; raises OSError."""


class OsNodeProcess:
    """A child process of ours."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def read(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(READ_BYTES)

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


async def spawn(command: Sequence[str]) -> NodeProcess:
    """Start `command`, its output joined and ours to read. Raises OSError."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, start_new_session=True
    )
    return OsNodeProcess(process)

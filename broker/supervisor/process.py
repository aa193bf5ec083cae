"""The process of a node: the interface that its supervisor uses, and the implementation.

The process gets a session of its own: an interrupt from the terminal reaches only the supervisor, which then stops all
nodes in order. The process must not outlive its supervisor, even a killed one. It therefore holds one end of a pipe as
its standard input; the kernel closes the other end when the supervisor ends. Unlike a signal at the death of the parent
(PR_SET_PDEATHSIG), this needs no code between fork and exec, cannot be missed when the parent dies early, and lets the
node stop in order, with its logs closed.
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
        """Return the next piece of output; empty at its end, when the process exits."""
        ...

    async def wait(self) -> int:
        """Return the exit code; the negative signal number after a signal."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM, and SIGCONT to a suspended process. Does nothing after the exit."""
        ...

    def kill(self) -> None: ...


Spawn = Callable[[Sequence[str]], Awaitable[NodeProcess]]
"""Starts a command; raises OSError."""


class OsNodeProcess:
    """A child process."""

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
    """Start `command` with its output joined and readable. Raise OSError."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, start_new_session=True
    )
    return OsNodeProcess(process)

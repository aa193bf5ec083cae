"""Processes of nodes with scripted behaviour."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from broker.supervisor.layout import LocalNode


def a_node(directory: Path, node_id: int = 1) -> LocalNode:
    return LocalNode(node_id, directory, f"127.0.0.1:{9082 + 10 * node_id}", "http://127.0.0.1:9644", (f"n{node_id}",))


def nothing_to_prepare(_node: LocalNode) -> None:
    """Prepare nothing: the node's directories are valid."""


class FakeProcess:
    """Prints `output`, then runs until it is terminated or, given an `exit_code`, exits by itself."""

    def __init__(self, pid: int, output: bytes = b"", *, exit_code: int | None = None, deaf: bool = False) -> None:
        self.pid = pid
        self.signals: list[str] = []
        self._deaf = deaf
        self._output = [output] if output else []
        self._exit_code = asyncio.get_running_loop().create_future()
        if exit_code is not None:
            self._exit_code.set_result(exit_code)

    async def read(self) -> bytes:
        if self._output:
            return self._output.pop(0)
        await asyncio.shield(self._exit_code)
        return b""

    async def wait(self) -> int:
        code: int = await asyncio.shield(self._exit_code)
        return code

    def terminate(self) -> None:
        self.signals.append("TERM")
        if not self._deaf:
            self.exit(0)

    def kill(self) -> None:
        self.signals.append("KILL")
        self.exit(-signal.SIGKILL)

    def exit(self, code: int) -> None:
        if not self._exit_code.done():
            self._exit_code.set_result(code)


class FakeSpawner:
    """Starts fake processes: `plays` has the behaviour of each start, the last one repeats."""

    def __init__(self, *plays: dict[str, object] | OSError) -> None:
        self._plays = list(plays)
        self.started: list[tuple[float, FakeProcess]] = []

    async def spawn(self, command: Sequence[str]) -> FakeProcess:
        play = self._plays.pop(0) if len(self._plays) > 1 else self._plays[0]
        if isinstance(play, OSError):
            raise play
        process = FakeProcess(100 + len(self.started), **play)  # type: ignore[arg-type]  # a test's own words
        self.started.append((asyncio.get_running_loop().time(), process))
        return process

    @property
    def processes(self) -> list[FakeProcess]:
        return [process for _, process in self.started]

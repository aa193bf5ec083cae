"""Runtimes for tests: the services of one process, each replaceable."""

from collections.abc import Coroutine
from typing import Any

from broker.clock import Clock
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.runtime import Runtime, Spawn
from broker.runtime.loop.waiters import Deadlines, Loop
from storage.files import FileSystem
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.memory_files import MemoryFileSystem


def make_runtime(
    loop: Loop,
    *,
    clock: Clock | None = None,
    io: BlockingIo | None = None,
    files: FileSystem | None = None,
    deadlines: Deadlines | None = None,
    spawn: Spawn | None = None,
) -> Runtime:
    """Build a runtime with a manual clock, inline IO, files in memory, and no background tasks unless given."""
    return Runtime(
        clock=ManualClock() if clock is None else clock,
        loop=loop,
        io=InlineIo(loop) if io is None else io,
        files=MemoryFileSystem() if files is None else files,
        deadlines=Deadlines(loop) if deadlines is None else deadlines,
        spawn=_refuse_to_spawn if spawn is None else spawn,
    )


def _refuse_to_spawn(work: Coroutine[Any, Any, None]) -> object:
    work.close()
    raise AssertionError("this test runs no background tasks; pass `spawn`")

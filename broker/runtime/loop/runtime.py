"""The services of one process that drivers share: time, the event loop, files, blocking IO, deadlines, and tasks."""

from collections.abc import Callable, Coroutine
from typing import Any

from broker.clock import Clock
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.waiters import Deadlines, Loop
from protocol.lazy_dataclass import lazy_dataclass
from storage.files import FileSystem

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Starts a background task that ends with the node; a failure of the task stops the node."""


@lazy_dataclass(frozen=True, slots=True)
class Runtime:
    """Process-wide services, passed as one argument to every driver.

    A node builds one instance; the simulators build one per simulated process, over a simulated clock, loop and disk.
    """

    clock: Clock
    loop: Loop
    io: BlockingIo
    """Runs blocking file operations off the loop, in the order of submission."""
    files: FileSystem
    deadlines: Deadlines
    spawn: Spawn

"""Stops a process when its parent is gone, which closes the process's standard input."""

import os
import signal
import threading
import time
from collections.abc import Callable

STOP_TIMEOUT_S = 30.0
"""Time for an orderly stop before the process exits at once."""


def stop_when_stdin_ends() -> None:
    """Start the watchdog in a thread of its own, so that it works while the event loop hangs."""
    threading.Thread(target=watch, args=(0, _stop, _exit_now), name="ottla-parent-watchdog", daemon=True).start()


def watch(
    descriptor: int, stop: Callable[[], None], exit_now: Callable[[], None], timeout_s: float = STOP_TIMEOUT_S
) -> None:
    """Read to the end of the input, then call `stop`; call `exit_now` if the process still runs after `timeout_s`."""
    while os.read(descriptor, 4096):
        pass
    stop()
    time.sleep(timeout_s)
    exit_now()


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _exit_now() -> None:
    os._exit(1)

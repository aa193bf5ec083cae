"""Ends a process when the one that started it is gone, which shows in that standard input ends."""

import os
import signal
import threading
import time
from collections.abc import Callable

STOP_TIMEOUT_S = 30.0
"""How long an orderly stop may take before the process ends anyhow."""


def stop_when_stdin_ends() -> None:
    """Watch from a thread of its own, which works even where the event loop hangs."""
    threading.Thread(target=watch, args=(0, _stop, _give_up), name="ottla-lifeline", daemon=True).start()


def watch(
    descriptor: int, stop: Callable[[], None], give_up: Callable[[], None], timeout_s: float = STOP_TIMEOUT_S
) -> None:
    """Read to the end, then `stop`; `give_up` if we are still here after `timeout_s`."""
    while os.read(descriptor, 4096):
        pass
    stop()
    time.sleep(timeout_s)
    give_up()


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _give_up() -> None:
    os._exit(1)

"""Suspension of processes. After the signal, threads may continue for a while on a busy machine, so `suspend` waits."""

import os
import signal
import time
from pathlib import Path

PATIENCE_S = 60
STOPPED = "Tt"


def suspend(pid: int) -> None:
    """Send SIGSTOP, and return when no thread of the process runs any more."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_S
    while not _is_suspended(pid):
        assert time.monotonic() < deadline, f"{pid} is still running"
        time.sleep(0.001)


def resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def _is_suspended(pid: int) -> bool:
    states = (task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat"))
    try:
        return all(state in STOPPED for state in states)
    except (FileNotFoundError, ProcessLookupError):  # the thread ended meanwhile
        return False

"""The snapshot job as a process, run once or tailing until it is stopped or killed."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.processes.ottla_node import clean_environment
from tests.support.processes.spark_session import QUICK_JVM

PATIENCE_S = 420
"""Seconds for a start: Java and Spark alone take ten on an idle machine."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "spark_jobs.metadata_snapshots", *arguments]


def environment() -> dict[str, str]:
    return clean_environment() | {"SPARK_SUBMIT_OPTS": QUICK_JVM, "SPARK_LOCAL_IP": "127.0.0.1"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the job until it ends."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, env=environment(), check=False
    )


class TailingJob:
    """A tailing job that writes to `out`; a context manager that kills it at exit."""

    def __init__(self, out: Path, *arguments: str) -> None:
        self.out = out
        self._log = (out.parent / f"{out.name}-job.log").open("ab")
        self.process = subprocess.Popen(
            command("--out", str(out), *arguments), stdout=self._log, stderr=subprocess.STDOUT, env=environment()
        )

    def __enter__(self) -> "TailingJob":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    def kill(self) -> None:
        """Send SIGKILL if the job is running."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Stop the job; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def latest_end(self) -> int:
        """Return the end offset of the newest snapshot; 0 without one."""
        path = self.out / "latest.json"
        return int(json.loads(path.read_bytes())["endOffset"]) if path.exists() else 0

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; fail the test if the job ends before, or at the time limit."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"the job ended: {self.output()}"
            assert time.monotonic() < deadline, f"it takes too long: {self.output()}"
            time.sleep(0.05)

    def output(self) -> str:
        return Path(self._log.name).read_text(errors="replace")[-3000:]

"""A measured process: elapsed time, and peak memory of the process and its children.

Resident memory is the sum over all processes. Shared memory, as of forked workers, is counted several times: the sum is
an upper bound.
"""

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

import psutil

SAMPLE_S: Final = 0.1


def own_peak_mb() -> float:
    """Return the peak of this process's resident memory.

    `getrusage` returns the peak of the parent process instead if that is larger.
    """
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


@dataclass(frozen=True)
class Peak:
    """Peak of resident memory: total, and by process, in bytes."""

    total: int
    by_process: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        each = ", ".join(f"{name} {size >> 20}" for name, size in self.by_process)
        return f"{self.total >> 20} MB ({each})"


@dataclass(frozen=True)
class Spent:
    """Cost of a run. `cpu_s` is the processor time of all processes, as last observed for each."""

    seconds: float
    cpu_s: float
    peak: Peak

    @property
    def peak_mb(self) -> float:
        return self.peak.total / (1 << 20)

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.cpu_s:.1f} s of processors, {self.peak}"


class Watched:
    """A running command; a context manager that kills its processes at exit."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._began = time.monotonic()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed where this is left
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._output, text=True, env=environment
        )
        self._cpu: dict[int, float] = {}
        self._cpu_before = 0.0
        self._peak = Peak(0, ())
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __enter__(self) -> "Watched":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self._output.close()

    def write_line(self, line: str) -> None:
        """Write a line to its stdin."""
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def read_line(self) -> str:
        """Return the next line of its stdout. Raises AssertionError with its stderr at the end of the output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.complaints
        return line

    def finish(self) -> str:
        """Wait for a successful end; return the rest of its stdout."""
        output, _ = self.process.communicate()
        assert self.process.returncode == 0, self.complaints
        return output

    def spent(self) -> Spent:
        """Return the cost since the start, or since the last call."""
        now, cpu = time.monotonic(), sum(self._cpu.values())
        spent = Spent(now - self._began, cpu - self._cpu_before, self._peak)
        self._began, self._cpu_before, self._peak = now, cpu, Peak(0, ())
        return spent

    @property
    def complaints(self) -> str:
        """Return its stderr."""
        os.fsync(self._output.fileno())
        self._output.seek(0)
        return self._output.read().decode(errors="replace")[-4000:]

    def _watch(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            found = list(_family(self.process.pid))
            self._cpu.update({each.pid: each.cpu_s for each in found})
            total = sum(each.resident for each in found)
            if total > self._peak.total:
                self._peak = Peak(total, tuple((each.name, each.resident) for each in found))


class _Seen(NamedTuple):
    pid: int
    name: str
    resident: int
    cpu_s: float


def _family(pid: int) -> Iterator[_Seen]:
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                if not _is_about_to_become_another(process):
                    times = process.cpu_times()
                    yield _Seen(process.pid, process.name(), process.memory_info().rss, times.user + times.system)


def _is_about_to_become_another(process: psutil.Process) -> bool:
    """Whether a child of Java is still Java itself: between fork and exec it shows its parent's memory."""
    parent = process.parent()
    return parent is not None and process.exe() == parent.exe() and Path(process.exe()).name == "java"

"""Worker processes: started again with the next incarnation whenever they end, until the run closes them."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from tests.support.kafka.apache_kafka import REPOSITORY, java_command, unavailable_reason
from tests.support.processes.ottla_node import clean_environment

SOURCES = Path(__file__).parent / "clients"
GO_PROGRAM = REPOSITORY / "build" / "exactly-once" / "franz-go"


class WorkerClient(StrEnum):
    """A client library with transactions."""

    LIBRDKAFKA = "librdkafka"
    JAVA = "java"
    FRANZ_GO = "franz-go"

    @property
    def command(self) -> list[str]:
        match self:
            case WorkerClient.LIBRDKAFKA:
                return [sys.executable, "-m", "tests.exactly_once.clients.librdkafka"]
            case WorkerClient.JAVA:
                return java_command(str(SOURCES / "ExactlyOnceClient.java"), heap="192m")
            case WorkerClient.FRANZ_GO:
                return [str(GO_PROGRAM)]

    def refusal(self) -> str | None:
        """Return the reason why the client cannot run here, None once it is built. A build may use registries."""
        match self:
            case WorkerClient.LIBRDKAFKA:
                return None
            case WorkerClient.JAVA:
                return unavailable_reason()
            case WorkerClient.FRANZ_GO:
                return _build_go()


def _build_go() -> str | None:
    if shutil.which("go") is None:
        return "go is not on PATH"
    GO_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-buildvcs=false", "-o", str(GO_PROGRAM), "."]
    built = subprocess.run(command, cwd=SOURCES / "go", capture_output=True, text=True, check=False)
    return None if built.returncode == 0 else f"go build failed: {built.stderr.strip()[-500:]}"


class WorkerProcess(threading.Thread):
    """One worker, whatever happens to its processes. `heard` receives every complete line that they print.

    `arguments` return the arguments of an incarnation. `ended` counts processes that ended by themselves.
    """

    def __init__(
        self,
        client: WorkerClient,
        name: str,
        arguments: Callable[[int], Sequence[str]],
        log: Path,
        heard: Callable[[str], None],
    ) -> None:
        super().__init__(daemon=True, name=name)
        self.client = client
        self.killed = 0
        self.ended = 0
        self._arguments = arguments
        self._log = log
        self._heard = heard
        self._lock = threading.Lock()
        self._closed = False
        self._incarnation = 0
        self._process = self._spawn()

    def _spawn(self) -> subprocess.Popen[str]:
        self._incarnation += 1
        with self._log.open("ab") as errors:
            return subprocess.Popen(
                [*self.client.command, *self._arguments(self._incarnation)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=clean_environment(),
                cwd=REPOSITORY,
            )

    def run(self) -> None:
        while True:
            process = self._process
            assert process.stdout is not None
            for line in process.stdout:
                if line.endswith("\n"):
                    self._heard(line)
            code = process.wait()
            process.stdout.close()
            with self._lock:
                self.ended += code >= 0 and not self._closed
                if self._closed:
                    return
                self._process = self._spawn()

    def kill(self) -> None:
        """Send SIGKILL to the process of this moment; another follows."""
        with self._lock:
            self._process.kill()
            self.killed += 1

    def close(self) -> None:
        """Send SIGKILL to the process, and start no other."""
        with self._lock:
            self._closed = True
            self._process.kill()
        self.join()

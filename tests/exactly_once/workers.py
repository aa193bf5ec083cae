"""Worker processes: started again with the next incarnation whenever they end, until the run closes them."""

import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes.client_programs import ClientLibrary, ClientPrograms
from tests.support.processes.ottla_node import clean_environment

PROGRAMS = ClientPrograms("exactly-once", "tests.exactly_once.clients", "ExactlyOnceClient.java")


class WorkerProcess(threading.Thread):
    """One worker, whatever happens to its processes. `heard` receives every complete line that they print.

    `arguments` return the arguments of an incarnation. `ended` counts processes that ended by themselves.
    """

    def __init__(
        self,
        client: ClientLibrary,
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
                [*PROGRAMS.command(self.client), *self._arguments(self._incarnation)],
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

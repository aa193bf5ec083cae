"""Client programs as processes: their commands, and a thread per program that reads its events.

Arguments are a role, the bootstrap servers, the topic and its partition count; for a producer also its number, records
per second, bytes per record, and "all" or "1". A program prints lines of events.py. On "finish" at standard input it
ends once all sent records are acknowledged or given up. When standard input closes, it ends at once. With CHAOS_USER,
CHAOS_PASSWORD and CHAOS_AUTHORITY (a PEM file) in its environment it logs in with SCRAM-SHA-512 over TLS.
"""

import contextlib
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.chaos.events import Event, parse
from tests.chaos.network import CLIENTS, Network
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes.client_programs import ClientLibrary, ClientPrograms
from tests.support.processes.ottla_node import clean_environment

LINES_KEPT = 1_000
"""The last lines of a program that are written to its log if it must be killed."""

STACKS_S = 2.0
"""Time in which a program prints its stacks before it is killed."""

PROGRAMS = ClientPrograms("chaos", "tests.chaos.clients", "ChaosClient.java")


class Program(threading.Thread):
    """A running client program. `heard` receives every event, in order, under `lock`."""

    def __init__(
        self,
        network: Network,
        client: ClientLibrary,
        arguments: Sequence[str],
        log: Path,
        lock: threading.Lock,
        heard: Callable[[Event], None],
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(daemon=True)
        self.title = f"{client} {arguments[0]}"
        self._lock = lock
        self._heard = heard
        self.error: str | None = "has not finished"
        self._log = log
        self._last: deque[str] = deque(maxlen=LINES_KEPT)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                network.command(CLIENTS, [*PROGRAMS.command(client), *arguments]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**clean_environment(), **environment},
                cwd=REPOSITORY,
            )
        self.start()

    def run(self) -> None:
        assert self._process.stdout is not None
        nonsense = None
        for line in self._process.stdout:
            self._last.append(line)
            try:
                event = parse(line.rstrip("\n"))
            except (ValueError, TypeError) as error:
                nonsense = f"printed an invalid event: {error}"
                continue
            with self._lock:
                self._heard(event)
        code = self._process.wait()
        self.error = f"exited with {code}" if code else nonsense

    def ask_to_finish(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("finish\n")
            self._process.stdin.flush()

    def wait_finished(self, timeout_s: float) -> None:
        """Wait until the program has ended and its events are handled. Kill it after the timeout and set `error`.

        SIGQUIT comes first: each program prints the stacks of its threads then.
        """
        self.join(timeout_s)
        if self.is_alive():
            self._process.send_signal(signal.SIGQUIT)
            self.join(STACKS_S)
            self.kill()
            with self._log.open("a") as kept:
                kept.writelines(self._last)
            self.error = f"did not finish within {timeout_s:.0f} s"

    def kill(self) -> None:
        self._process.kill()
        self.join()

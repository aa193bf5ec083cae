"""A node of Ottla as a process, for tests with real clients and SIGKILL."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.kafka.apache_kafka import free_ports, stop, wait_for_port

START_TIMEOUT_S = 60


class OttlaNode:
    """One combined node in `directory`, with the same ports after restarts; a context manager that starts it."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port, self.controller_port, self.http_port = free_ports(3)
        self.settings = dict(settings or {})
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Return the address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Return the process id of the running node."""
        assert self.process is not None
        return self.process.pid

    @property
    def log_text(self) -> str:
        """Return all output since the first start."""
        return (self.directory / "ottla.log").read_text(errors="replace")

    def command(self, *more: str) -> list[str]:
        """Return the command line of this node."""
        config = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.data),
            "ottla.http.listener": f"127.0.0.1:{self.http_port}",
            **self.settings,
        }
        overrides = [part for key, value in config.items() for part in ("--override", f"{key}={value}")]
        return [sys.executable, "-m", "broker", "start", *overrides, *more]

    def start(self) -> "OttlaNode":
        """Start the process and wait until it reports that it is ready."""
        self.start_unready()
        try:
            self._wait_until_ready()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_text[-4000:]}") from None
        return self

    def start_unready(self) -> None:
        """Start the process and wait until it reports its state."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "ottla.log").open("ab") as output:
            self.process = subprocess.Popen(
                self.command(), stdout=output, stderr=subprocess.STDOUT, env=clean_environment()
            )
        try:
            wait_for_port(self.http_port, self.process, START_TIMEOUT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_text[-4000:]}") from None

    def _wait_until_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.http("/health/ready")[0] != 200:
            assert time.monotonic() < deadline, "the node did not become ready in time"
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(timeout=0.01)
                raise AssertionError(f"the node exited with {code} before it was ready")

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self, timeout_s: float = 60) -> int:
        """Stop the node, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def http(self, path: str) -> tuple[int, str]:
        """Send a GET to the node's HTTP listener; return status and body."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    @property
    def cpu_s(self) -> float:
        """Return the processor time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_anon_bytes(self) -> int:
        """Return the anonymous resident memory of the process."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no RssAnon in /proc/PID/status")

    def __enter__(self) -> "OttlaNode":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            stop(self.process)


def clean_environment() -> dict[str, str]:
    """Return this environment without the variables that configure a node."""
    return {key: value for key, value in os.environ.items() if not key.startswith("KAFKA_") and key != "CLUSTER_ID"}


def run_ottla(
    *arguments: str, stdin: str | None = None, check: bool = True, timeout_s: float = 180
) -> subprocess.CompletedProcess[str]:
    """Run an `ottla` command to its end."""
    command = [sys.executable, "-m", "broker", *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=timeout_s, env=clean_environment(), check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"ottla {' '.join(arguments)} exited {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def json_of(*arguments: str) -> object:
    """Run an `ottla` command with `--json` and return the parsed output."""
    return json.loads(run_ottla(*arguments, "--json").stdout)

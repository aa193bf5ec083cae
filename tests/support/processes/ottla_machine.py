"""`ottla start --brokers` as a process: several brokers of one machine under one supervisor."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.kafka.apache_kafka import free_ports, stop
from tests.support.processes.ottla_cluster import free_port_block
from tests.support.processes.ottla_node import clean_environment

READY_S = 120.0
POLL_S = 0.05


class OttlaMachine:
    """The processes of one machine in `directory`; a context manager that starts them and waits until all are ready."""

    def __init__(self, directory: Path, brokers: int, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port_block(brokers)
        (self._http_port,) = free_ports(1)
        self._directory = directory
        self._log = directory / "machine.log"
        overrides = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.port + 1}",
            "ottla.http.listener": f"127.0.0.1:{self._http_port}",
            "log.dirs": str(directory / "data"),
            **(settings or {}),
        }
        self._command = [sys.executable, "-m", "broker", "start", "--brokers", str(brokers)]
        self._command += [part for name, value in overrides.items() for part in ("--override", f"{name}={value}")]

    def __enter__(self) -> "OttlaMachine":
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as output:
            self.process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, env=clean_environment(), cwd=self._directory
            )
        try:
            self._wait_until_ready()
        except BaseException:
            stop(self.process)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop(self.process)

    @property
    def bootstrap(self) -> str:
        """Return the address of the first broker."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Return all output of the supervisor and its brokers."""
        return self._log.read_text()

    def readiness(self) -> tuple[int, dict[str, Any]]:
        """Return status and body of the health answer; status 0 before the machine listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http_port}/health/ready", timeout=10) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            return 0, {}

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + READY_S
        while self.readiness()[0] != 200:
            assert self.process.poll() is None, f"the machine ended\n{self.log[-4000:]}"
            assert time.monotonic() < deadline_s, f"the machine is not ready in time\n{self.log[-4000:]}"
            time.sleep(POLL_S)

"""A real Prometheus that scrapes nodes every second, with alert rules that wait a second at most."""

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.clients.partition_states import until
from tests.support.kafka.apache_kafka import free_ports, stop, wait_for_port

START_TIMEOUT_S = 60
_FOR = re.compile(r"^( +for:) \w+$", re.MULTILINE)


class PrometheusServer:
    """A context manager that starts the server in `directory`. `rules` is the text of a rule file."""

    def __init__(self, directory: Path, targets: Sequence[str], rules: str) -> None:
        self._directory = directory
        self._targets = targets
        self._rules = _FOR.sub(r"\1 1s", rules)
        self._process: subprocess.Popen[bytes] | None = None
        (self._port,) = free_ports(1)

    def __enter__(self) -> "PrometheusServer":
        self._directory.mkdir(parents=True)
        (self._directory / "rules.yml").write_text(self._rules)
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "ottla", "static_configs": [{"targets": list(self._targets)}]}],
        }
        (self._directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        with (self._directory / "prometheus.log").open("wb") as output:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for_port(self._port, self._process, START_TIMEOUT_S)
            until(self._is_ready)
        except BaseException:
            stop(self._process)
            raise
        return self

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=60) as response:
                return bool(response.status == 200)
        except urllib.error.HTTPError as error:  # 503 while it reads its log
            error.close()
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            stop(self._process)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant query."""
        return list(self._get(f"query?{urllib.parse.urlencode({'query': expression})}")["result"])

    def firing(self) -> set[tuple[str, str]]:
        """Return name and instance of the alerts that fire."""
        alerts = self._get("alerts")["alerts"]
        return {
            (each["labels"]["alertname"], each["labels"].get("instance", ""))
            for each in alerts
            if each["state"] == "firing"
        }

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}", timeout=60) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return dict(answer["data"])

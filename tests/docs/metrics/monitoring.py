"""The dashboards and alert rules in `docs/monitoring`, and the metrics and labels that their expressions use."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.support.kafka.apache_kafka import REPOSITORY

FOLDER: Final = REPOSITORY / "docs" / "monitoring"
RULES: Final = FOLDER / "prometheus" / "alerts.yml"
MISSING: Final = "{} is not on PATH: install Debian's prometheus and prometheus-alertmanager"

_SELECTOR: Final = re.compile(r"\b((?:kafka|ottla|process|python|org_apache)_[a-z0-9_]+|up)(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_ADDED_BY_PROMETHEUS: Final = frozenset(("job", "instance"))


class Expression(NamedTuple):
    """A PromQL expression, and the panel or alert that it belongs to."""

    owner: str
    text: str

    def at(self, window: str) -> str:
        """Return the expression with Grafana's variables replaced: all instances and topics, a fixed window."""
        return self.text.replace("$__rate_interval", window).replace("$instance", ".*").replace("$topic", ".*")

    def metrics(self) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield each metric with the labels that select its series, without those that Prometheus adds."""
        for name, matchers in _SELECTOR.findall(self.text):
            yield name, frozenset(_MATCHER.findall(matchers)) - _ADDED_BY_PROMETHEUS


def dashboards() -> Mapping[Path, Any]:
    """Return the parsed dashboards by file."""
    return {path: json.loads(path.read_text()) for path in sorted((FOLDER / "dashboards").glob("*.json"))}


def panel_queries() -> list[Expression]:
    """Return the queries of all panels."""
    return [
        Expression(f"{path.stem}: {panel['title']}", target["expr"])
        for path, dashboard in dashboards().items()
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def alert_rules() -> list[dict[str, Any]]:
    """Return the alert rules of all groups."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alert_expressions() -> list[Expression]:
    """Return the expressions of all alerts."""
    return [Expression(rule["alert"], rule["expr"]) for rule in alert_rules()]


def missing(*programs: str) -> str | None:
    """Return the reason for a skip when a program is not installed."""
    return next((MISSING.format(program) for program in programs if shutil.which(program) is None), None)

"""Files of a run in `build/bench`: the table, its rows as JSON (the contract), and all details for the page."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.metadata import spark
from tests.benchmarks.report.rows import Row
from tests.support.kafka.apache_kafka import REPOSITORY

DIRECTORY = REPOSITORY / "build" / "bench"
CONTRACT = ("name", "ottla", "kafka", "unit", "ratio", "better")


@dataclass(frozen=True)
class GroupResult:
    """Rows of a group, the seconds that it took, and the reason if it failed."""

    name: str
    rows: list[Row]
    seconds: float
    failure: str = ""


@dataclass(frozen=True)
class Report:
    """A run: facts about machine and programs, and its groups."""

    facts: Mapping[str, str]
    groups: list[GroupResult]

    @property
    def rows(self) -> list[Row]:
        return [row for group in self.groups for row in group.rows]


def write(report: Report, directory: Path = DIRECTORY) -> str:
    """Write the three files; return the table and its footnotes."""
    directory.mkdir(parents=True, exist_ok=True)
    contract = [{key: getattr(row, key) for key in CONTRACT} for row in report.rows]
    (directory / "report.json").write_text(json.dumps(contract, indent=2) + "\n")
    (directory / "details.json").write_text(json.dumps(asdict(report), indent=2) + "\n")
    lines = ["| | Ottla | Apache Kafka | unit | ratio | better |", "|---|---:|---:|---|---:|---|"]
    lines += [f"| {r.name} | {r.ottla} | {r.kafka} | {r.unit} | {r.ratio} | {r.better} |" for r in report.rows]
    notes = [f"{group.name}: failed: {group.failure}" for group in report.groups if group.failure]
    notes += filter(None, [spark.sentence((r.name, r.ottla, r.kafka, r.unit, r.better) for r in report.rows)])
    table = "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in notes)
    (directory / "report.md").write_text(table)
    return table


def read(directory: Path = DIRECTORY) -> Report:
    """Return the report of the last run. Raises OSError if there is none."""
    details = json.loads((directory / "details.json").read_text())
    groups = [GroupResult(**{**group, "rows": [_row(row) for row in group["rows"]]}) for group in details["groups"]]
    return Report(details["facts"], groups)


def _row(fields: dict[str, Any]) -> Row:
    spreads = {key: fields[key] and tuple(fields[key]) for key in ("ottla_spread", "kafka_spread")}
    return Row(**{**fields, **spreads})

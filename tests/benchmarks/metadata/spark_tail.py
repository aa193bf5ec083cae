"""Latency from a client's request for a topic to its row in the table of changes, and to the topic in the state: the
job on Spark tails a real node, with micro-batches that begin when records arrive, against one Python process.

They run one after the other, so that neither uses the other's processor. A row counts when a reader finds it in a file;
the state has a topic by its commit, or by the memory of the single process.
"""

import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.metadata import spark_job
from tests.benchmarks.watched_process import Watched
from tests.benchmarks.workloads import LOWER
from tests.support.processes.ottla_node import OttlaNode

CREATIONS: Final = 20
WARM_UP: Final = 3
POLL_S: Final = 0.005
APART_S: Final = 0.35
"""Seconds between creations, not a multiple of any polling period."""
PATIENCE_S: Final = 300.0

Row = tuple[str, float | None, float | None, str, str]
NAME: Final = "metadata tail on Spark (against one process), from asking for a topic to"
FIGURES: Final = {
    f"{place}_{figure}": f"{NAME} {what}, {figure}"
    for place, what in (("row", "its row in changes"), ("state", "its state"))
    for figure in ("p50", "p99")
}


class Tail(Protocol):
    """A process that tails the metadata log."""

    def reached(self) -> int:
        """Return the offset up to which its state is applied."""
        ...


class SparkTail:
    """The Spark job; its commits report its offset."""

    def __init__(self, watched: Watched, out: Path) -> None:
        self._watched = watched
        self._commits = out / "_state" / "commits"

    def reached(self) -> int:
        assert self._watched.process.poll() is None, self._watched.complaints
        with contextlib.suppress(FileNotFoundError):
            return max((int(name[:20]) for name in os.listdir(self._commits) if name[:1].isdigit()), default=0)
        return 0


class ProcessTail:
    """The single process, which prints its offset."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._end = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def reached(self) -> int:
        assert self._watched.process.poll() is None, self._watched.complaints
        return self._end

    def _listen(self) -> None:
        assert self._watched.process.stdout is not None
        for line in self._watched.process.stdout:
            self._end = int(line)


@contextmanager
def on_spark(bootstrap: str, directory: Path) -> Iterator[Tail]:
    """Run the job with `directory` as output."""
    out = directory / "out"
    arguments = ["--bootstrap-server", bootstrap, "--out", str(out), "--tables", str(directory / "tables")]
    with Watched(spark_job.command(*arguments, "--trigger", "0"), spark_job.environment()) as watched:
        yield SparkTail(watched, out)


@contextmanager
def in_one_process(bootstrap: str, directory: Path) -> Iterator[Tail]:
    """Run the single process with `directory` as output."""
    command = [sys.executable, "-m", "tests.benchmarks.metadata.fold", bootstrap]
    with Watched([*command, "--tables", str(directory / "tables")]) as watched:
        yield ProcessTail(watched)


class ChangesTable:
    """Rows of `changes` as found by a reader that polls for new files."""

    def __init__(self, tables: Path) -> None:
        self._directory = tables / "changes"
        self._seen: set[Path] = set()
        self._offsets: dict[str, int] = {}

    def offset_of(self, topic: str) -> int | None:
        """Return the offset of the record that created a topic, if its row exists."""
        for path in set(self._directory.rglob("*.parquet")) - self._seen:
            with contextlib.suppress(FileNotFoundError):  # merged into another file meanwhile
                self._read(path)
                self._seen.add(path)
        return self._offsets.get(topic)

    def _read(self, path: Path) -> None:
        rows = pq.read_table(path, columns=["offset", "topic", "entity_type"], partitioning=None)
        rows = rows.filter(pc.field("entity_type") == "topic")
        self._offsets |= dict(zip(rows["topic"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def latencies(tail: Tail, tables: Path, admin: AdminClient) -> dict[str, float]:
    """Return latencies in milliseconds."""
    changes, row_ms, state_ms = ChangesTable(tables), [], []
    for number in range(WARM_UP + CREATIONS):
        topic = f"{tables.parent.name}-{number}"
        began = time.monotonic()
        created = admin.create_topics([NewTopic(topic, 1)])[topic]
        _until(lambda topic=topic: changes.offset_of(topic) is not None)  # type: ignore[misc]  # mypy guesses no defaults
        row_ms.append(1000 * (time.monotonic() - began))
        end = (changes.offset_of(topic) or 0) + 1
        _until(lambda end=end: tail.reached() >= end)  # type: ignore[misc]
        state_ms.append(1000 * (time.monotonic() - began))
        created.result()
        time.sleep(APART_S)
    both = {"row": row_ms[WARM_UP:], "state": state_ms[WARM_UP:]}
    medians = {f"{place}_p50": statistics.median(each) for place, each in both.items()}
    return medians | {f"{place}_p99": max(each) for place, each in both.items()}


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the time limit was exceeded"
        time.sleep(POLL_S)


def is_wanted(only: str) -> bool:
    """Whether the name of a row contains `only`."""
    return any(only in name for name in FIGURES.values())


def rows(*, is_spark_here: bool) -> list[Row]:
    """Return the report's rows; None for the job without Spark."""
    figures: dict[str, dict[str, float]] = {}
    sides = {"spark": on_spark, "process": in_one_process} if is_spark_here else {"process": in_one_process}
    with tempfile.TemporaryDirectory() as directory, OttlaNode(Path(directory, "node")) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        for name, side in sides.items():
            place = Path(directory, name)
            place.mkdir()
            with side(node.bootstrap, place) as tail:
                figures[name] = latencies(tail, place / "tables", admin)
            print(f"tail, {name}: {', '.join(f'{key} {ms:.0f} ms' for key, ms in figures[name].items())}", flush=True)
    ours, other = figures.get("spark", {}), figures["process"]
    return [(name, ours.get(figure), other[figure], "ms", LOWER) for figure, name in FIGURES.items()]

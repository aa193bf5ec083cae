"""The metadata job on Spark at its target size: a cluster of a million partitions, changed five million times, read
with the Kafka protocol on local[2], against one Python process that processes the same log with the same code.

Each reads the whole log and writes a snapshot, then another one after more changes; then again with the tables. The job
is a new process each time, as from cron: the start of Java, Spark and Python workers counts. The single process keeps
its state. Direct use: `python -m tests.benchmarks.metadata.spark [--partitions N] [--changes N] [--heap 1g]`.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.metadata import spark_job, spark_tail
from tests.benchmarks.metadata.log_server import LogServer, write_log
from tests.benchmarks.metadata.pipeline import CHANGES, CHANGES_PER_BATCH, PARTITIONS
from tests.benchmarks.metadata.spark_job import HEAP
from tests.benchmarks.watched_process import Spent, Watched
from tests.benchmarks.workloads import LOWER

LATER_BATCHES: Final = 111
BOUND_MB: Final = 4096

Row = tuple[str, float | None, float | None, str, str]
"""Name, the job's figure, the single process's figure, unit, better direction."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the log; the changes after the first snapshot are additional. `heap` is that of Spark's JVM."""

    partitions: int = PARTITIONS
    changes: int = CHANGES
    heap: str = HEAP


@dataclass(frozen=True)
class Run:
    """A snapshot, and the cost of writing it."""

    spent: Spent
    sha256: str
    size: int


Side = Callable[[LogServer, Path, Path | None, Sizes], Iterator[Run]]


def spark(server: LogServer, out: Path, tables: Path | None, sizes: Sizes) -> Iterator[Run]:
    """Write two snapshots with the job, each in its own process."""
    arguments = ["--bootstrap-server", server.address, "--out", str(out), "--once", "--json"]
    if tables is not None:
        arguments += ["--tables", str(tables)]
    for without in (LATER_BATCHES, 0):
        server.grow(without)
        with Watched(spark_job.command(*arguments), spark_job.environment(sizes.heap)) as job:
            manifest = json.loads(job.finish())
            spent = job.spent()
        yield Run(spent, manifest["sha256"], manifest["size"])


def one_process(server: LogServer, out: Path, tables: Path | None, _sizes: Sizes) -> Iterator[Run]:
    """Write two snapshots with the single process, which keeps its state in memory."""
    command = [sys.executable, "-m", "tests.benchmarks.metadata.fold", server.address, "--out", str(out)]
    if tables is not None:
        command += ["--tables", str(tables)]
    server.grow(LATER_BATCHES)
    with Watched(command) as fold:
        yield _heard(fold)
        server.grow(0)
        fold.spent()
        fold.write_line("again")
        yield _heard(fold)


def _heard(fold: Watched) -> Run:
    figures = json.loads(fold.read_line())
    return Run(fold.spent(), figures["sha256"], figures["size"])


SIDES: Final[dict[str, Side]] = {"spark": spark, "one process": one_process}
FIGURES: Final = {"": "s", ", processor time": "s", ", peak memory": "MB"}
"""Figures of each step: suffix of the row's name, and unit."""
STEPS: Final = ("the whole log", f"{LATER_BATCHES * CHANGES_PER_BATCH:,} more changes")


@contextmanager
def served_log(sizes: Sizes, directory: Path) -> Iterator[LogServer]:
    """Generate and serve the log."""
    path = directory / "metadata.log"
    write_log(path, sizes.partitions, sizes.changes + LATER_BATCHES * CHANGES_PER_BATCH)
    with LogServer(path) as server:
        yield server


def measure(sizes: Sizes, sides: dict[str, Side]) -> dict[tuple[str, bool, str], Run]:
    """Measure by side, tables and step. Raises AssertionError if snapshots differ between sides."""
    runs: dict[tuple[str, bool, str], Run] = {}
    with tempfile.TemporaryDirectory() as temporary, served_log(sizes, Path(temporary)) as server:
        for with_tables in (False, True):
            for name, side in sides.items():
                out, tables = Path(temporary, "out"), Path(temporary, "tables") if with_tables else None
                for step, run in zip(STEPS, side(server, out, tables, sizes), strict=True):
                    runs[name, with_tables, step] = run
                    print(f"{name}, {_what(step, with_tables)}: {run.spent}", flush=True)
                for directory in (out, tables):
                    shutil.rmtree(directory or out, ignore_errors=True)
    for step in STEPS:
        found = {(run.sha256, run.size) for (_, _, at), run in runs.items() if at == step}
        assert len(found) == 1, f"snapshots of {step} differ: {found}"
    return runs


def _what(step: str, with_tables: bool) -> str:
    return f"{step}{' with tables' if with_tables else ''}"


def scale_rows(runs: dict[tuple[str, bool, str], Run], sizes: Sizes) -> Iterator[Row]:
    """Return seconds and memory of each step, of the job and of the single process."""
    for with_tables in (False, True):
        for step in STEPS:
            ours, other = (_figures(runs.get((name, with_tables, step))) for name in SIDES)
            what = _what(step, with_tables)
            name = f"metadata of {sizes.partitions:,} partitions on Spark (against one process), {what}"
            for figure, unit in FIGURES.items():
                yield (f"{name}{figure}", ours.get(figure), other.get(figure), unit, LOWER)


def _figures(run: Run | None) -> dict[str, float]:
    """Return figures by the names of FIGURES; None for a side that did not run."""
    if run is None:
        return {}
    return dict(zip(FIGURES, (run.spent.seconds, run.spent.cpu_s, run.spent.peak_mb), strict=True))


def sentence(rows: Iterable[Row]) -> str:
    """Return a recommendation on Spark from the figures of this run; empty if the job did not run."""
    figures = {name.rpartition("(against one process), ")[2]: (ours, other) for name, ours, other, _, _ in rows}
    (ours, other), (ours_later, other_later) = (figures.get(step, (None, None)) for step in STEPS)
    if not ours or not other or not ours_later or not other_later:
        return ""
    verdict = "not worth it for speed" if ours > other else "not slower, but more to run"
    return (
        f"For one cluster of this size Spark is {verdict}: beside one Python process with the same code it took"
        f" {ours / other:.1f} times as long for the whole log, and {ours_later / other_later:.0f} times for {STEPS[1]},"
        " most of that to start; it pays for many clusters, for a log or a history beyond one machine, and where Spark"
        " runs anyway and people query the tables with it."
    )


def rows(only: str, sizes: Sizes | None = None) -> list[Row]:
    """Return the report's rows with names that contain `only`."""
    sizes = sizes or Sizes()
    wants_scale = any(only in name for name, *_ in scale_rows({}, sizes))
    wants_tail = spark_tail.is_wanted(only)
    if not wants_scale and not wants_tail:
        return []
    reason = spark_job.unavailable_reason()
    if reason is not None:
        print(f"skipped: the metadata job on Spark: {reason}")
    sides = {name: side for name, side in SIDES.items() if reason is None or name != "spark"}
    found = list(scale_rows(measure(sizes, sides), sizes)) if wants_scale else []
    return found + (spark_tail.rows(is_spark_here=reason is None) if wants_tail else [])


def main() -> int:
    """Print the figures; return 1 if the job exceeded its memory limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only figures whose name contains this")
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--heap", default=HEAP, help="memory of Spark's JVM")
    options = parser.parse_args()
    print(f"load of this machine: {', '.join(f'{each:.1f}' for each in os.getloadavg())}")
    found = rows(options.only, Sizes(options.partitions, options.changes, options.heap))
    for name, ours, other, unit, _ in found:
        print(f"{name}: {ours and round(ours, 3)} against {other and round(other, 3)} {unit}")
    print(sentence(found))
    return int(any(unit == "MB" and (ours or 0) > BOUND_MB for _, ours, _, unit, _ in found))


if __name__ == "__main__":
    sys.exit(main())

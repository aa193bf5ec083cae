"""`make bench`: one table of Ottla against Apache Kafka, both measured in this run, on this machine, with the same
client.

Runs of both brokers alternate; the first of each is discarded, and medians count. Throughput is measured with
librdkafka: kcat if it is installed (without Python objects per record), otherwise confluent-kafka; latency and start
with the minimal client in `wire.py`. Writes `build/bench/report.md` and `report.json`.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from tests.benchmarks import coordinator_failover, replication, sides, wire
from tests.benchmarks.coordinators import ConsumeCommitted, OffsetCommits, Rebalance, ShareGroup, TransactionalProduce
from tests.benchmarks.metadata import pipeline, scale, spark
from tests.benchmarks.sides import Side
from tests.benchmarks.tiered import measure as tiered
from tests.benchmarks.tiered import source as tiered_source
from tests.benchmarks.workloads import (
    Consume,
    HalfLoad,
    HandShakes,
    OneMessageRequests,
    Produce,
    SyncProduce,
    Workload,
    load_acls,
)
from tests.support.kafka.apache_kafka import REPOSITORY

REPORT = REPOSITORY / "build" / "bench"
RUNS = 5
METADATA_TOPICS = 100_000
ACLS = 10_000

Maker = Callable[[Path], contextlib.AbstractContextManager[Side]]


@dataclass(frozen=True)
class Row:
    """One row of the report. None where a broker has no figure."""

    name: str
    ottla: float | None
    kafka: float | None
    unit: str
    ratio: float | None
    better: str


def row(name: str, ottla: float | None, kafka: float | None, unit: str, better: str) -> Row:
    """Return a row with its ratio, Ottla's figure divided by Kafka's."""
    ratio = round(ottla / kafka, 3) if ottla is not None and kafka else None
    return Row(name, ottla and round(ottla, 3), kafka and round(kafka, 3), unit, ratio, better)


def measure_starts(makers: Sequence[Maker], runs: int) -> dict[str, tuple[float, float]]:
    """Return by broker the median seconds from the start of its process to the first acknowledged produce of a waiting
    client, and anonymous MB when idle. Preparation (a format step) is not counted.
    """
    figures: dict[str, list[tuple[float, float]]] = {make.__name__: [] for make in makers}
    wire.warm_up()
    for _ in range(runs):
        for make in makers:
            with tempfile.TemporaryDirectory() as directory, make(Path(directory)) as side:
                wire.first_acknowledged_produce(side.bootstrap)
                figures[make.__name__].append((side.age_s(), side.rss_anon_mb()))
    return {name: (median(took for took, _ in each), median(mb for _, mb in each)) for name, each in figures.items()}


def compare(workload: Workload, both: Sequence[Side], runs: int) -> dict[str, list[dict[str, float]]]:
    """Run the workload alternately on both brokers; return the figures of each counted run, by broker."""
    figures: dict[str, list[dict[str, float]]] = {side.name: [] for side in both}
    for number in range(runs + 1):
        for side in both:
            result = workload.run(side)
            if number:
                figures[side.name].append(result)
    return figures


def rows_of(workload: Workload, both: Sequence[Side], runs: int) -> list[Row]:
    """Return the workload's rows, one per figure."""
    figures = compare(workload, both, runs)
    rows = []
    for name, (unit, better) in workload.figures.items():
        medians = {side: median(run[name] for run in results) for side, results in figures.items()}
        rows.append(row(name, medians.get("ottla"), medians.get("kafka"), unit, better))
    return rows


def run(asked: int | None, only: str) -> list[Row]:
    """Measure everything whose name contains `only`, `asked` times or the workload's default number of times."""
    runs = RUNS if asked is None else asked
    reason = sides.kafka_unavailable()
    if reason is not None:
        print(f"skipped: Apache Kafka: {reason}")
    makers = [sides.ottla] if reason is not None else [sides.ottla, sides.kafka]
    rows: list[Row] = []
    if only in "start":
        starts = measure_starts(makers, runs)
        (start, memory), other = starts["ottla"], starts.get("kafka", (None, None))
        rows.append(row("start to first acknowledged produce", start, other[0], "s", "lower"))
        rows.append(row("anonymous memory after start", memory, other[1], "MB", "lower"))
    workloads: list[Workload] = [
        workload
        for size, count in ((100, 1_000_000), (1000, 300_000), (10_000, 30_000))
        for workload in (Produce(size, count), Consume(size, 2 * count))
    ]
    others: Sequence[Workload] = (OneMessageRequests(), SyncProduce(), HalfLoad(), *coordinator_workloads())
    chosen = [each for each in (*workloads, *others) if any(only in name for name in each.figures)]
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        both = [stack.enter_context(make(Path(directory) / make.__name__)) for make in makers] if chosen else []
        for workload in chosen:
            rows += rows_of(workload, both, runs)
            print(f"{rows[-1].name}: {rows[-1].ottla} against {rows[-1].kafka} {rows[-1].unit}", flush=True)
        memory_busy = {side.name: side.rss_anon_mb() for side in both}
        if both:
            rows.append(
                row("anonymous memory after load", memory_busy["ottla"], memory_busy.get("kafka"), "MB", "lower")
            )
    return (
        rows
        + acl_rows(only, runs, makers)
        + tls_rows(only, runs, makers)
        + coordinator_rows(only)
        + metadata_rows(only)
        + replication_rows(only, asked)
        + tiered_rows(only, asked)
        + pipeline_rows(only)
        + spark_rows(only)
        + source_rows(only)
    )


def acl_rows(only: str, runs: int, makers: Sequence[Maker]) -> list[Row]:
    """Measure one-message requests with a standard authorizer: without ACLs, and with 10,000."""
    counts = {OneMessageRequests(f", {count:,} ACLs"): count for count in (0, ACLS)}
    rows: list[Row] = []
    if not any(only in name for workload in counts for name in workload.figures):
        return rows
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(make(Path(directory) / make.__name__, sides.AUTHORIZED))
            for make in (sides.ottla, sides.kafka)
            if make in makers
        ]
        for workload, count in counts.items():
            for side in both:
                if count:
                    load_acls(side.bootstrap, count)
            rows += rows_of(workload, both, runs)
    return rows


def tls_rows(only: str, runs: int, makers: Sequence[Maker]) -> list[Row]:
    """Measure transfers of 1 KB records, single requests and hand-shakes over TLS."""
    condition = ", TLS"
    workloads: Sequence[Workload] = (
        Produce(1000, 300_000, condition),
        Consume(1000, 600_000, condition),
        OneMessageRequests(condition),
        HandShakes(),
    )
    chosen = [each for each in workloads if any(only in name for name in each.figures)]
    if not chosen:
        return []
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        settings = sides.tls_settings(Path(directory))
        both = [
            stack.enter_context(make(Path(directory) / make.__name__, settings.broker, settings.client))
            for make in (sides.ottla, sides.kafka)
            if make in makers
        ]
        return [each for workload in chosen for each in rows_of(workload, both, runs)]


def coordinator_workloads() -> Sequence[Workload]:
    """Return the workloads of transactions and groups."""
    rebalances = [Rebalance(members, protocol) for members in (50, 500) for protocol in ("classic", "consumer")]
    transactions = [TransactionalProduce(producers) for producers in (10, 100)]
    return (*transactions, ConsumeCommitted(1000, 100_000), OffsetCommits(), *rebalances, ShareGroup())


def coordinator_rows(only: str) -> list[Row]:
    """Measure the load of a coordinator with many offsets, once: three clusters, of which each is filled anew."""
    return [
        row(name, ours, theirs, unit, better) for name, ours, theirs, unit, better in coordinator_failover.rows(only)
    ]


def metadata_rows(only: str) -> list[Row]:
    """Measure controllers at the size of KIP-630's example, once: it takes minutes, and varies little."""
    if not any(only in name for name, _, _ in scale.FIGURES.values()):
        return []
    figures = scale.measure(METADATA_TOPICS)
    both = [figures["ottla"], figures.get("kafka", {})]
    rows = []
    for figure, (name, unit, better) in scale.FIGURES.items():
        ours, theirs = (scale.scaled(figure, each.get(figure)) for each in both)
        rows.append(row(name, ours, theirs, unit, better))
    return rows


def replication_rows(only: str, runs: int | None) -> list[Row]:
    """Measure three nodes of each broker: the cost of replication, and the unavailability after a leader is killed."""
    measured = replication.measure(only, runs, replication.makes_here())
    return [row(name, ours, theirs, unit, better) for name, ours, theirs, unit, better in measured]


def tiered_rows(only: str, runs: int | None) -> list[Row]:
    """Measure remote storage: KIP-405's measurements against Apache Kafka, the others against the store's own speed."""
    measured = tiered.measure(only, runs, tiered.makes_here())
    return [row(name, ours, theirs, unit, better) for name, ours, theirs, unit, better in measured]


def pipeline_rows(only: str) -> list[Row]:
    """Measure the core of the metadata pipeline against the node's own replay, which could replace it."""
    return [row(name, ours, theirs, unit, better) for name, ours, theirs, unit, better in pipeline.rows(only)]


def spark_rows(only: str) -> list[Row]:
    """Measure the metadata job on Spark against one process with the same result, once: minutes and gigabytes."""
    return [row(name, ours, theirs, unit, better) for name, ours, theirs, unit, better in spark.rows(only)]


def source_rows(only: str) -> list[Row]:
    """Measure tiered records read for Spark against a reader of single records, and against reading the bytes only."""
    return [row(name, ours, theirs, unit, better) for name, ours, theirs, unit, better in tiered_source.rows(only)]


def write_report(rows: Sequence[Row]) -> str:
    """Write both files; return the table and its footnotes."""
    REPORT.mkdir(parents=True, exist_ok=True)
    (REPORT / "report.json").write_text(json.dumps([asdict(each) for each in rows], indent=2) + "\n")
    lines = ["| | Ottla | Apache Kafka | unit | ratio | better |", "|---|---:|---:|---|---:|---|"]
    lines += [f"| {r.name} | {r.ottla} | {r.kafka} | {r.unit} | {r.ratio} | {r.better} |" for r in rows]
    said = spark.sentence((r.name, r.ottla, r.kafka, r.unit, r.better) for r in rows)
    table = "\n".join(lines) + "\n" + (f"\n{said}\n" if said else "")
    (REPORT / "report.md").write_text(table)
    return table


def main() -> int:
    """Parse the command line, measure and report; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, help=f"counted runs per side ({RUNS}, fewer of what takes minutes)")
    parser.add_argument("--only", default="", help="only figures whose name contains this")
    options = parser.parse_args()
    print(write_report(run(options.runs, options.only)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

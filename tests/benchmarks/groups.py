"""Groups of benchmarks, in the order of the report."""

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks import brokers_of_machine, coordinator_failover, replication, sides, wire
from tests.benchmarks.clients import franz_go, many_partitions
from tests.benchmarks.clients.java import EndToEnd, JavaConsume, JavaProduce
from tests.benchmarks.clients.many_clients import Connections, Consumers
from tests.benchmarks.clients.measured import Topics
from tests.benchmarks.coordinators import (
    ConsumeCommitted,
    OffsetCommits,
    PacedTransactions,
    Rebalance,
    ShareGroup,
    TransactionalProduce,
)
from tests.benchmarks.metadata import pipeline, scale, spark
from tests.benchmarks.replication_cluster import trio
from tests.benchmarks.report.rows import Row, compared, of_runs, once
from tests.benchmarks.sides import Maker
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

RUNS: Final = 5
QUICK_RUNS: Final = 1
MINUTES_RUNS: Final = 3
"""Counted runs of workloads that take many seconds each."""
FEWEST_RUNS: Final = 2
LIMIT_S: Final = 90 * 60
"""Seconds that a whole run may take on two cores."""
METADATA_TOPICS: Final = 100_000
ACLS: Final = 10_000
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
LARGE: Final[Mapping[str, str]] = {"batch.size": "65536", "linger.ms": "10"}
ONE_ACK: Final[Mapping[str, str]] = {"acks": "1", "enable.idempotence": "false"}


@dataclass(frozen=True)
class Ask:
    """Extent of a run: rows with `only` in their names, `runs` counted runs a side (None: the default of each
    group), and fewer records if `quick`. `share`: part of the default number of runs that the time allows.
    """

    only: str = ""
    runs: int | None = None
    quick: bool = False
    share: float = 1.0

    def runs_or(self, default: int) -> int:
        """Return the counted runs of a workload. A slow host lowers the default of workloads that take long, not below
        FEWEST_RUNS.
        """
        if self.runs is not None:
            return self.runs
        if self.quick:
            return QUICK_RUNS
        if default > MINUTES_RUNS:
            return default
        with_discarded_run = default + 1
        return min(default, max(FEWEST_RUNS, int(with_discarded_run * self.share) - 1))

    def records(self, count: int) -> int:
        """Return how many of `count` records a workload sends."""
        return count // 3 if self.quick else count

    def wants(self, names: Mapping[str, object]) -> bool:
        return any(self.only in name for name in names)


class Group(NamedTuple):
    """A group of rows. `is_quick`: part of a quick run. `minutes`: duration of a whole run on a quiet host.

    `measure` may yield rows as it goes, so that a failure does not lose those before it.
    """

    name: str
    measure: Callable[[Ask], Iterable[Row]]
    is_quick: bool
    minutes: float


def share_of_runs(elapsed_s: float, done: Sequence[Group], ahead: Sequence[Group], limit_s: float = LIMIT_S) -> float:
    """Return the part of the runs of the groups `ahead` that fits into the rest of `limit_s`, at the pace of the groups
    that are `done`; at most 1.
    """
    planned_s = 60 * sum(group.minutes for group in done)
    slowness = max(1.0, elapsed_s / planned_s) if planned_s else 1.0
    ahead_s = 60 * sum(group.minutes for group in ahead) * slowness
    return min(1.0, max(0.0, limit_s - elapsed_s) / ahead_s) if ahead_s else 1.0


def makers() -> Sequence[Maker]:
    """Return what starts the brokers that can be measured on this machine."""
    return [sides.ottla] if sides.kafka_unavailable() else [sides.ottla, sides.kafka]


def _compare(
    ask: Ask,
    workloads: Sequence[Workload],
    default_runs: int,
    more: Mapping[str, str] = sides.NOTHING_MORE,
    client: Mapping[str, str] = sides.NOTHING_MORE,
    *,
    with_memory: bool = False,
) -> Iterator[Row]:
    """Run the wanted workloads on both brokers, alternately; the first run of each is discarded."""
    chosen = [each for each in workloads if ask.wants(each.figures)]
    if not chosen:
        return
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        both = [stack.enter_context(make(Path(directory) / make.__name__, more, client)) for make in makers()]
        for workload in chosen:
            yield from compared(workload, both, ask.runs_or(default_runs))
        if with_memory:
            figures: Mapping[str, float | None] = {side.name: side.rss_anon_mb() for side in both}
            yield once("anonymous memory after load", figures.get("ottla"), figures.get("kafka"), "MB", "lower")


def _starts(ask: Ask) -> list[Row]:
    """Measure seconds from the start of a process to the first acknowledged produce of a waiting client, and anonymous
    MB when idle. Preparation (a format step) is not counted.
    """
    figures = {"start to first acknowledged produce": ("s", "lower"), "anonymous memory after start": ("MB", "lower")}
    if not ask.wants(figures):
        return []
    results: dict[str, list[dict[str, float]]] = {}
    wire.warm_up()
    for _ in range(ask.runs_or(RUNS)):
        for make in makers():
            with tempfile.TemporaryDirectory() as directory, make(Path(directory)) as side:
                wire.first_acknowledged_produce(side.bootstrap)
                measured = dict(zip(figures, (side.age_s(), side.rss_anon_mb()), strict=True))
                results.setdefault(side.name, []).append(measured)
    return of_runs(figures, results)


def _transfers(ask: Ask) -> Iterable[Row]:
    workloads: list[Workload] = [
        workload
        for size, count in ((100, 1_000_000), (1000, 300_000), (10_000, 30_000))
        for workload in (Produce(size, count), Consume(size, 2 * count))
    ]
    workloads += [OneMessageRequests(), SyncProduce(), HalfLoad()]
    return _compare(ask, workloads, RUNS, with_memory=True)


def _java(ask: Ask) -> Iterable[Row]:
    """Measure Apache Kafka's tools: defaults, batches of 64 KB, acks, codecs, transactions, partitions."""
    count, eight = ask.records(600_000), Topics(8)
    workloads: list[Workload] = [
        JavaProduce("1 KB, defaults, 8 partitions", 1000, count, eight),
        JavaProduce("1 KB, 64 KB batches, 8 partitions", 1000, count, eight, LARGE),
        JavaProduce("100 B, defaults, 8 partitions", 100, 5 * count, eight),
        JavaProduce("1 KB, acks=1, 8 partitions", 1000, count, eight, ONE_ACK),
        JavaConsume("1 KB, 1 partition", 1000, count, Topics(1)),
        JavaConsume("100 B, 8 partitions", 100, 5 * count, eight),
        EndToEnd(),
    ]
    if not ask.quick:
        workloads += [
            JavaProduce(f"1 KB, defaults, {partitions} partitions", 1000, count, Topics(partitions))
            for partitions in (1, 100, 1000)
        ]
        workloads += [
            JavaProduce(f"1 KB, {codec}, 8 partitions", 1000, count, eight, {"compression.type": codec})
            for codec in CODECS
        ]
        workloads += [
            JavaProduce("1 KB, transactions of 100 ms, 8 partitions", 1000, count, eight, transaction_ms=100),
            JavaConsume("1 KB, 100 partitions", 1000, count, Topics(100)),
            JavaConsume("1 KB, lz4, 8 partitions", 1000, count, eight, {"compression.type": "lz4"}),
        ]
    return _compare(ask, workloads, MINUTES_RUNS)


def _franz_go(ask: Ask) -> Iterable[Row]:
    if reason := franz_go.refusal():
        print(f"skipped: franz-go: {reason}")
        return []
    count = ask.records(600_000)
    return _compare(ask, [franz_go.FranzGo(1000, count, Topics(8))], MINUTES_RUNS)


def _many_clients(ask: Ask) -> Iterable[Row]:
    return _compare(ask, [Consumers(10), Consumers(500), Connections()], MINUTES_RUNS)


def _many_partitions(ask: Ask) -> list[Row]:
    return many_partitions.measure(ask.only, ask.runs_or(MINUTES_RUNS), makers())


def _coordinators(ask: Ask) -> Iterable[Row]:
    rebalances = [Rebalance(members, protocol) for members in (50, 500) for protocol in ("classic", "consumer")]
    transactions = [TransactionalProduce(producers) for producers in (10, 100)]
    workloads: Sequence[Workload] = (
        *transactions,
        PacedTransactions(),
        ConsumeCommitted(1000, 100_000),
        OffsetCommits(),
        *rebalances,
        ShareGroup(),
    )
    return _compare(ask, workloads, MINUTES_RUNS)


def _brokers_of_one_machine(ask: Ask) -> Iterable[Row]:
    """Measure `ottla start --brokers N` against one Apache Kafka on the same cores."""
    return brokers_of_machine.measure(ask.only, ask.runs_or(MINUTES_RUNS))


def _acls(ask: Ask) -> list[Row]:
    """Measure one-message requests with a standard authorizer: without ACLs, and with 10,000."""
    counts = {OneMessageRequests(f", {count:,} ACLs"): count for count in (0, ACLS)}
    if not any(ask.wants(workload.figures) for workload in counts):
        return []
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        both = [stack.enter_context(make(Path(directory) / make.__name__, sides.AUTHORIZED)) for make in makers()]
        for workload, count in counts.items():
            for side in both:
                if count:
                    load_acls(side.bootstrap, count)
            rows += compared(workload, both, ask.runs_or(MINUTES_RUNS))
    return rows


def _tls(ask: Ask) -> Iterator[Row]:
    """Measure transfers of 1 KB records, single requests and hand-shakes over TLS."""
    condition = ", TLS"
    workloads: Sequence[Workload] = (
        Produce(1000, 300_000, condition),
        Consume(1000, 600_000, condition),
        OneMessageRequests(condition),
        HandShakes(),
    )
    if not any(ask.wants(each.figures) for each in workloads):
        return
    with tempfile.TemporaryDirectory() as directory:
        settings = sides.tls_settings(Path(directory))
        yield from _compare(ask, workloads, MINUTES_RUNS, settings.broker, settings.client)


def _three_nodes(ask: Ask) -> Iterable[Row]:
    """Measure the cost of replication, and produce while a leader is killed or a broker returns."""
    return replication.measure(ask.only, ask.runs_or, replication.makes_here())


def _three_nodes_java(ask: Ask) -> list[Row]:
    """Measure the Java producer at its defaults with factor 3: acks=all, idempotent."""
    topics, count = Topics(9, 3), ask.records(600_000)
    workload = JavaProduce("1 KB, defaults, factor 3, 9 partitions", 1000, count, topics)
    if not ask.wants(workload.figures):
        return []
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        both = [stack.enter_context(trio(make, Path(directory) / make)) for make in replication.makes_here()]
        return compared(workload, both, ask.runs_or(MINUTES_RUNS))


def _coordinator_load(ask: Ask) -> list[Row]:
    """Measure the load of a coordinator with many offsets, once: three clusters, of which each is filled anew."""
    return [once(*each) for each in coordinator_failover.rows(ask.only)]


def _metadata(ask: Ask) -> list[Row]:
    """Measure controllers at the size of KIP-630's example, once: it takes minutes, and varies little."""
    if not any(ask.only in name for name, _, _ in scale.FIGURES.values()):
        return []
    figures = scale.measure(METADATA_TOPICS)
    both = [figures["ottla"], figures.get("kafka", {})]
    rows = []
    for figure, (name, unit, better) in scale.FIGURES.items():
        ours, theirs = (scale.scaled(figure, each.get(figure)) for each in both)
        rows.append(once(name, ours, theirs, unit, better))
    return rows


def _tiered(ask: Ask) -> Iterable[Row]:
    """Measure remote storage: KIP-405's measurements against Apache Kafka, the others against the store's own speed."""
    return tiered.measure(ask.only, ask.runs_or(MINUTES_RUNS), tiered.makes_here())


def _pipeline(ask: Ask) -> list[Row]:
    """Measure the core of the metadata pipeline against the node's own replay, and tiered records for Spark."""
    return [once(*each) for each in (*pipeline.rows(ask.only), *tiered_source.rows(ask.only))]


def _spark(ask: Ask) -> list[Row]:
    """Measure the metadata job on Spark against one process with the same result, once: minutes and gigabytes."""
    return [once(*each) for each in spark.rows(ask.only)]


GROUPS: Final = (
    Group("Start", _starts, is_quick=True, minutes=0.3),
    Group("One node, librdkafka", _transfers, is_quick=True, minutes=1.9),
    Group("One node, Java", _java, is_quick=True, minutes=15.3),
    Group("One node, franz-go", _franz_go, is_quick=True, minutes=0.6),
    Group("Many clients", _many_clients, is_quick=True, minutes=0.9),
    Group("Many partitions", _many_partitions, is_quick=True, minutes=7.2),
    Group("Coordinators", _coordinators, is_quick=True, minutes=3.2),
    Group("ACLs", _acls, is_quick=False, minutes=0.5),
    Group("TLS", _tls, is_quick=False, minutes=1.0),
    Group("Brokers of one machine", _brokers_of_one_machine, is_quick=False, minutes=1.6),
    Group("Three nodes", _three_nodes, is_quick=False, minutes=6.0),
    Group("Three nodes, Java", _three_nodes_java, is_quick=True, minutes=2.6),
    Group("Load of a coordinator", _coordinator_load, is_quick=False, minutes=0.3),
    Group("Metadata of 1,000,000 partitions", _metadata, is_quick=False, minutes=3.8),
    Group("Remote storage", _tiered, is_quick=False, minutes=24.7),
    Group("Metadata pipeline", _pipeline, is_quick=False, minutes=1.4),
    Group("Spark", _spark, is_quick=False, minutes=3.8),
)

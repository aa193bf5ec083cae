"""Figures of `ottla top` between two samples, and the frame as text."""

import io
from dataclasses import replace

from rich.console import Console

from broker.cli.diagnosis.facts import (
    BrokerFacts,
    ClusterFacts,
    GroupFacts,
    LogDirFacts,
    MetadataQuorumFacts,
    NodeFacts,
    PartitionFacts,
    TrafficFacts,
    VoterFacts,
)
from broker.cli.monitor.figures import Figures, figures_of
from broker.cli.monitor.screen import KEYS, frame, text_of

NOW_MS = 1_800_000_000_000


def broker(id: int, seconds: int, load: int = 1) -> BrokerFacts:
    """A broker after `seconds`, with 1 MiB in, 2 MiB out and 100 requests per second for each unit of load."""
    rate = seconds * load
    directory = LogDirFacts("/data", None, 1_000, 400, 100)
    node = NodeFacts(
        uptime_ms=seconds * 1000,
        bytes_in=rate << 20,
        bytes_out=rate << 21,
        requests=rate * 100,
        cpu_ms=rate * 100,
        loop_lag_micros=1_500,
        memory_bytes=200 << 20,
        connections=7,
        log_dirs=[directory],
        traffic=[TrafficFacts("orders", rate << 20, rate << 21, rate * 10), TrafficFacts("idle", 5, 5, 5)],
    )
    return BrokerFacts(id, f"host-{id}:9092", node=node, log_dirs=[directory])


def cluster(seconds: int) -> ClusterFacts:
    return ClusterFacts(
        NOW_MS + seconds * 1000,
        [broker(1, seconds), broker(2, seconds, load=3), BrokerFacts(3, "host-3:9092", failure="timed out")],
        MetadataQuorumFacts(2, 4, 90, [VoterFacts(1, 95, NOW_MS - 500, 0), VoterFacts(2, 100, NOW_MS, 0)]),
        [
            PartitionFacts("orders", 0, 1, [1, 2], [1, 2]),
            PartitionFacts("orders", 1, 2, [2, 3], [2]),
            PartitionFacts("idle", 0, -1, [3], [3]),
        ],
        groups=[GroupFacts("a", "classic", "Stable", 1), GroupFacts("b", "consumer", "Stable", 1)],
        cluster_id="c1",
    )


def figures(order: str = "in") -> Figures:
    return figures_of(cluster(12), cluster(10), {"a": 5, "b": 700}, order)


def test_rates_are_those_between_the_samples() -> None:
    first, second, gone = figures().brokers
    assert (first.id, first.bytes_in, first.bytes_out, first.requests) == (2, 3 << 20, 3 << 21, 300)
    assert (second.id, second.cpu, second.loop_lag_ms, second.disk_used) == (1, 0.1, 1.5, 0.6)
    assert (gone.id, gone.state, gone.bytes_in) == (3, "no answer", None)


def test_first_sample_and_restarted_node_have_no_rates() -> None:
    assert {row.bytes_in for row in figures_of(cluster(12), None, {}).brokers} == {None}
    assert {row.bytes_in for row in figures_of(cluster(2), cluster(10), {}).brokers} == {None}


def test_brokers_are_sorted_by_the_chosen_order() -> None:
    assert [row.id for row in figures("id").brokers] == [1, 2, 3]
    assert [row.id for row in figures("requests").brokers] == [2, 1, 3]


def test_topics_and_groups_are_sorted_by_weight() -> None:
    assert [(row.name, row.bytes_in, row.messages_in) for row in figures().topics] == [
        ("orders", 4 << 20, 40),
        ("idle", 0, 0),
    ]
    assert [(row.id, row.lag) for row in figures().groups] == [("b", 700), ("a", 5)]


def test_partitions_and_quorum_are_counted() -> None:
    found = figures()
    assert (found.offline, found.under_replicated, found.partition_count, found.topic_count) == (1, 1, 3, 2)
    assert [(row.id, row.role, row.lag, row.silent_ms) for row in found.quorum] == [
        (1, "voter", 5, 500),
        (2, "leader", 0, None),
    ]


def test_text_shows_every_part() -> None:
    text = text_of(figures(), 100)
    for part in ("controller 2", "1 offline", "no answer", "orders", "3.0 MiB", "300", "BROKERS", "GROUPS", "700"):
        assert part in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_small_terminal_shows_what_fits() -> None:
    many = replace(figures(), topics=[*figures().topics] * 50, groups=[*figures().groups] * 50)
    console = Console(width=50, height=20, file=io.StringIO())
    lines = console.render_lines(frame(many, 50, 20))
    assert len(lines) <= 20
    text = "\n".join("".join(segment.text for segment in line) for line in lines)
    assert "BROKERS" in text
    assert "more)" in text


def test_header_breaks_between_figures_on_a_terminal_of_80_columns() -> None:
    large = replace(figures(), cluster_id="A" * 22, topic_count=10_000, partition_count=100_000, under_replicated=1234)
    note = f"sorted by requests  PAUSED   {KEYS}"
    lines = text_of(large, 80, note).splitlines()
    assert lines[:4] == [
        f"ottla top  08:00:12 UTC  cluster {'A' * 22}  controller 2",
        note,
        "10,000 topics  100,000 partitions  1 offline  0 under min ISR",
        "1,234 under-replicated",
    ]
    assert text_of(large, 160, note).splitlines()[0].endswith(f"controller 2  {note}")

"""Replicated partitions: three nodes of Ottla or Apache Kafka on this machine, factor 3, min.insync.replicas 2,
acks=all.

Measures the cost of a write to all replicas (throughput to three partitions with different leaders; latency at a low
rate), the unavailability after SIGKILL of a leader, and the return of a broker with thousands of partitions. Direct
use: `python -m tests.benchmarks.replication [--runs N] [--only TEXT]`.
"""

import argparse
import contextlib
import json
import select
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.benchmarks.replication_cluster import IDS, TUNED, Trio, trio
from tests.benchmarks.report.rows import Row, Workload, compared
from tests.benchmarks.returning_broker import ReturningBroker
from tests.benchmarks.wire import Wire, check_produced, error_of_produced, produce_frame
from tests.benchmarks.workloads import HIGHER, LOWER, costs, fill, write_lines
from tests.support.kafka.apache_kafka import unavailable_reason
from tests.support.kafka.kraft_nodes import Make

ACKS_ALL: Final = -1
RETRY_S: Final = 0.002
GIVE_UP_S: Final = 60.0
KILLS: Final = 3
RETURNS: Final = 1
RUNS: Final = 3

Figures = dict[str, float]


class ReplicatedProduce:
    """MB/s to three partitions, and the processor time of all three brokers per GB."""

    def __init__(self, size: int, count: int) -> None:
        self._size, self._count = size, count
        self._rate, self._cost = f"replicated produce {size} B", f"replicated produce {size} B, brokers' CPU"
        self.figures = {self._rate: ("MB/s", HIGHER), self._cost: ("s/GB", LOWER)}

    def run(self, side: Trio) -> Figures:
        """Run once, with a new topic."""
        topic = f"replicated-{uuid.uuid4().hex}"
        write_lines(self._size, self._count)
        side.create_topic(topic)
        started, cpu = time.monotonic(), side.cpu()
        fill(side.bootstrap, topic, self._size, self._count, acks="all")
        took, used = time.monotonic() - started, side.cpu() - cpu
        side.delete_topic(topic)
        megabytes = self._size * self._count / 1e6
        return {self._rate: megabytes / took, **costs(self._cost, used, 1000 / megabytes)}


class ReplicatedLatency:
    """Milliseconds from sending one record to its acknowledgement by all replicas, at a constant low rate."""

    RATE, COUNT, WARM_UP = 200, 1_600, 400

    def __init__(self) -> None:
        self.figures = {
            "replicated produce at 200/s p50": ("ms", LOWER),
            "replicated produce at 200/s p99": ("ms", LOWER),
        }

    def run(self, side: Trio) -> Figures:
        """Run once, with a new topic of one partition."""
        topic = f"latency-{uuid.uuid4().hex}"
        side.create_topic(topic)
        frame, latencies = produce_frame(topic, acks=ACKS_ALL), []
        with Wire(side.node(IDS[0]).address) as wire:
            due = time.perf_counter()
            for _ in range(self.WARM_UP + self.COUNT):
                due += 1 / self.RATE
                time.sleep(max(0.0, due - time.perf_counter()))
                started = time.perf_counter()
                wire.send(frame)
                answer = wire.answer()
                latencies.append((time.perf_counter() - started) * 1000)
                check_produced(answer)
        side.delete_topic(topic)
        hundredths = statistics.quantiles(latencies[self.WARM_UP :], n=100)
        return {name: hundredths[at] for name, at in zip(self.figures, (49, 98), strict=True)}


class Failover:
    """Seconds from SIGKILL of a leader to the next acknowledgement; `of_controller`: of a leader that is also the
    active controller, so that the quorum has to elect first.
    """

    def __init__(self, label: str, *, of_controller: bool) -> None:
        self._name = f"failover, {label}"
        self._of_controller = of_controller
        self._topics: dict[str, str] = {}
        self.figures = {self._name: ("s", LOWER)}

    def run(self, side: Trio) -> Figures:
        """Kill once; restore the cluster before returning."""
        topic = self._topics.get(side.name)
        if topic is None:
            topic = self._topics[side.name] = f"failover-{uuid.uuid4().hex}"
            side.create_topic(topic)
        controller = side.active_controller()
        victim = controller if self._of_controller else next(each for each in IDS if each != controller)
        frame = produce_frame(topic, acks=ACKS_ALL, partition=victim - 1)
        with Wire(side.node(victim).address) as wire:
            wire.send(frame)
            check_produced(wire.answer())
        took = _until_acknowledged(side, frame, victim)
        side.restore(victim, topic)
        return {self._name: took}


def _until_acknowledged(side: Trio, frame: bytes, victim: int) -> float:
    """Kill the leader, and send the record to both survivors until one of them acknowledges it."""
    with contextlib.ExitStack() as stack:
        wires = {}
        for each in IDS:
            if each != victim:
                wire = stack.enter_context(Wire(side.node(each).address))
                wires[wire.socket] = wire
        side.node(victim).kill()
        started = time.perf_counter()
        for wire in wires.values():
            wire.send(frame)
        while time.perf_counter() < started + GIVE_UP_S:
            for readable in select.select(list(wires), (), (), 1.0)[0]:
                if not error_of_produced(wires[readable].answer()):
                    return time.perf_counter() - started
                time.sleep(RETRY_S)
                wires[readable].send(frame)
    raise AssertionError(f"{side.name}: no record was acknowledged within {GIVE_UP_S} s")


PLAIN: Final[Sequence[Callable[[], Workload[Trio]]]] = (
    lambda: ReplicatedProduce(1000, 300_000),
    lambda: ReplicatedProduce(100, 1_000_000),
    ReplicatedLatency,
)
"""Workloads with default timeouts, several runs each."""
GROUPS: Final[Mapping[str, tuple[Mapping[str, str], Sequence[Callable[[], Workload[Trio]]], int]]] = {
    "load": ({}, PLAIN, RUNS),
    "defaults": ({}, (lambda: Failover("default time-outs", of_controller=False),), KILLS),
    "tuned": (
        TUNED,
        (
            lambda: Failover("tuned time-outs", of_controller=False),
            lambda: Failover("tuned time-outs, leader and controller", of_controller=True),
        ),
        KILLS,
    ),
    "return": ({}, (ReturningBroker,), RETURNS),
}
"""Settings, workloads and number of counted runs; each group has new clusters. One run is discarded before several."""


def measure(only: str, runs_or: Callable[[int], int], makes: Sequence[Make]) -> Iterator[Row]:
    """Measure workloads with `only` in the name of a figure: both brokers in turn, medians. `runs_or` returns the
    counted runs of a workload from its default.
    """
    for settings, makers, count in GROUPS.values():
        chosen = [each for each in (make() for make in makers) if any(only in name for name in each.figures)]
        if not chosen:
            continue
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
            both = [stack.enter_context(trio(make, Path(directory) / make, settings)) for make in makes]
            for workload in chosen:
                yield from compared(workload, both, runs_or(count), warm_up=count > 1)


def makes_here() -> list[Make]:
    """Return the brokers that can be measured on this machine."""
    return [Make.OTTLA] if unavailable_reason() else [Make.OTTLA, Make.APACHE]


def main() -> int:
    """Measure, and print the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, help="counted runs per side")
    parser.add_argument("--only", default="", help="only figures whose name contains this")
    parser.add_argument("--make", type=Make, help="only this make")
    options = parser.parse_args()
    makes = [options.make] if options.make else makes_here()
    rows = measure(options.only, lambda default: options.runs or default, makes)
    print(json.dumps([asdict(row) for row in rows], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Bursts of topics on three nodes that share one disk: controller changes, and produce latencies meanwhile.

`python -m tests.integration.topic_burst --topics 1000 ottla apache` creates and deletes the topics on clusters of Ottla
and of Apache Kafka, one after the other, and prints a line for each. `--fsync-delay-ms 300` slows every fsync down.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka.kraft_nodes import KraftNode, KraftNodes, Make
from tests.support.processes.slow_fsync import slow_fsync

PARTITIONS: Final = 4
REPLICAS: Final = 3
LOAD_TOPIC: Final = "load"
TIMEOUT_S: Final = 240
_PACE_S: Final = 0.02
SETTINGS: Final = {  # Kafka's default timeouts; `KraftNode` has longer ones
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}


@dataclass(slots=True)
class Burst:
    """The effect of a burst of topics on a cluster."""

    topics: int
    create_s: float
    delete_s: float
    epochs: tuple[int, int]
    """The controller epochs before and after."""
    latencies_ms: list[float] = field(default_factory=list)
    """Latencies of the records produced meanwhile, sorted."""
    errors: list[str] = field(default_factory=list)
    """Errors of the records and of the requests."""

    @property
    def controller_changes(self) -> int:
        return self.epochs[1] - self.epochs[0]

    def percentile_ms(self, share: float) -> float:
        """Return a percentile of the latencies; 0 without a record."""
        if not self.latencies_ms:
            return 0.0
        return self.latencies_ms[min(len(self.latencies_ms) - 1, int(len(self.latencies_ms) * share))]

    def __str__(self) -> str:
        return (
            f"{self.topics} topics x {PARTITIONS} x {REPLICAS}: created in {self.create_s:.1f} s, deleted in "
            f"{self.delete_s:.1f} s; controller changes {self.controller_changes}; {len(self.latencies_ms)} records "
            f"produced, p50 {self.percentile_ms(0.5):.0f} ms, p99 {self.percentile_ms(0.99):.0f} ms, "
            f"max {self.percentile_ms(1.0):.0f} ms; errors {len(self.errors)} {self.errors[:3]}"
        )


class ProduceLoad:
    """Produces a record every 20 ms with acks=all, within its context, and measures the time to the acknowledgement."""

    def __init__(self, bootstrap: str) -> None:
        self.latencies_ms: list[float] = []
        self.errors: list[str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "ProduceLoad":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._produce()
            self._producer.poll(_PACE_S)
        self._producer.flush(60)

    def _produce(self) -> None:
        begun = time.monotonic()

        def done(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self.errors.append(str(error))
            else:
                self.latencies_ms.append((time.monotonic() - begun) * 1000)

        self._producer.produce(LOAD_TOPIC, b"x" * 100, on_delivery=done)


@contextmanager
def burst_cluster(directory: Path, make: Make, environment: Mapping[str, str] | None = None) -> Iterator[KraftNodes]:
    """Start three combined nodes, whose processes get `environment`."""
    nodes = [KraftNode(directory / f"{make}-{n}", make, n, "broker,controller", SETTINGS) for n in (1, 2, 3)]
    with KraftNodes(nodes) as cluster:
        cluster.format_dynamic()
        for node in nodes:
            node.environment.update(environment or {})
        yield cluster.start()


def run_burst(cluster: KraftNodes, topics: int) -> Burst:
    """Create topics with one request, and delete them with another, under a little load."""
    bootstrap = ",".join(node.address for node in cluster.nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    errors = _wait(admin.create_topics([NewTopic(LOAD_TOPIC, PARTITIONS, REPLICAS)]))
    assert not errors, errors
    names = [f"burst-{number}" for number in range(topics)]
    new = [NewTopic(name, PARTITIONS, REPLICAS) for name in names]
    before = cluster.quorum().epoch
    with ProduceLoad(bootstrap) as load:
        begun = time.monotonic()
        errors += _wait(admin.create_topics(new, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S))
        created = time.monotonic()
        errors += _wait(admin.delete_topics(names, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S))
        deleted = time.monotonic()
    epochs = before, cluster.quorum().epoch
    return Burst(topics, created - begun, deleted - created, epochs, sorted(load.latencies_ms), [*errors, *load.errors])


def _wait(outcomes: "Mapping[str, Future[None]]") -> list[str]:
    """Wait for the outcome of each topic; return the errors."""
    errors = []
    for topic, outcome in outcomes.items():
        try:
            outcome.result()
        except KafkaException as error:
            errors.append(f"{topic}: {error}")
    return errors


def main() -> int:
    """Run the bursts that the command line asks for, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.topic_burst", description=__doc__)
    parser.add_argument("makes", nargs="+", choices=[make.value for make in Make], help="implementations, in order")
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--fsync-delay-ms", type=int, default=0)
    arguments = parser.parse_args()
    for make in map(Make, arguments.makes):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory)
            environment = slow_fsync(path, arguments.fsync_delay_ms) if arguments.fsync_delay_ms else {}
            with burst_cluster(path, make, environment) as cluster:
                print(f"{make}: {run_burst(cluster, arguments.topics)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

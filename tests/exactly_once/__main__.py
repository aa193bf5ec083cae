"""Exactly once under kills: a consume-transform-produce pipeline while brokers, coordinators and clients are killed.

Three nodes; workers of librdkafka, Java and franz-go in one group copy a topic in transactions of up to 500 records,
with their offsets. Every few seconds a random broker, a transaction coordinator, the group coordinator or a worker is
killed with -9 and started again; workers also abort some transactions themselves. A reader of committed records follows
the output. Afterwards the output is read again, and everything is compared (tests/exactly_once/checker.py). The exit
code is 0 only without anomalies, and if every input record was acknowledged.
"""

import argparse
import itertools
import random
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.exactly_once.checker import Anomalies, Ledger
from tests.exactly_once.kills import Killer
from tests.exactly_once.output import InputWriter, LiveReader, end_offsets, read_all, wait_until_decided
from tests.exactly_once.workers import PROGRAMS, WorkerProcess
from tests.support.clients.replicated_load import create_topic
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes.client_programs import ClientLibrary
from tests.support.processes.ottla_cluster import OttlaCluster

SOURCE, TARGET, GROUP = "exactly-once-input", "exactly-once-output", "exactly-once"
BUILD = REPOSITORY / "build" / "exactly-once"
STALLED_S = 180.0
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "ottla.coordinator.snapshot.interval.ms": "500",
    "ottla.coordinator.snapshot.min.new.records": "50",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.exactly_once", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--clients", default=",".join(ClientLibrary), help="a worker each, comma-separated")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="consumer", help="of the group")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=float, default=5_000, help="input records per second")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--directory", type=Path, default=BUILD / "run", help="emptied first")
    parser.add_argument("--keep", action="store_true", help="keep the nodes' files even after a clean run")
    return parser.parse_args()


class Pipeline:
    """The topics, the workers and the readers of one run."""

    def __init__(self, cluster: OttlaCluster, arguments: argparse.Namespace, clients: Sequence[ClientLibrary]) -> None:
        self.cluster = cluster
        self.arguments = arguments
        self.ledger = Ledger(arguments.records)
        self.faults: list[str] = []
        for topic in (SOURCE, TARGET):
            create_topic(cluster.bootstrap, topic, arguments.partitions)
        self.writer = InputWriter(cluster.bootstrap, SOURCE, arguments.partitions, arguments.records, arguments.rate)
        self.reader = LiveReader(cluster.bootstrap, TARGET, arguments.partitions, self.ledger)
        lock = threading.Lock()
        self.workers = [self._worker(client, f"{client}-{index}", lock) for index, client in enumerate(clients)]

    def _worker(self, client: ClientLibrary, name: str, lock: threading.Lock) -> WorkerProcess:
        fixed = (self.cluster.bootstrap, SOURCE, TARGET, GROUP, self.arguments.protocol, name)

        def heard(line: str) -> None:
            with lock:
                try:
                    self.ledger.hear(line)
                except ValueError as error:
                    self.faults.append(str(error))

        def arguments(incarnation: int) -> Sequence[str]:
            return (*fixed, str(incarnation), str(self.arguments.seed))

        return WorkerProcess(client, name, arguments, self.cluster.directory / f"{name}.log", heard)

    def run(self, killer: Killer) -> None:
        for thread in (self.writer, self.reader, *self.workers):
            thread.start()
        killer.run(self.is_over)

    def is_over(self) -> bool:
        """Whether every input is in the output, or the reader has made no progress for long."""
        if len(self.ledger.reads) >= self.ledger.expected:
            return self.ledger.distinct() >= self.ledger.expected
        return time.monotonic() > self.reader.progress + STALLED_S

    def finish(self) -> Anomalies:
        for worker in self.workers:
            worker.close()
        self.writer.join(STALLED_S)
        open_s = wait_until_decided(self.cluster.bootstrap, TARGET, self.arguments.partitions)
        print(f"no transaction is open after {open_s:.1f} s", flush=True)
        again = read_all(self.cluster.bootstrap, TARGET, self.arguments.partitions)
        deadline = time.monotonic() + STALLED_S
        while len(self.ledger.reads) < len(again) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.reader.stop()
        self._check_offsets()
        self.faults += [*self.writer.errors, *self.reader.errors]
        if self.writer.acknowledged != self.arguments.records:
            self.faults.append(f"{self.writer.acknowledged} of {self.arguments.records} inputs are acknowledged")
        return self.ledger.verdict(again)

    def _check_offsets(self) -> None:
        """Compare the committed offsets of the group with the ends of the input."""
        listed = end_offsets(self.cluster.bootstrap, SOURCE, self.arguments.partitions, "read_committed")
        described = self.cluster.ottla(
            "consumer-groups", "--bootstrap-server", self.cluster.bootstrap, "--describe", "--group", GROUP
        )
        rows = [line.split() for line in described.splitlines() if SOURCE in line]
        committed = {int(row[2]): row[3] for row in rows}
        if committed != {partition: str(end) for partition, end in enumerate(listed)}:
            self.faults.append(f"committed offsets {committed}, ends of the input {listed}")


def main() -> int:
    arguments = parsed()
    clients = PROGRAMS.available(arguments.clients)
    if not clients:
        print("no client can run on this machine")
        return 2
    shutil.rmtree(arguments.directory, ignore_errors=True)
    arguments.directory.mkdir(parents=True)
    print(f"seed {arguments.seed}, {arguments.records} records, group protocol {arguments.protocol}", flush=True)
    begun = time.monotonic()
    with OttlaCluster(arguments.directory, settings=SETTINGS) as cluster:
        pipeline = Pipeline(cluster, arguments, clients)
        killer = Killer(cluster, GROUP, pipeline.workers, random.Random(arguments.seed))
        try:
            pipeline.run(killer)
            anomalies = pipeline.finish()
        finally:
            for worker in pipeline.workers:
                worker.close()
    report(pipeline, killer, anomalies, time.monotonic() - begun)
    is_clean = not anomalies.total and not pipeline.faults
    if is_clean and not arguments.keep:
        shutil.rmtree(arguments.directory)
    return 0 if is_clean else 1


def report(pipeline: Pipeline, killer: Killer, anomalies: Anomalies, seconds: float) -> None:
    ledger = pipeline.ledger
    print(f"{seconds:.0f} s; kills: " + ", ".join(f"{count} {kind}" for kind, count in sorted(killer.done.items())))
    for worker in pipeline.workers:
        print(f"{worker.name}: killed {worker.killed} times, ended {worker.ended} times by itself")
    unknown = len(ledger.commits.keys() - ledger.committed - ledger.aborted)
    print(
        f"{len(ledger.committed)} transactions committed, {len(ledger.aborted)} aborted, {unknown} of unknown outcome;"
        f" {len(ledger.reads)} records in the output"
    )
    print(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in vars(anomalies).items()))
    for line in itertools.chain(ledger.examples, pipeline.faults[:20]):
        print(line)


if __name__ == "__main__":
    sys.exit(main())

"""Java share consumers that accept each record explicitly, while they and nodes are killed (KIP-932).

Three nodes; every few seconds a consumer, and with --nodes also a node, is killed with -9 and started again. The first
consumer is stopped with SIGSTOP instead: it keeps its connections, so the locks of its records have to elapse.
Afterwards the lag of the group must go to 0: each record is acknowledged. Each record must have been delivered, and a
record whose acknowledgement was confirmed may neither be delivered nor confirmed again. The exit code is 0 only then.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Producer

from tests.support.clients.replicated_load import create_topic
from tests.support.kafka.apache_kafka import REPOSITORY, java_command, unavailable_reason
from tests.support.processes.ottla_cluster import OttlaCluster

PROGRAM = Path(__file__).parent / "clients" / "ShareAcknowledger.java"
BUILD = REPOSITORY / "build" / "exactly-once"
TOPIC, GROUP = "work", "workers"
FIRST_KILL_S, PAUSE_S, STALLED_S = 10.0, 6.0, 120.0
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.record.lock.duration.ms": "15000",
    "group.share.delivery.count.limit": "10",
}

Record = tuple[int, int]
"""Partition and offset."""


class DeliveryLedger:
    """The deliveries and acknowledgements that the consumers have reported, with the time of each report in µs."""

    def __init__(self) -> None:
        self.delivered: dict[Record, list[int]] = {}
        self.confirmed: dict[Record, list[int]] = {}
        self.failed = 0
        self._lock = threading.Lock()

    def hear(self, line: str) -> None:
        """Note one line of a consumer; the last one of a killed consumer may be incomplete."""
        if not line.endswith("\n"):
            return
        kind, at, text = line.split()
        records = [(int(partition), int(offset)) for partition, offset in (each.split(":") for each in text.split(","))]
        with self._lock:
            if kind == "failed":
                self.failed += len(records)
                return
            reports = self.delivered if kind == "got" else self.confirmed
            for record in records:
                reports.setdefault(record, []).append(int(at))

    def anomalies(self, records: Iterable[Record]) -> dict[str, list[Record]]:
        """Return records that were never delivered, delivered after a confirmation, or confirmed twice."""
        wanted = list(records)
        return {
            "never delivered": [each for each in wanted if each not in self.delivered],
            "delivered after confirmation": [
                each for each, times in self.confirmed.items() if max(self.delivered.get(each, [0])) > min(times)
            ],
            "confirmed twice": [each for each, times in self.confirmed.items() if len(times) > 1],
        }


class ShareMembers:
    """The consumers, each a process whose lines go to the ledger."""

    def __init__(self, bootstrap: str, arguments: argparse.Namespace, ledger: DeliveryLedger) -> None:
        self._arguments = [bootstrap, GROUP, TOPIC, str(arguments.work_ms)]
        self._directory: Path = arguments.directory
        self._ledger = ledger
        self._readers: list[threading.Thread] = []
        self._frozen: list[subprocess.Popen[str]] = []
        self._running = [self._start(number) for number in range(arguments.consumers)]

    def kill(self, number: int) -> None:
        """Kill a consumer with -9, and start another one."""
        self._running[number].kill()
        self._running[number].wait()
        self._running[number] = self._start(number)

    def freeze(self, number: int) -> None:
        """Stop a consumer with SIGSTOP, and start another one: the locks of its records have to elapse."""
        self._running[number].send_signal(signal.SIGSTOP)
        self._frozen.append(self._running[number])
        self._running[number] = self._start(number)

    def stop(self) -> None:
        for process in self._running + self._frozen:
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join()

    def _start(self, number: int) -> "subprocess.Popen[str]":
        command = [*java_command(str(PROGRAM), heap="128m"), *self._arguments]
        with (self._directory / f"consumer-{number}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        reader = threading.Thread(target=self._read, args=(process,))
        reader.start()
        self._readers.append(reader)
        return process

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._ledger.hear(line)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.exactly_once.share_work", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--consumers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--work-ms", type=int, default=100, help="work of a consumer for the records of one poll")
    parser.add_argument("--nodes", action="store_true", help="kill a node with every second consumer")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--directory", type=Path, default=BUILD / "share-work", help="emptied first")
    return parser.parse_args()


def produce(cluster: OttlaCluster, members: ShareMembers, arguments: argparse.Namespace) -> list[Record]:
    """Write the records at an even rate while consumers and nodes are killed. Return those that were acknowledged."""
    written: list[Record] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 20})
    chance = random.Random(arguments.seed)
    seconds = FIRST_KILL_S + PAUSE_S * arguments.kills
    begun = time.monotonic()
    sent = kills = 0
    while sent < arguments.records or kills < arguments.kills:
        elapsed = time.monotonic() - begun
        due = min(arguments.records, int(arguments.records * elapsed / seconds) + 1)
        for number in range(sent, due):
            producer.produce(
                TOPIC,
                str(number),
                partition=number % arguments.partitions,
                on_delivery=lambda error, message: written.append((message.partition(), message.offset())),
            )
        sent = due
        producer.poll(0.05)
        if kills < arguments.kills and elapsed > FIRST_KILL_S + PAUSE_S * kills:
            number = chance.randrange(arguments.consumers)
            (members.kill if kills else members.freeze)(number)
            node = ""
            if arguments.nodes and kills % 2:
                victim = kills // 2 % cluster.nodes
                cluster.wait_ready(victim, cluster.kill(victim))
                node = f" and node {victim + 1}"
            done = "killed" if kills else "stopped"
            kills += 1
            print(f"{elapsed:4.0f} s, {sent} records: {done} consumer {number}{node}", flush=True)
    assert producer.flush(STALLED_S) == 0, "not all records were acknowledged"
    return written


def lag_of(cluster: OttlaCluster) -> list[int | None]:
    """Return the lag of each share partition, None where the coordinator does not know it."""
    server = ("--bootstrap-server", cluster.bootstrap)
    (group,) = json.loads(cluster.ottla("share-groups", *server, "--describe", "--group", GROUP, "--json"))
    return [each["lag"] for each in group["partitions"]]


def wait_for_no_lag(cluster: OttlaCluster) -> list[int | None]:
    """Wait until the group has acknowledged everything, or its lag has not changed for long. Return the last lag."""
    lag, progress = lag_of(cluster), time.monotonic()
    while any(each != 0 for each in lag) and time.monotonic() < progress + STALLED_S:
        time.sleep(1)
        found = lag_of(cluster)
        if found != lag:
            print(f"lag {found}", flush=True)
            lag, progress = found, time.monotonic()
    return lag


def main() -> int:
    arguments = parsed()
    if (reason := unavailable_reason()) is not None:
        print(f"the consumers cannot run on this machine: {reason}")
        return 2
    shutil.rmtree(arguments.directory, ignore_errors=True)
    arguments.directory.mkdir(parents=True)
    print(f"seed {arguments.seed}, {arguments.records} records", flush=True)
    begun, ledger = time.monotonic(), DeliveryLedger()
    with OttlaCluster(arguments.directory, settings=SETTINGS) as cluster:
        create_topic(cluster.bootstrap, TOPIC, arguments.partitions)
        change = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
        server = ("--bootstrap-server", cluster.bootstrap)
        cluster.ottla("configs", *server, "--entity-type", "groups", "--entity-name", GROUP, *change)
        members = ShareMembers(cluster.bootstrap, arguments, ledger)
        try:
            written = produce(cluster, members, arguments)
            lag = wait_for_no_lag(cluster)
        finally:
            members.stop()
    anomalies = ledger.anomalies(written)
    again = sum(len(times) > 1 for times in ledger.delivered.values())
    print(
        f"{time.monotonic() - begun:.0f} s: {len(written)} records, {len(ledger.confirmed)} confirmed to a consumer,"
        f" {ledger.failed} acknowledgements failed, {again} records delivered more than once; lag {lag};"
        f" {', '.join(f'{name} {len(found)}' for name, found in anomalies.items())}",
        flush=True,
    )
    for name, found in anomalies.items():
        print(*(f"{name}: {each}" for each in found[:10]), sep="\n", end="\n" if found else "")
    return 1 if any(lag) or None in lag or any(anomalies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

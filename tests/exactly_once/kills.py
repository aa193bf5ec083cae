"""Kills of a run: brokers, the coordinators of transactions and of the group, and workers, with SIGKILL."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tests.exactly_once.workers import WorkerProcess
from tests.support.clients.replicated_load import admin_of
from tests.support.processes.ottla_cluster import OttlaCluster

PAUSE_S = (1.5, 4.0)
TRANSACTION_TOPIC = "__transaction_state"
OFFSETS_TOPIC = "__consumer_offsets"


def partition_of(key: str, partitions: int) -> int:
    """Return the coordinator partition of a group or a transactional id: Java's hash of the string."""
    value = 0
    for character in key:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    value = value - (1 << 32) if value >= 1 << 31 else value
    return abs(value) % partitions


class Killer:
    """Kills in random order with equal counts per kind, one node at a time. `done` counts the kills of each kind."""

    def __init__(
        self, cluster: OttlaCluster, group: str, workers: Sequence[WorkerProcess], generator: random.Random
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._workers = workers
        self._random = generator
        self.done: Counter[str] = Counter()

    def run(self, is_over: Callable[[], bool]) -> None:
        for kind, kill in self._endless():
            pause = time.monotonic() + self._random.uniform(*PAUSE_S)
            while time.monotonic() < pause:
                if is_over():
                    return
                time.sleep(0.1)
            print(f"{sum(self.done.values()) + 1:4} {kind}: {kill()}", flush=True)
            self.done[kind] += 1

    def _endless(self) -> Iterator[tuple[str, Callable[[], str]]]:
        kinds = [
            ("broker", self._kill_broker),
            ("transaction coordinator", self._kill_transaction_coordinator),
            ("group coordinator", self._kill_group_coordinator),
            ("client", self._kill_worker),
            ("client", self._kill_worker),
        ]
        while True:
            yield from self._random.sample(kinds, len(kinds))

    def _kill_broker(self) -> str:
        return self._kill_node(self._random.randrange(self._cluster.nodes))

    def _kill_transaction_coordinator(self) -> str:
        return self._kill_leader(TRANSACTION_TOPIC, self._random.choice(self._workers).name)

    def _kill_group_coordinator(self) -> str:
        return self._kill_leader(OFFSETS_TOPIC, self._group)

    def _kill_leader(self, topic: str, key: str) -> str:
        found = admin_of(self._cluster.bootstrap).list_topics(topic, timeout=30).topics[topic].partitions
        leader = found[partition_of(key, len(found))].leader
        return f"of {key}, {self._kill_node(leader - 1)}" if leader > 0 else "has no leader"

    def _kill_node(self, index: int) -> str:
        begun = time.monotonic()
        self._cluster.wait_ready(index, self._cluster.kill(index))
        return f"node {index + 1}, ready again after {time.monotonic() - begun:.1f} s"

    def _kill_worker(self) -> str:
        worker = self._random.choice(self._workers)
        worker.kill()
        return worker.name

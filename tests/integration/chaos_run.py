"""Kills, suspends and wipes the nodes of a local cluster at random while clients change its metadata.

`python -m tests.integration.chaos_run --minutes 2` prints one line per fault and a summary. One node at a time is hurt,
since two wiped disks of three are a lost quorum. In the end every node must tell the same: the topics that were
acknowledged and not deleted, their configurations, and, at one offset, a snapshot of the same bytes.
"""

import argparse
import hashlib
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.support.processes.ottla_cluster import OttlaCluster

TRY_TIMEOUT_S = 2.0
SETTLE_S = 60.0
KEY = "retention.ms"
# Snapshots and trims happen often, so that wiped nodes need them.
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "internal.metadata.log.segment.bytes": "8192",
    "metadata.max.retention.bytes": "1",
    "metadata.start.offset.lag.time.max.ms": "5000",
    "metadata.max.idle.interval.ms": "0",
}


@dataclass
class Expected:
    """What a topic must be in the end; None is a change that was not acknowledged, which may have happened or not."""

    exists: bool | None = None
    values: set[str | None] = field(default_factory=lambda: {None})


class Changes(threading.Thread):
    """One client that creates, alters and deletes topics until it is told to stop, and keeps books."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._admin = client_of(bootstrap)
        self._random = random.Random(seed)
        self._seed = seed
        self._told_to_stop = threading.Event()
        self.topics: dict[str, Expected] = {}
        self.outcomes: Counter[str] = Counter()

    def finish(self) -> None:
        self._told_to_stop.set()
        self.join()

    def run(self) -> None:
        number = 0
        while not self._told_to_stop.is_set():
            number += 1
            certain = [name for name, each in self.topics.items() if each.exists]
            dice = self._random.random()
            if not certain or dice < 0.5:
                self._create_topic(f"chaos-{self._seed}-{number}")
            elif dice < 0.8:
                self._alter_topic(self._random.choice(certain), str(self._random.randrange(10**6, 10**9)))
            else:
                self._delete_topic(self._random.choice(certain))

    def _create_topic(self, name: str) -> None:
        topic = self.topics[name] = Expected()
        asked = self._admin.create_topics([NewTopic(name, 2)], request_timeout=TRY_TIMEOUT_S)
        if self._is_done("create", asked[name], KafkaError.TOPIC_ALREADY_EXISTS):
            topic.exists = True

    def _delete_topic(self, name: str) -> None:
        topic = self.topics[name]
        topic.exists = None
        asked = self._admin.delete_topics([name], request_timeout=TRY_TIMEOUT_S)
        if self._is_done("delete", asked[name], KafkaError.UNKNOWN_TOPIC_OR_PART):
            topic.exists = False

    def _alter_topic(self, name: str, value: str) -> None:
        topic = self.topics[name]
        entry = ConfigEntry(KEY, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        (asked,) = self._admin.incremental_alter_configs([resource], request_timeout=TRY_TIMEOUT_S).values()
        done = self._is_done("alter", asked)
        topic.values = {value} if done else {*topic.values, value}

    def _is_done(self, what: str, asked: "Future[object]", had_been: int | None = None) -> bool:
        """Acknowledged; or refused because an attempt of which nobody told has had its effect."""
        try:
            asked.result()
        except KafkaException as error:
            if error.args[0].code() != had_been:
                self.outcomes[f"{what} failed"] += 1
                return False
        self.outcomes[what] += 1
        return True


def client_of(bootstrap: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }
    )


@dataclass
class Faults:
    """One at a time, each until the node is back."""

    cluster: OttlaCluster
    random: random.Random
    seen: Counter[str] = field(default_factory=Counter)

    def hurt(self) -> None:
        victim = self.random.randrange(self.cluster.nodes)
        name, fault = self.random.choice(self._kinds())
        begun = time.monotonic()
        fault(victim)
        self.seen[name] += 1
        print(f"node {victim + 1} {name}, back {time.monotonic() - begun:.1f} s later", flush=True)

    def _kinds(self) -> Sequence[tuple[str, Callable[[int], None]]]:
        return (("killed", self._kill), ("suspended", self._suspend), ("wiped", self._wipe))

    def _kill(self, victim: int) -> None:
        self.cluster.wait_ready(victim, self.cluster.kill(victim))

    def _suspend(self, victim: int) -> None:
        """From a moment to longer than a session."""
        with self.cluster.paused(victim):
            time.sleep(self.random.choice((0.5, 2.5, 5.0, 12.0)))

    def _wipe(self, victim: int) -> None:
        """Until it is a voter again: only then another disk may go."""
        self.cluster.wait_ready(victim, self.cluster.wipe(victim))
        self.wait_for_voters()

    def wait_for_voters(self) -> None:
        """Every node is a voter, with the directory that it has now, and has caught up."""
        deadline = time.monotonic() + SETTLE_S
        while not self._are_all_voters():
            assert time.monotonic() < deadline, f"a node does not become a voter: {self.cluster.quorum()}"

    def _are_all_voters(self) -> bool:
        told = self.cluster.ottla(
            "metadata-quorum", "--bootstrap-server", self.cluster.bootstrap, "describe", "--status", check=False
        )
        wanted = [self.cluster.directory_id(index) for index in range(self.cluster.nodes)]
        voters = next((line for line in told.splitlines() if line.startswith("CurrentVoters:")), "")
        return all(each in voters for each in wanted) and voters.count('"id"') == self.cluster.nodes


def check(cluster: OttlaCluster, changes: Sequence[Changes]) -> int:
    """Every node against the books, and against the others. Returns how many topics there are."""
    files = cluster.cut_equal_snapshots(SETTLE_S)
    digests = {hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert len(digests) == 1, f"snapshots of one id differ: {files}"
    told = [contents(cluster.address(index)) for index in range(cluster.nodes)]
    assert all(each == told[0] for each in told), "the nodes do not tell the same"
    for name, expected in (each for client in changes for each in client.topics.items()):
        if expected.exists is not None:
            assert (name in told[0]) is expected.exists, f"{name}: {expected}"
        if name in told[0]:
            assert told[0][name] in expected.values, f"{name} has {told[0][name]}: {expected}"
    return len(told[0])


def contents(address: str) -> dict[str, str | None]:
    """The topics as one node tells them, each with its own value of the key that is altered, if it has one."""
    admin = client_of(address)
    names = [name for name in admin.list_topics(timeout=20).topics if name.startswith("chaos-")]
    found: dict[str, str | None] = {}
    for begin in range(0, len(names), 200):
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names[begin : begin + 200]]
        for resource, done in admin.describe_configs(resources, request_timeout=20).items():
            entry = done.result()[KEY]
            found[resource.name] = None if entry.is_default else entry.value
    return found


def run(directory: Path, seed: int, turns: Iterable[object], nodes: int = 3) -> str:
    """Hurt a cluster once per turn and check it; what happened, in a line. Raises AssertionError for anything lost."""
    with OttlaCluster(directory / "cluster", nodes, SETTINGS) as cluster:
        faults = Faults(cluster, random.Random(seed))
        changes = [Changes(cluster.bootstrap, seed + number) for number in range(2)]
        for client in changes:
            client.start()
        for _ in turns:
            faults.hurt()
        for client in changes:
            client.finish()
        faults.wait_for_voters()
        topics = check(cluster, changes)
    outcomes = sum((client.outcomes for client in changes), Counter[str]())
    counts = ", ".join(f"{count} {name}" for name, count in sorted((faults.seen + outcomes).items()))
    return f"{counts}; {topics} topics, the same on {nodes} nodes, 0 bad"


def while_time_lasts(seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        print(run(Path(directory), arguments.seed, while_time_lasts(arguments.minutes * 60), arguments.nodes))


if __name__ == "__main__":
    main()

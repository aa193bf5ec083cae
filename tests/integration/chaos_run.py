"""Run that kills, suspends and wipes nodes of a local cluster at random while clients change its metadata.

`python -m tests.integration.chaos_run --minutes 2` prints one line per fault and a summary. Faults hit one node at a
time, since two wiped disks of three lose the quorum. At the end all nodes must return the same: the topics that were
acknowledged and not deleted, their configurations, and byte-identical snapshots of one offset.
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
# Snapshots and log cleaning are frequent, so that wiped nodes must fetch snapshots.
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "internal.metadata.log.segment.bytes": "8192",
    "metadata.max.retention.bytes": "1",
    "metadata.start.offset.lag.time.max.ms": "5000",
    "metadata.max.idle.interval.ms": "0",
}


@dataclass
class Expected:
    """Expected state of a topic. `exists` is None while an unacknowledged change may have happened or not."""

    exists: bool | None = None
    values: set[str | None] = field(default_factory=lambda: {None})


class Changes(threading.Thread):
    """A client that creates, alters and deletes topics until `finish`, and records the expected results."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._admin = client_of(bootstrap)
        self._random = random.Random(seed)
        self._seed = seed
        self._stopping = threading.Event()
        self.topics: dict[str, Expected] = {}
        self.outcomes: Counter[str] = Counter()

    def finish(self) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
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
        futures = self._admin.create_topics([NewTopic(name, 2)], request_timeout=TRY_TIMEOUT_S)
        if self._is_done("create", futures[name], KafkaError.TOPIC_ALREADY_EXISTS):
            topic.exists = True

    def _delete_topic(self, name: str) -> None:
        topic = self.topics[name]
        topic.exists = None
        futures = self._admin.delete_topics([name], request_timeout=TRY_TIMEOUT_S)
        if self._is_done("delete", futures[name], KafkaError.UNKNOWN_TOPIC_OR_PART):
            topic.exists = False

    def _alter_topic(self, name: str, value: str) -> None:
        topic = self.topics[name]
        entry = ConfigEntry(KEY, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        (futures,) = self._admin.incremental_alter_configs([resource], request_timeout=TRY_TIMEOUT_S).values()
        done = self._is_done("alter", futures)
        topic.values = {value} if done else {*topic.values, value}

    def _is_done(self, what: str, futures: "Future[object]", had_been: int | None = None) -> bool:
        """Whether the change took effect: it was acknowledged, or an earlier unanswered attempt had succeeded."""
        try:
            futures.result()
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
    """Random faults, one at a time. Each ends when the node is ready again."""

    cluster: OttlaCluster
    random: random.Random
    seen: Counter[str] = field(default_factory=Counter)

    def hurt(self) -> None:
        victim = self.random.randrange(self.cluster.nodes)
        name, fault = self.random.choice(self._kinds())
        begun = time.monotonic()
        fault(victim)
        self.seen[name] += 1
        print(f"node {victim + 1} {name}, ready after {time.monotonic() - begun:.1f} s", flush=True)

    def _kinds(self) -> Sequence[tuple[str, Callable[[int], None]]]:
        return (("killed", self._kill), ("suspended", self._suspend), ("wiped", self._wipe))

    def _kill(self, victim: int) -> None:
        self.cluster.wait_ready(victim, self.cluster.kill(victim))

    def _suspend(self, victim: int) -> None:
        """Suspend the node for between a moment and longer than a broker session."""
        with self.cluster.paused(victim):
            time.sleep(self.random.choice((0.5, 2.5, 5.0, 12.0)))

    def _wipe(self, victim: int) -> None:
        """Wipe the node and wait until it is a voter again: until then another wiped disk would lose the quorum."""
        self.cluster.wait_ready(victim, self.cluster.wipe(victim))
        self.wait_for_voters()

    def wait_for_voters(self) -> None:
        """Wait until every node is a caught-up voter under its current directory id."""
        deadline = time.monotonic() + SETTLE_S
        while not self._are_all_voters():
            assert time.monotonic() < deadline, f"a node has not become a voter: {self.cluster.quorum()}"

    def _are_all_voters(self) -> bool:
        output = self.cluster.ottla(
            "metadata-quorum", "--bootstrap-server", self.cluster.bootstrap, "describe", "--status", check=False
        )
        wanted = [self.cluster.directory_id(index) for index in range(self.cluster.nodes)]
        voters = next((line for line in output.splitlines() if line.startswith("CurrentVoters:")), "")
        return all(each in voters for each in wanted) and voters.count('"id"') == self.cluster.nodes


def check(cluster: OttlaCluster, changes: Sequence[Changes]) -> int:
    """Compare every node with the expected topics and with the other nodes. Return the number of topics."""
    files = cluster.cut_equal_snapshots(SETTLE_S)
    digests = {hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert len(digests) == 1, f"snapshots of one id differ: {files}"
    found = [contents(cluster.address(index)) for index in range(cluster.nodes)]
    assert all(each == found[0] for each in found), "the nodes return different metadata"
    for name, expected in (each for client in changes for each in client.topics.items()):
        if expected.exists is not None:
            assert (name in found[0]) is expected.exists, f"{name}: {expected}"
        if name in found[0]:
            assert found[0][name] in expected.values, f"{name} has {found[0][name]}: {expected}"
    return len(found[0])


def contents(address: str) -> dict[str, str | None]:
    """Return a node's topics with their topic-level value of the altered config key, None where it is the default."""
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
    """Inject one fault per turn and check the cluster. Return a one-line summary; raise AssertionError for any loss."""
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

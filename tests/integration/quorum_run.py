"""Run that kills nodes of a local cluster one by one and measures how long topic creation is unavailable.

`python -m tests.integration.quorum_run --kills 50` prints one line per kill and a summary. Every second victim is the
active controller; the others are drawn at random. Every acknowledged topic must exist on every node at the end, also
after all nodes were killed at once.
"""

import argparse
import random
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes.ottla_cluster import OttlaCluster

TRY_TIMEOUT_S = 1.0
METADATA_TIMEOUT_S = 60.0


@dataclass
class QuorumRun:
    """A cluster under repeated kills: its acknowledged topics, and the delay of topic creation after each kill."""

    cluster: OttlaCluster
    topics: set[str] = field(default_factory=set)
    gaps_s: list[float] = field(default_factory=list)

    def client(self, *indexes: int) -> AdminClient:
        """Return an admin client whose bootstrap servers are the given nodes, or all nodes without arguments."""
        addresses = [self.cluster.address(index) for index in indexes] or [self.cluster.bootstrap]
        return AdminClient(
            {
                "bootstrap.servers": ",".join(addresses),
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )

    def create(self, admin: AdminClient, name: str, deadline_s: float = 60) -> float:
        """Create a topic, retrying until it is acknowledged. Return the seconds it took."""
        begun, last = time.monotonic(), "no attempt was made"
        while time.monotonic() - begun < deadline_s:
            try:
                admin.create_topics([NewTopic(name, 1)], request_timeout=TRY_TIMEOUT_S)[name].result()
            except KafkaException as error:
                last = str(error)
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # an unanswered attempt created it
                    continue
            self.topics.add(name)
            return time.monotonic() - begun
        raise AssertionError(f"{name} could not be created within {deadline_s} s: {last}")

    def kill_and_create(self, number: int, victim: int, others: list[int]) -> float:
        """Kill a node, create a topic through the other nodes, and wait until the victim is ready again."""
        admin = self.client(*others)
        admin.list_topics(timeout=20)  # connect before the kill, as a client in production has
        since = self.cluster.kill(victim)
        gap_s = self.create(admin, f"after-kill-{number}")
        self.gaps_s.append(gap_s)
        self.cluster.wait_ready(victim, since)
        return gap_s

    def check_topics(self) -> None:
        """Check that every node lists every acknowledged topic. Brokers learn of the last topics asynchronously."""
        deadline = time.monotonic() + METADATA_TIMEOUT_S
        for index in range(self.cluster.nodes):
            admin = self.client(index)
            while missing := self.topics - set(admin.list_topics(timeout=20).topics):
                assert time.monotonic() < deadline, f"node {index + 1} lacks {sorted(missing)}"

    def kill_all(self) -> None:
        """Kill all nodes at once and wait until all are ready again."""
        since = [self.cluster.kill(index) for index in range(self.cluster.nodes)]
        for index, line in enumerate(since):
            self.cluster.wait_ready(index, line)


def run(cluster: OttlaCluster, kills: int, seed: int = 1) -> QuorumRun:
    """Kill `kills` nodes one by one, then all at once. Raise AssertionError if a topic is lost."""
    rng, quorum = random.Random(seed), QuorumRun(cluster)
    quorum.create(quorum.client(), "before")
    for number in range(kills):
        leader = cluster.leader_index()
        victim = leader if number % 2 == 0 else rng.randrange(cluster.nodes)
        others = [index for index in range(cluster.nodes) if index != victim]
        gap_s = quorum.kill_and_create(number, victim, others)
        role = "active controller" if victim == leader else "follower"
        print(f"kill {number + 1}: node {victim + 1} ({role}), topic created after {gap_s:.2f} s", flush=True)
    quorum.kill_all()
    quorum.create(quorum.client(), "after-all")
    quorum.check_topics()
    return quorum


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        OttlaCluster(Path(directory) / "cluster", arguments.nodes) as cluster,
    ):
        quorum = run(cluster, arguments.kills, arguments.seed)
        gaps = sorted(quorum.gaps_s)
        print(
            f"{len(gaps)} kills, {len(quorum.topics)} topics, 0 lost; time until a topic was created: "
            f"median {statistics.median(gaps):.2f} s, longest {gaps[-1]:.2f} s, {sum(g > 5 for g in gaps)} above 5 s"
        )


if __name__ == "__main__":
    main()

"""Kills nodes of a local cluster, one after the other, and measures how long topics cannot be created.

`python -m tests.integration.quorum_run --kills 50` prints one line per kill and a summary. Every second victim is the
active controller, the others are drawn. What was acknowledged must be there in the end, on every node, also after all
of them were killed at once.
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
NEWS_TIMEOUT_S = 60.0


@dataclass
class QuorumRun:
    """A cluster under fire: the topics it acknowledged, and how long each kill kept it from acknowledging another."""

    cluster: OttlaCluster
    topics: set[str] = field(default_factory=set)
    gaps_s: list[float] = field(default_factory=list)

    def client(self, *indexes: int) -> AdminClient:
        """An admin client that knows the given nodes alone, or all."""
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
        """Create a topic, trying until it is acknowledged; returns the seconds it took."""
        begun, last = time.monotonic(), "nothing was tried"
        while time.monotonic() - begun < deadline_s:
            try:
                admin.create_topics([NewTopic(name, 1)], request_timeout=TRY_TIMEOUT_S)[name].result()
            except KafkaException as error:
                last = str(error)
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # an attempt that got no answer had it made
                    continue
            self.topics.add(name)
            return time.monotonic() - begun
        raise AssertionError(f"{name} could not be created within {deadline_s} s: {last}")

    def kill_and_create(self, number: int, victim: int, others: list[int]) -> float:
        """One kill; clients go to the survivors. Waits until the victim is back."""
        admin = self.client(*others)
        admin.list_topics(timeout=20)  # connected before, as a client in production is
        since = self.cluster.kill(victim)
        gap_s = self.create(admin, f"after-kill-{number}")
        self.gaps_s.append(gap_s)
        self.cluster.wait_ready(victim, since)
        return gap_s

    def check_everything_is_there(self) -> None:
        """Every acknowledged topic, as every single node tells it; those not asked hear of the last a moment later."""
        deadline = time.monotonic() + NEWS_TIMEOUT_S
        for index in range(self.cluster.nodes):
            admin = self.client(index)
            while missing := self.topics - set(admin.list_topics(timeout=20).topics):
                assert time.monotonic() < deadline, f"node {index + 1} lacks {sorted(missing)}"

    def kill_all(self) -> None:
        """All at once; wait until all are back."""
        since = [self.cluster.kill(index) for index in range(self.cluster.nodes)]
        for index, line in enumerate(since):
            self.cluster.wait_ready(index, line)


def run(cluster: OttlaCluster, kills: int, seed: int = 1) -> QuorumRun:
    """Kill `kills` nodes, then all; raises AssertionError for anything lost."""
    rng, quorum = random.Random(seed), QuorumRun(cluster)
    quorum.create(quorum.client(), "before")
    for number in range(kills):
        leader = cluster.leader_index()
        victim = leader if number % 2 == 0 else rng.randrange(cluster.nodes)
        others = [index for index in range(cluster.nodes) if index != victim]
        gap_s = quorum.kill_and_create(number, victim, others)
        role = "active controller" if victim == leader else "follower"
        print(f"kill {number + 1}: node {victim + 1} ({role}), a topic created {gap_s:.2f} s later", flush=True)
    quorum.kill_all()
    quorum.create(quorum.client(), "after-all")
    quorum.check_everything_is_there()
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
            f"{len(gaps)} kills, {len(quorum.topics)} topics, 0 lost; until a topic was created: "
            f"median {statistics.median(gaps):.2f} s, longest {gaps[-1]:.2f} s, {sum(g > 5 for g in gaps)} above 5 s"
        )


if __name__ == "__main__":
    main()

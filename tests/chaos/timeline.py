"""What each node says of the topics while it is hurt, written down as it changes: leaders, in-sync sets, live brokers.

A gap in availability that a report tells of can then be read up: who led, who was in sync, and what the nodes logged at
that time. Times are milliseconds since 1970, as everywhere in a run.
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from broker.client import ClientConfig, ClientError, Connection, Endpoint
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.chaos.availability import Fault
from tests.chaos.nodes import ChaosCluster, ChaosNode

INTERVAL_S = 0.25
TIMEOUT_MS = 500

# What a node says, by what it says it of: "brokers", or a partition.
View = Mapping[str, str]


class Timeline:
    """Lines of `path`; `watching` samples in the background."""

    def __init__(self, path: Path, cluster: ChaosCluster, topics: Sequence[str]) -> None:
        self._path = path
        self._cluster = cluster
        self._topics = [MetadataRequestTopic(name=topic) for topic in topics]
        self._over = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Ask every node again and again."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def on_fault(self, fault: Fault) -> None:
        """A fault that is over."""
        self._tell(f"{fault.begun_ms} node {fault.node} {fault.kind} until {fault.ended_ms}")

    def _watch(self) -> None:
        known: dict[int, View] = {}
        while not self._over.wait(INTERVAL_S):
            for node in self._cluster.nodes:
                now_ms, view = time.time_ns() // 1_000_000, self._view(node)
                changes = changed(known.get(node.id, {}), view)
                if changes:
                    self._tell(f"{now_ms} node {node.id} says {changes}")
                known[node.id] = view

    def _view(self, node: ChaosNode) -> View:
        host, _, port = node.client_address.rpartition(":")
        endpoint = Endpoint(host, int(port))
        config = ClientConfig((endpoint,), connect_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS)
        try:
            with contextlib.closing(Connection.open(endpoint, config)) as connection:
                answer = connection.call(MetadataRequest(self._topics), MetadataResponse)
        except ClientError as error:
            return {"nothing": type(error).__name__}
        return view_of(answer)

    def _tell(self, line: str) -> None:
        with self._path.open("a") as output:
            output.write(line + "\n")


def view_of(answer: MetadataResponse) -> View:
    """Live brokers, and for each partition leader, leader epoch and in-sync replicas."""
    view = {"brokers": str(sorted(broker.node_id for broker in answer.brokers))}
    for topic in answer.topics:
        for each in topic.partitions:
            told = f"{each.leader_id} in epoch {each.leader_epoch}, isr {sorted(each.isr_nodes)}"
            view[f"leader of {topic.name}-{each.partition_index}"] = told
    return view


def changed(before: View, now: View) -> str:
    """What is new, in words; empty if nothing is."""
    return "; ".join(f"{what}: {told}" for what, told in now.items() if before.get(what) != told)

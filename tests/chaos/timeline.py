"""Log of every node's view during faults: leaders, ISRs and live brokers, as they change.

The timeline explains gaps in availability of the report: which replica led, which were in sync, and what nodes logged
at the time. Times are milliseconds since 1970, as everywhere in a run.
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

# A node's view by subject: "brokers", or a partition.
View = Mapping[str, str]


class Timeline:
    """A file of changes at `path`; `watching` samples nodes in the background."""

    def __init__(self, path: Path, cluster: ChaosCluster, topics: Sequence[str]) -> None:
        self._path = path
        self._cluster = cluster
        self._topics = [MetadataRequestTopic(name=topic) for topic in topics]
        self._over = threading.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Query every node repeatedly."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def on_fault(self, fault: Fault) -> None:
        """Write a completed fault."""
        self._write(f"{fault.begun_ms} node {fault.node} {fault.kind} until {fault.ended_ms}")

    def _watch(self) -> None:
        known: dict[int, View] = {}
        while not self._over.wait(INTERVAL_S):
            for node in self._cluster.nodes:
                now_ms, view = time.time_ns() // 1_000_000, self._view(node)
                changes = changed(known.get(node.id, {}), view)
                if changes:
                    self._write(f"{now_ms} node {node.id} says {changes}")
                known[node.id] = view

    def _view(self, node: ChaosNode) -> View:
        host, _, port = node.run_address.rpartition(":")
        endpoint = Endpoint(host, int(port))
        config = ClientConfig((endpoint,), connect_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS)
        try:
            with contextlib.closing(Connection.open(endpoint, config)) as connection:
                answer = connection.call(MetadataRequest(self._topics), MetadataResponse)
        except ClientError as error:
            return {"nothing": type(error).__name__}
        return view_of(answer)

    def _write(self, line: str) -> None:
        with self._path.open("a") as output:
            output.write(line + "\n")


def view_of(answer: MetadataResponse) -> View:
    """Return live brokers and, per partition, leader, leader epoch and in-sync replicas."""
    view = {"brokers": str(sorted(broker.node_id for broker in answer.brokers))}
    for topic in answer.topics:
        for each in topic.partitions:
            value = f"{each.leader_id} in epoch {each.leader_epoch}, isr {sorted(each.isr_nodes)}"
            view[f"leader of {topic.name}-{each.partition_index}"] = value
    return view


def changed(before: View, now: View) -> str:
    """Describe the differences, empty without any."""
    return "; ".join(f"{what}: {value}" for what, value in now.items() if before.get(what) != value)

"""Brokers with a separate controller, so that any broker can be killed, each with its own settings and disks."""

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.kafka.apache_kafka import random_uuid_text
from tests.support.processes.ottla_node import OttlaNode, run_ottla

CONTROLLER_ID = 100
# Lagging replicas are detected quickly. A dead broker is detected at once, whatever its session timeout; a slow one, on
# a busy machine, must not be fenced.
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "100",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
}


class ClusterNode(OttlaNode):
    """One node that knows the controller; `prefix` precedes its command line (`SmallDisk.enter`)."""

    def __init__(
        self, directory: Path, node_id: int, cluster_id: str, settings: Mapping[str, str], prefix: Sequence[str] = ()
    ) -> None:
        super().__init__(directory, {**SETTINGS, "node.id": str(node_id), **settings})
        self.id = node_id
        self._prefix = [*prefix, "env", f"CLUSTER_ID={cluster_id}"]

    def command(self, *more: str) -> list[str]:
        return [*self._prefix, *super().command(*more)]

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def metric(self, name: str, **labels: str) -> float:
        """Return one sample of `/metrics`; 0 without it."""
        for line in self.http("/metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            found, _, rest = series.partition("{")
            if found == name and all(f'{key}="{wanted}"' in rest for key, wanted in labels.items()):
                return float(value)
        return 0.0


class BrokerCluster:
    """A context manager that starts a controller and brokers with ids from 1; `each` has settings of single brokers."""

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        each: Mapping[int, Mapping[str, str]] | None = None,
        prefixes: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        cluster_id = random_uuid_text()
        self.controller = ClusterNode(directory / "controller", CONTROLLER_ID, cluster_id, settings or {})
        voters = f"{CONTROLLER_ID}@127.0.0.1:{self.controller.controller_port}"
        self.controller.settings |= {
            "process.roles": "controller",
            "controller.quorum.voters": voters,
            "listeners": f"CONTROLLER://127.0.0.1:{self.controller.controller_port}",
        }
        self.brokers: dict[int, ClusterNode] = {}
        for node_id in range(1, brokers + 1):
            own = (each or {}).get(node_id, {})
            broker = ClusterNode(
                directory / f"broker-{node_id}",
                node_id,
                cluster_id,
                {"process.roles": "broker", "controller.quorum.voters": voters, **(settings or {}), **own},
                (prefixes or {}).get(node_id, ()),
            )
            broker.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port}"
            self.brokers[node_id] = broker

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def __getitem__(self, broker_id: int) -> ClusterNode:
        return self.brokers[broker_id]

    def start(self, *broker_ids: int) -> None:
        """Restart these brokers concurrently."""
        with ThreadPoolExecutor(len(broker_ids)) as pool:
            list(pool.map(lambda broker_id: self.brokers[broker_id].start(), broker_ids))

    def ottla(self, command: str, *arguments: str, check: bool = True) -> str:
        """Run an `ottla` command against the running brokers; return its output."""
        running = ",".join(broker.bootstrap for broker in self.brokers.values() if broker.is_running)
        done = run_ottla(command, "--bootstrap-server", running, *arguments, check=check)
        return done.stdout + done.stderr

    def __enter__(self) -> Self:
        try:
            self.controller.start()
            self.start(*self.brokers)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        with contextlib.ExitStack() as all_of_them:
            for node in (self.controller, *self.brokers.values()):
                if node.is_running:
                    all_of_them.callback(node.kill)

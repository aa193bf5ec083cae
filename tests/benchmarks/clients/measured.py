"""Brokers under measurement, one node or three, as the clients of this folder see them."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.sides import Cpu
from tests.benchmarks.workloads import costs

READY_S = 60.0
T = TypeVar("T")


class Brokers(Protocol):
    """One broker or several, with a common cost."""

    @property
    def name(self) -> str: ...

    @property
    def bootstrap(self) -> str: ...

    def cpu(self) -> Cpu:
        """Return the processor time so far."""
        ...


@dataclass(frozen=True)
class Topics:
    """Shape of a workload's topics: `partitions` with `replicas` each."""

    partitions: int = 1
    replicas: int = 1

    def create(self, side: Brokers, name: str) -> str:
        """Create a topic whose name begins with `name`; return its whole name."""
        unique = f"{name}-{uuid.uuid4().hex}"
        admin = AdminClient({"bootstrap.servers": side.bootstrap, **client_settings(side)})
        admin.create_topics([NewTopic(unique, self.partitions, self.replicas)])[unique].result(READY_S)
        return unique


def delete_topic(side: Brokers, name: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap, **client_settings(side)})
    admin.delete_topics([name])[name].result(READY_S)


def client_settings(side: Brokers) -> Mapping[str, str]:
    """Return the settings that librdkafka needs to connect."""
    settings: Mapping[str, str] = getattr(side, "client", {})
    return settings


def with_cost(side: Brokers, cost: str, megabytes: float, run: Callable[[], T]) -> tuple[T, dict[str, float]]:
    """Run; return its result, and the processor time in ms per MB as the figure `cost`, with its user part."""
    before = side.cpu()
    result = run()
    return result, costs(cost, side.cpu() - before, 1000 / megabytes)

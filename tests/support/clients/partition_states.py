"""Partition states of a cluster by its metadata, and waits for expected states."""

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from confluent_kafka.admin import AdminClient

from tests.support.clients.replicated_load import PATIENCE_S, admin_of

POLL_S = 0.02

T = TypeVar("T")


class PartitionState(NamedTuple):
    """The state of a partition in the metadata; a leader of -1 means none."""

    leader: int
    replicas: list[int]
    isr: list[int]

    @property
    def is_whole(self) -> bool:
        return self.leader >= 0 and sorted(self.isr) == sorted(self.replicas)


def partition_states(admin: AdminClient, topic: str) -> dict[int, PartitionState]:
    """Return the states by index; empty if the topic does not exist."""
    found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return {
        index: PartitionState(each.leader, list(each.replicas), list(each.isrs))
        for index, each in found.partitions.items()
    }


def until(found: Callable[[], T | None], timeout_s: float = PATIENCE_S) -> T:
    """Poll until a value is neither None nor false; return the value."""
    deadline = time.monotonic() + timeout_s
    while not (value := found()):
        assert time.monotonic() < deadline, "the expected state was not reached in time"
        time.sleep(POLL_S)
    return value


def wait_for_state(
    bootstrap: str, topic: str, wanted: Callable[[PartitionState], bool], timeout_s: float = PATIENCE_S
) -> dict[int, PartitionState]:
    """Wait until all partitions of a topic are as wanted; return their states."""
    admin = admin_of(bootstrap)

    def states() -> dict[int, PartitionState] | None:
        now = partition_states(admin, topic)
        return now if now and all(map(wanted, now.values())) else None

    return until(states, timeout_s)


def wait_until_whole(bootstrap: str, *topics: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until all replicas of these topics are in sync."""
    for topic in topics:
        wait_for_state(bootstrap, topic, lambda state: state.is_whole, timeout_s)

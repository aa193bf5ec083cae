"""What a cluster says of its partitions, and waiting until it says something else."""

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from confluent_kafka.admin import AdminClient

from tests.support.replicated_load import PATIENCE_S, admin_of

POLL_S = 0.02

T = TypeVar("T")


class PartitionState(NamedTuple):
    """As the metadata has it; a leader of -1 is none."""

    leader: int
    replicas: list[int]
    isr: list[int]

    @property
    def is_whole(self) -> bool:
        return self.leader >= 0 and sorted(self.isr) == sorted(self.replicas)


def partition_states(admin: AdminClient, topic: str) -> dict[int, PartitionState]:
    """By index; empty if there is no such topic."""
    found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return {
        index: PartitionState(each.leader, list(each.replicas), list(each.isrs))
        for index, each in found.partitions.items()
    }


def until(found: Callable[[], T | None], timeout_s: float = PATIENCE_S) -> T:
    """The first value that is neither None nor false."""
    deadline = time.monotonic() + timeout_s
    while not (value := found()):
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(POLL_S)
    return value


def wait_for_state(
    bootstrap: str, topic: str, wanted: Callable[[PartitionState], bool], timeout_s: float = PATIENCE_S
) -> dict[int, PartitionState]:
    """Until all partitions of a topic are as wanted; how they are then."""
    admin = admin_of(bootstrap)

    def states() -> dict[int, PartitionState] | None:
        now = partition_states(admin, topic)
        return now if now and all(map(wanted, now.values())) else None

    return until(states, timeout_s)


def wait_until_whole(bootstrap: str, *topics: str, timeout_s: float = PATIENCE_S) -> None:
    """Until all replicas of these topics are in sync."""
    for topic in topics:
        wait_for_state(bootstrap, topic, lambda state: state.is_whole, timeout_s)

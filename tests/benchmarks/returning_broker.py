"""Return of a broker with thousands of partitions: the time until it is in sync, and produce latency meanwhile."""

import time
import uuid
from typing import Final

from tests.benchmarks.paced_produce import Rate, producing
from tests.benchmarks.replication_cluster import IDS, Trio
from tests.benchmarks.workloads import LOWER

PARTITIONS: Final = 3_000
PARTITIONS_PER_TOPIC: Final = 100
RATE: Final = Rate(requests=200, records=10)
WARM_UP_S: Final = 3.0
STOPPED: Final = 3
OTHERS: Final = tuple(each for each in IDS if each != STOPPED)
_NAME: Final = f"return of a broker with {PARTITIONS:,} partitions"


class ReturningBroker:
    """A broker with replicas of 3,000 idle partitions stops and restarts. The other brokers lead a topic that takes
    records with acks=all, from before the restart until the broker is in sync everywhere.

    A third of the idle partitions has the stopped broker as preferred leader; they stay with the leaders that follow.
    """

    def __init__(self) -> None:
        self._topics: dict[str, list[str]] = {}
        self.figures = {
            _NAME: ("s", LOWER),
            f"{_NAME}, produce p50 meanwhile": ("ms", LOWER),
            f"{_NAME}, produce p99 meanwhile": ("ms", LOWER),
            f"{_NAME}, longest produce meanwhile": ("ms", LOWER),
        }

    def run(self, side: Trio) -> dict[str, float]:
        """Restart the broker once; the topics stay for the next run."""
        topics = self._topics.get(side.name) or self._topics.setdefault(side.name, _created(side))
        busy, stopped = topics[0], side.node(STOPPED)
        stopped.terminate()
        for topic in topics:
            side.wait_out_of_sync(STOPPED, topic)
        addresses = [side.node(each).address for each in OTHERS]
        with producing(addresses, busy, RATE, warm_up_s=WARM_UP_S) as latencies:
            time.sleep(WARM_UP_S)
            started = time.monotonic()
            stopped.launch()
            for topic in topics:
                side.wait_in_sync(topic, told_by=OTHERS[:1])
            took = time.monotonic() - started
        p50, p99 = latencies.percentiles()
        return dict(zip(self.figures, (took, p50, p99, max(latencies.milliseconds)), strict=True))


def _created(side: Trio) -> list[str]:
    """Create the topic that takes records, and the idle ones; return their names, the former first."""
    busy = f"busy-{uuid.uuid4().hex}"
    side.create_topic(busy, len(OTHERS), leaders=OTHERS)
    idle = [f"idle-{uuid.uuid4().hex}" for _ in range(PARTITIONS // PARTITIONS_PER_TOPIC)]
    for topic in idle:
        side.create_topic(topic, PARTITIONS_PER_TOPIC)
    return [busy, *idle]

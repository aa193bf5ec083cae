"""franz-go at its defaults as workloads: idempotent producer with acks=all, and a consumer of all partitions."""

import subprocess
import uuid
from pathlib import Path
from typing import Final, Literal

from tests.benchmarks.clients.measured import Brokers, Topics, delete_topic, with_cost
from tests.benchmarks.workloads import HIGHER, LOWER
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes.client_programs import build_go

SOURCES = Path(__file__).parent / "go"
PROGRAM = REPOSITORY / "build" / "bench" / "franz-go"
TIME_LIMIT_S = 600.0
PASSES: Final = {"produce": 1, "consume": 10}
"""Times that each operation goes over the topic: one pass of a consumer takes a fifth of a second."""


def refusal() -> str | None:
    """Return the reason why the program cannot run here, None once it is built. A build may use registries."""
    return build_go(SOURCES, PROGRAM)


class FranzGo:
    """MB/s of franz-go, and the processor time of the brokers per MB. The consumer reads the producer's topic."""

    def __init__(self, size: int, count: int, topics: Topics) -> None:
        self._size, self._count, self._topics = size, count, topics
        label = f"franz-go, {size} B, {topics.partitions} partitions"
        self._rates = {"produce": f"{label}, produce", "consume": f"{label}, consume"}
        self.figures: dict[str, tuple[str, str]] = {}
        for rate in self._rates.values():
            self.figures |= {rate: ("MB/s", HIGHER), f"{rate}, brokers' CPU": ("ms/MB", LOWER)}

    def run(self, side: Brokers) -> dict[str, float]:
        """Run both once, with a new topic."""
        topic = self._topics.create(side, f"go-{uuid.uuid4().hex}")
        figures: dict[str, float] = {}
        for operation in ("produce", "consume"):
            figures |= self._measure(operation, side, topic)
        delete_topic(side, topic)
        return figures

    def _measure(self, operation: Literal["produce", "consume"], side: Brokers, topic: str) -> dict[str, float]:
        rate, passes = self._rates[operation], PASSES[operation]
        megabytes = passes * self._size * self._count / 1e6
        command = [str(PROGRAM), operation, side.bootstrap, topic, str(self._count), str(self._size), str(passes)]
        output, figures = with_cost(
            side,
            f"{rate}, brokers' CPU",
            megabytes,
            lambda: subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIME_LIMIT_S).stdout,
        )
        return {rate: megabytes / float(output), **figures}

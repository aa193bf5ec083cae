"""KafkaController, ControllerEventManager and ControllerStats: the metrics of a controller, active or not."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from functools import partial
from typing import TypeVar

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import NO_LEADER, LeaderRecoveryState, PartitionRegistration
from broker.metrics.family import Family, Sample, counter, gauge
from broker.metrics.histogram import Histogram
from broker.metrics.requests import QUANTILES, ROTATION_MS
from protocol.lazy_dataclass import lazy_dataclass

R = TypeVar("R")

_CONTROLLER = "kafka_controller_kafkacontroller_"
_EVENTS = "kafka_controller_controllereventmanager_"
_STATS = "kafka_controller_controllerstats_"


@lazy_dataclass(slots=True)
class ControllerMetrics:
    """Counts since the start; times in microseconds.

    `queue_us` is the time that periodic tasks and the parts of long commands wait for the event loop, beyond the time
    they were due; `processing_us` is the time to decide, append and replay one command. A heartbeat counts as timed out
    when it is answered later than half of `broker.heartbeat.interval.ms`, the deadline that Kafka sets.
    """

    new_active_controllers: int = 0
    timed_out_heartbeats: int = 0
    metadata_errors: int = 0
    unclean_elections: int = 0
    elections_from_elr: int = 0
    queue_us: Histogram = field(default_factory=Histogram)
    processing_us: Histogram = field(default_factory=Histogram)
    rotated_ms: float = 0.0

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Count the elections of a delta, on every node that reads the metadata (KIP-966)."""
        if delta.topics is None or delta.image.is_empty:
            return
        for topic in delta.topics.changed.values():
            if topic.before is not None:
                for index, now in topic.changed_partitions.items():
                    self._count_election(topic.before.partitions.get(index), now)

    def _count_election(self, before: PartitionRegistration | None, now: PartitionRegistration) -> None:
        if before is None or now.leader in (before.leader, NO_LEADER):
            return
        if now.leader_recovery_state is LeaderRecoveryState.RECOVERING:
            self.unclean_elections += 1
        elif now.leader in before.elr:
            self.elections_from_elr += 1

    def families(self) -> list[Family]:
        """Return the families that this object counts."""
        return [
            counter(
                f"{_STATS}uncleanleaderelections_total",
                "Elections of leaders that were not in sync",
                lambda: self.unclean_elections,
            ),
            counter(
                f"{_STATS}electionfromeligibleleaderreplicas_total",
                "Elections of leaders from the eligible leader replicas (KIP-966)",
                lambda: self.elections_from_elr,
            ),
            gauge(
                f"{_CONTROLLER}newactivecontrollerscount",
                "Times that this node became the active controller",
                lambda: self.new_active_controllers,
            ),
            gauge(
                f"{_CONTROLLER}timedoutbrokerheartbeatcount",
                "Heartbeats that were answered after their deadline",
                lambda: self.timed_out_heartbeats,
            ),
            gauge(
                f"{_CONTROLLER}metadataerrorcount",
                "Unexpected failures while metadata records were created or applied",
                lambda: self.metadata_errors,
            ),
            _times("eventqueuetimems", "Milliseconds that commands of the controller wait", self.queue_us),
            _times(
                "eventqueueprocessingtimems", "Milliseconds that commands of the controller take", self.processing_us
            ),
        ]

    def rotate(self, now_ms: float) -> None:
        """Drop old observations from the quantiles. Call before commands and scrapes."""
        if now_ms - self.rotated_ms >= ROTATION_MS:
            self.rotated_ms = now_ms
            self.queue_us.rotate()
            self.processing_us.rotate()


@lazy_dataclass(frozen=True, slots=True)
class HeartbeatDeadline:
    """Counts heartbeats that are answered after their deadline. The answer waits for a commit if it writes records."""

    metrics: ControllerMetrics
    monotonic_ms: Callable[[], float]
    deadline_ms: float

    def watch(self, answer: Awaitable[R]) -> Awaitable[R]:
        """Return the answer of a heartbeat that has just arrived."""
        if isinstance(answer, asyncio.Future) and not answer.done():
            answer.add_done_callback(partial(self._on_answer, self.monotonic_ms() + self.deadline_ms))
        return answer

    def _on_answer(self, due_ms: float, _answer: object) -> None:
        if self.monotonic_ms() > due_ms:
            self.metrics.timed_out_heartbeats += 1


def _times(name: str, text: str, histogram: Histogram) -> Family:
    def read() -> Iterable[Sample]:
        for quantile, value in zip(QUANTILES, histogram.quantiles(QUANTILES), strict=True):
            yield Sample(value / 1000, {"quantile": str(quantile)})
        yield Sample(histogram.count, suffix="_count")
        yield Sample(histogram.total / 1000, suffix="_sum")

    return Family(f"{_EVENTS}{name}", text, "summary", read)

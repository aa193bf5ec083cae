"""Metrics of the controller: elections by kind, late heartbeats, times of commands."""

import asyncio

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metrics.controller import ControllerMetrics, HeartbeatDeadline
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from protocol.primitives import Uuid
from tests.support.fakes.clock import ManualClock

TOPIC_ID = Uuid(bytes(15) + b"7")
RECOVERING = 1


def with_topic() -> MetadataImage:
    """An image with one partition on brokers 1 to 3: 1 leads and is in sync alone, 2 is an eligible leader replica."""
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(TopicRecord("orders", TOPIC_ID))
    delta.replay(
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[1, 2, 3],
            isr=[1],
            leader=1,
            leader_epoch=4,
            partition_epoch=9,
            eligible_leader_replicas=[2],
        )
    )
    return delta.apply(Provenance(1, LeaderEpoch(1), 1))


def elections(change: PartitionChangeRecord) -> tuple[int, int]:
    """Return the counts of unclean elections and of elections from the ELR after a change."""
    metrics, image = ControllerMetrics(), with_topic()
    delta = MetadataDelta(image)
    delta.replay(change)
    metrics.on_metadata(delta, delta.apply(Provenance(2, LeaderEpoch(1), 2)))
    return metrics.unclean_elections, metrics.elections_from_elr


def change(leader: int, isr: list[int], recovery: int = -1) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, leader=leader, isr=isr, leader_recovery_state=recovery
    )


def test_elections_are_counted_by_kind() -> None:
    assert elections(change(3, [3], RECOVERING)) == (1, 0)
    assert elections(change(2, [2])) == (0, 1)
    assert elections(change(-1, [1])) == (0, 0)
    assert elections(change(1, [1, 2])) == (0, 0), "an ISR change of the same leader"


def test_first_image_counts_no_election() -> None:
    metrics, image = ControllerMetrics(), with_topic()
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(TopicRecord("orders", TOPIC_ID))
    metrics.on_metadata(delta, image)
    assert (metrics.unclean_elections, metrics.elections_from_elr) == (0, 0)


async def test_heartbeat_answered_after_its_deadline_is_counted() -> None:
    metrics, clock = ControllerMetrics(), ManualClock()
    deadline = HeartbeatDeadline(metrics, clock.monotonic_ms, 1_000)
    loop = asyncio.get_running_loop()
    for elapsed_ms in (999, 1_001):
        answer: asyncio.Future[None] = loop.create_future()
        watched = deadline.watch(answer)
        clock.advance_ms(elapsed_ms)
        answer.set_result(None)
        await watched
        await asyncio.sleep(0)  # callbacks of the future run
    assert metrics.timed_out_heartbeats == 1


def test_times_of_commands_are_exported_in_milliseconds() -> None:
    metrics = ControllerMetrics()
    metrics.processing_us.record(1_500)
    families = {family.name: family for family in metrics.families()}
    samples = list(families["kafka_controller_controllereventmanager_eventqueueprocessingtimems"].read())
    assert [sample.value for sample in samples if sample.suffix == "_sum"] == [1.5]
    assert [sample.value for sample in samples if sample.suffix == "_count"] == [1]

"""Convergence of remote metadata: after any faults, all brokers have the state that the topic defines.

Seeded histories: events are published while requests and responses get lost, records arrive twice, leaders change,
brokers are partitioned, crash with and without their disks, and the topic is pruned. After all faults are repaired, the
cache of every broker, and of one with an empty disk, is compared with a simple reference that read every record.
"""

import asyncio
import random
from collections.abc import Iterator

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.catalog.metadata_records import MetadataEvent, decode_event, partition_of
from storage.tiered.errors import InvalidSegmentTransition, RemoteMetadataNotReady
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tests.storage.tiered.catalog.reference_metadata import ReferenceMetadata, reach
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.metadata_topic import Faults, MetadataTopic
from tests.support.harnesses.metadata_brokers import MetadataBroker, future_of

COUNT = 2
BROKERS = (1, 2, 3)
STEPS = 220
PARTITIONS = [TopicIdPartition(Uuid(bytes(range(16))), "orders", index) for index in range(4)]
SETTINGS = {
    "ottla.prune.min.records": "40",
    "ottla.prune.interval.ms": "700",
    "ottla.snapshot.interval.ms": "900",
    "remote.log.metadata.consume.wait.ms": "15000",
}
NEXT = {
    SegmentState.COPY_STARTED: [SegmentState.COPY_FINISHED, SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED],
    SegmentState.COPY_FINISHED: [SegmentState.DELETE_STARTED],
    SegmentState.DELETE_STARTED: [SegmentState.DELETE_FINISHED],
}


class History:
    """One seeded run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loop = ManualLoop()
        faults = Faults(request_lost=0.05, answer_lost=0.05, doubled=0.1, delay_s=0.02, timeout_s=0.4)
        self.topic = MetadataTopic(self.loop, COUNT, BROKERS, faults=faults, rng=self.rng)
        self.topic.publish_image()
        self.brokers = [MetadataBroker(self.topic, number, SETTINGS) for number in BROKERS]
        self.numbers = iter(range(1, 10**6))
        self.in_use: set[bytes] = set()
        self.counts = dict.fromkeys(("done", "refused", "timed out"), 0)
        for broker in self.brokers:
            broker.see()
            broker.manager.assign(PARTITIONS[:2], PARTITIONS[2:])

    def run(self) -> None:
        actions = [self.publish] * 12 + [self.elect, self.cut_off, self.crash, self.reassign, self.see]
        for _ in range(STEPS):
            self.rng.choice(actions)()
            self.loop.advance(self.rng.random() * 0.3)

    # ---- events

    def publish(self) -> None:
        broker, partition = self.rng.choice(self.brokers), self.rng.choice(PARTITIONS)
        if not broker.manager.is_ready(partition):
            return
        event = self.event(broker, partition)
        if event is None:
            return
        key = partition.topic_id if isinstance(event, PartitionDelete) else event.id.id
        match event:
            case RemoteSegment():
                future = future_of(broker.manager.add(event))
            case SegmentUpdate():
                future = future_of(broker.manager.update(event))
            case _:
                future = future_of(broker.manager.delete_partition(event))
        self.in_use.add(key)
        future.add_done_callback(lambda done: self.note(key, done))

    def note(self, key: bytes, done: "asyncio.Future[None]") -> None:
        self.in_use.discard(key)
        match done.exception():
            case None:
                self.counts["done"] += 1
            case TimeoutError():
                self.counts["timed out"] += 1
            case InvalidSegmentTransition() | RemoteMetadataNotReady():
                self.counts["refused"] += 1
            case error:
                raise error

    def event(self, broker: MetadataBroker, partition: TopicIdPartition) -> MetadataEvent | None:
        """Return an event for a new or known segment; like a leader, with one pending event per segment at most."""
        if self.rng.random() < 0.01:
            removal = self.rng.choice(list(PartitionDeleteState))
            return PartitionDelete(partition, removal, next(self.numbers), BrokerId(broker.broker_id))
        known = [one for one in broker.manager.segments(partition) if one.id.id not in self.in_use]
        if not known or self.rng.random() < 0.35:
            return self.segment(partition, broker.broker_id)
        chosen = self.rng.choice(known)
        state = self.rng.choice(NEXT[chosen.state])
        custom = self.rng.choice([None, b"custom"])
        return SegmentUpdate(chosen.id, state, next(self.numbers), BrokerId(broker.broker_id), custom)

    def segment(self, partition: TopicIdPartition, broker_id: int) -> RemoteSegment:
        start = self.rng.randrange(50)
        end = start + self.rng.randrange(12)
        epochs = [SegmentEpoch(LeaderEpoch(self.rng.randrange(3)), start)]
        if self.rng.random() < 0.4:
            epochs.append(SegmentEpoch(LeaderEpoch(epochs[0].epoch + 1), self.rng.randint(start, end)))
        return RemoteSegment(
            id=RemoteSegmentId(partition, Uuid(self.rng.randbytes(16))),
            start_offset=start,
            end_offset=end,
            max_timestamp_ms=0,
            broker_id=BrokerId(broker_id),
            event_timestamp_ms=next(self.numbers),
            size_bytes=1,
            leader_epochs=tuple(epochs),
        )

    # ---- faults

    def elect(self) -> None:
        self.topic.elect(self.rng.randrange(COUNT), self.rng.choice([*BROKERS, None]))
        self.topic.publish_image()
        for broker in self.brokers:
            if self.rng.random() < 0.7:
                broker.see()

    def see(self) -> None:
        for broker in self.brokers:
            broker.see()

    def cut_off(self) -> None:
        self.topic.down = {self.rng.choice(BROKERS)} if self.rng.random() < 0.5 else set()

    def crash(self) -> None:
        broker = self.rng.choice(self.brokers)
        broker.crash()
        self.in_use.clear()
        broker.restart(wiped=self.rng.random() < 0.3)
        broker.manager.assign([], PARTITIONS)

    def reassign(self) -> None:
        manager, partition = self.rng.choice(self.brokers).manager, self.rng.choice(PARTITIONS)
        manager.unassign([partition])
        if self.rng.random() < 0.8:
            manager.assign([partition], [])

    # ---- the end

    def mend(self) -> None:
        self.topic.faults = Faults()
        self.topic.down = set()
        for number in range(COUNT):
            self.topic.elect(number, self.rng.choice(BROKERS))
        self.topic.publish_image()
        self.brokers.append(MetadataBroker(self.topic, 9, SETTINGS))
        for broker in self.brokers:
            broker.see()
            broker.manager.assign([], PARTITIONS)
        self.loop.advance(40)

    def references(self) -> dict[TopicIdPartition, ReferenceMetadata]:
        references = {partition: ReferenceMetadata() for partition in PARTITIONS}
        for log in self.topic.partitions:
            for event in map(decode_event, log.history):
                references[partition_of(event)].apply(event)
        return references


def differences(broker: MetadataBroker, partition: TopicIdPartition, reference: ReferenceMetadata) -> Iterator[str]:
    manager = broker.manager
    if {one.id.id: one for one in manager.segments(partition)} != reference.known:
        yield f"segments of {partition} at {broker.broker_id}"
    for epoch in range(5):
        for offset in range(65):
            found = manager.segment_for(partition, LeaderEpoch(epoch), offset)
            held = None if found is None else (found.is_compacted, reach(found, epoch, offset))
            if held != reference.furthest(epoch, offset):
                yield f"{offset} of epoch {epoch} of {partition} at {broker.broker_id}"


@pytest.mark.parametrize("seed", range(8))
def test_brokers_converge_to_the_contents_of_the_topic(seed: int) -> None:
    history = History(seed)
    history.run()
    history.mend()
    references = history.references()
    for broker in history.brokers:
        for partition, reference in references.items():
            assert list(differences(broker, partition, reference)) == []
            assert [one for one in broker.manager.removals() if one.partition == partition] == (
                [] if reference.deletion is None else [reference.deletion]
            )
    assert not history.loop.failures
    assert history.counts["done"] > 30, history.counts


def test_histories_include_pruning_and_repetitions() -> None:
    """The random histories must include pruning and repetitions."""
    histories = [History(seed) for seed in range(3)]
    for history in histories:
        history.run()
        history.mend()
    logs = [log for history in histories for log in history.topic.partitions]
    assert any(log.start > 0 for log in logs)
    assert any(len(set(log.history)) < len(log.history) for log in logs)

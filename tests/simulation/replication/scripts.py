"""Histories that chance finds only in thousands of seeds, told step by step: who leads, who hears of it, what is lost.

One partition on three brokers, of which 1 leads in the beginning. Each ends as it may; the checker looks on all the
while.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from broker.runtime.partitions.partition import Partition
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.records.builder import Record, build_batch
from storage.config import MAX_LONG
from tests.simulation.replication.broker import Node
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.scenario import Mood, Scenario, TopicScenario
from tests.simulation.replication.simulation import ReplicationSimulator
from tests.simulation.weather import Weather

_NAME: Final = ReplicaName("clean", 0)
_FOR_EVER: Final = 1e12
_PATIENCE_MS: Final = 20_000.0


class _Misfortune(Random):
    """Nothing that was not synced survives."""

    def randint(self, a: int, b: int) -> int:
        return a


class _NothingElse:
    """A schedule: the script is all that happens."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class Stage:
    """A cluster in calm weather, and what a script does to it."""

    def __init__(self, seed: int, *, elr: bool = True) -> None:
        self.simulation = ReplicationSimulator(seed, lambda _: _NothingElse(), events=0, scenario=_scenario(elr=elr))
        self._number = 0

    def begin(self) -> None:
        """Everybody in sync, broker 1 leading in epoch 0."""
        self.simulation.create_cluster()
        self.until(lambda: all(self._partition(node_id) is not None for node_id in (1, 2, 3)))
        self.until(lambda: self.partition(1).is_leader)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline_ms = self.simulation.world.now_ms + _PATIENCE_MS
        while not condition():
            self.simulation.step()
            assert self.simulation.world.now_ms < deadline_ms, "the story does not go on"

    def wait_ms(self, milliseconds: float) -> None:
        end_ms = self.simulation.world.now_ms + milliseconds
        while self.simulation.world.now_ms < end_ms:
            self.simulation.step()

    def node(self, node_id: int) -> Node:
        return self.simulation.nodes[node_id]

    def partition(self, node_id: int) -> Partition:
        found = self._partition(node_id)
        assert found is not None
        return found

    def _partition(self, node_id: int) -> Partition | None:
        broker = self.node(node_id).broker
        return None if broker is None else broker.partition(*_NAME)

    @property
    def isr(self) -> set[int]:
        registration = self.simulation.registration(_NAME)
        assert registration is not None
        return set(registration.isr)

    def is_active(self, node_id: int) -> bool:
        """Whether a node is let in, in the life that it has now."""
        registered, broker = self.simulation.service.image.brokers.get(node_id), self.node(node_id).broker
        if registered is None or broker is None:
            return False
        return registered.is_active and registered.incarnation_id == broker.incarnation_id

    def append(self, node_id: int) -> None:
        """A record with acks=1 to whoever takes itself for the leader."""
        self._number += 1
        batch = bytearray(build_batch([Record(1, None, b"%d" % self._number)]))
        broker = self.node(node_id).broker
        assert broker is not None
        self.simulation.world.run(broker.process, self.partition(node_id).append, batch, 1)

    def delete(self, node_id: int, offset: int) -> None:
        """Records below an offset, at the leader."""
        self.simulation.checker.on_deleted(_NAME, offset)
        broker = self.node(node_id).broker
        assert broker is not None
        self.simulation.world.run(broker.process, self.partition(node_id).record_deletion.delete_records, offset)

    def flush(self, node_id: int) -> None:
        """A log, of which a restart knows."""
        broker = self.node(node_id).broker
        assert broker is not None
        assert broker.data is not None
        self.simulation.world.run(broker.process, self.partition(node_id).log.flush)
        self.simulation.world.run(broker.process, broker.data.log_dirs.checkpoints.write_recovery_points)

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.simulation.crash(self.node(node_id), power=False)

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.simulation.start(self.node(node_id))

    def is_led(self, *node_ids: int) -> bool:
        """Whether one of these leads."""
        found = map(self._partition, node_ids)
        return any(partition is not None and partition.is_leader for partition in found)

    def end_alike(self) -> None:
        """Everybody comes to have, from the log's start on, what is committed."""
        checker = self.simulation.checker
        history = checker.histories[_NAME]
        self.until(lambda: self.isr == {1, 2, 3})
        self.until(lambda: all(self._has_committed(node_id, history.end) for node_id in (1, 2, 3)))
        for node_id in (1, 2, 3):
            checker.check_served(self.node(node_id), history, self.partition(node_id).log.log_start_offset)

    def _has_committed(self, node_id: int, offset: int) -> bool:
        partition = self._partition(node_id)
        return partition is not None and partition.log.high_watermark == offset

    def cut(self, *links: tuple[int, int]) -> None:
        self.simulation.wires.block(frozenset(links))

    def hold_metadata(self, *node_ids: int) -> None:
        """These hear of nothing new; the others of everything."""
        for node_id, node in self.simulation.nodes.items():
            node.feed.held_until_ms = _FOR_EVER if node_id in node_ids else 0.0
            node.feed.wake()

    def elect(self, node_id: int) -> None:
        """Make a replica the preferred one, and the leader."""
        replicas = sorted((1, 2, 3), key=lambda each: (each != node_id, each))
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        order = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=_NAME.topic, partitions=[partition])])
        election = ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic=_NAME.topic, partitions=[0])]
        )
        service = self.simulation.service
        service.command(lambda controller, _now: controller.alter_reassignments(order), _nothing)
        service.command(lambda controller, _now: controller.elect_leaders(election), _nothing)


def follower_from_an_older_epoch(seed: int) -> None:
    """KIP-320's first try fails here. Broker 3 has what 1 wrote in epoch 0, and 2 has not. 2 leads in epoch 1, of which
    neither 1 nor 3 hears; 1 again in epoch 2. 3 still fetches as in epoch 0: if that counts, or what it told in epoch
    0, the record is committed. Then 3 hears of epoch 1, and 2, which has heard of nothing since, has it cut that."""
    stage = Stage(seed)
    try:
        stage.begin()
        stage.append(1)
        stage.until(lambda: all(stage.partition(node_id).log.high_watermark == 1 for node_id in (1, 2, 3)))
        stage.cut((1, 2), (2, 1))
        stage.wait_ms(50.0)
        stage.append(1)
        stage.until(lambda: stage.partition(3).log.log_end_offset == 2)
        stage.hold_metadata(1, 3)
        stage.elect(2)
        stage.until(lambda: stage.partition(2).is_leader)
        stage.hold_metadata(2, 3)
        stage.elect(1)
        stage.until(lambda: stage.partition(1).leader_epoch == 2 and stage.partition(1).is_leader)
        stage.until(lambda: 2 not in stage.isr)
        stage.wait_ms(300.0)
        while stage.partition(3).leader_epoch < 1:
            stage.node(3).feed.bring_one()
        stage.wait_ms(2_000.0)
    finally:
        stage.simulation.close()


def fetch_of_a_former_life(seed: int) -> None:
    """What KIP-903 prevents. A fetch of broker 3 is under way for long. Meanwhile 3 loses its power, and with it what
    it had; comes back without that, and leaves the in-sync set. Then the fetch arrives, before any other if the seed is
    kind: 3 seems to have all."""
    stage = Stage(seed)
    try:
        stage.begin()
        for _ in range(5):
            stage.append(1)
        stage.until(lambda: all(stage.partition(node_id).log.high_watermark == 5 for node_id in (1, 2, 3)))
        stage.cut((3, 1))
        stage.append(1)
        stage.wait_ms(40.0)
        stage.simulation.crash(stage.node(3), power=True, luck=_Misfortune())
        stage.simulation.start(stage.node(3))
        stage.until(lambda: 3 not in stage.isr)
        stage.until(lambda: stage.is_active(3))
        stage.wait_ms(300.0)
        stage.cut()
        stage.wait_ms(2_000.0)
    finally:
        stage.simulation.close()


def fetch_of_an_unregistered_life(seed: int) -> None:
    """Why nobody fetches before it is registered. Broker 3 is killed, comes back with all that it had, and a fetch of
    that life is under way for long. It loses its power before it is registered, and with it what it had; comes back
    without, and leaves the in-sync set. Then the fetch arrives: without an epoch it could be of any life."""
    stage = Stage(seed)
    try:
        stage.begin()
        for _ in range(5):
            stage.append(1)
        stage.until(lambda: all(stage.partition(node_id).log.high_watermark == 5 for node_id in (1, 2, 3)))
        stage.cut((3, 1), (3, 0))
        stage.simulation.crash(stage.node(3), power=False)
        stage.simulation.start(stage.node(3))
        stage.wait_ms(100.0)
        stage.simulation.crash(stage.node(3), power=True, luck=_Misfortune())
        stage.cut((3, 1))
        stage.simulation.start(stage.node(3))
        stage.until(lambda: 3 not in stage.isr)
        stage.until(lambda: stage.is_active(3))
        stage.wait_ms(50.0)
        stage.cut()
        stage.wait_ms(2_000.0)
    finally:
        stage.simulation.close()


def parted_below_a_deletion(seed: int) -> None:
    """1 writes in epoch 0 what nobody else has, and 2 and 3 go on without it; they delete what they have in its place.
    1 comes back, and cuts what lies beyond. It is the last in sync when it is killed, and the only one who leads then.
    That the records were deleted, it has forgotten with its log's start. What it has below must be nobody's record."""
    stage = Stage(seed, elr=False)
    try:
        _part(stage)
        stage.delete(2, 4)
        stage.hold_metadata()
        stage.cut()
        stage.until(lambda: stage.partition(1).log.high_watermark == 4)
        stage.append(2)
        stage.until(lambda: stage.isr == {1, 2, 3} and stage.partition(1).log.high_watermark == 5)
        stage.kill(2, 3)
        stage.until(lambda: stage.isr == {1})
        stage.kill(1)
        stage.start(1)
        stage.until(lambda: stage.is_led(1))
        stage.append(1)
        stage.start(2, 3)
        stage.end_alike()
    finally:
        stage.simulation.close()


def parted_below_a_forgotten_deletion(seed: int) -> None:
    """As before; but 2 and 3 are killed before 1 comes back. They forget that they deleted records, and not that they
    forgot the epochs of those. 1 must be told where it parted from them."""
    stage = Stage(seed, elr=False)
    try:
        _part(stage)
        stage.delete(2, 4)
        stage.until(lambda: stage.partition(3).log.log_start_offset == 4)
        stage.append(2)
        stage.until(lambda: stage.partition(3).log.high_watermark == 5)
        for node_id in (2, 3):
            stage.flush(node_id)
        stage.kill(2, 3)
        stage.start(2, 3)
        stage.until(lambda: stage.is_led(2, 3))
        stage.hold_metadata()
        stage.cut()
        stage.end_alike()
    finally:
        stage.simulation.close()


def _part(stage: Stage) -> None:
    """Broker 1 is alone, with six records of epoch 0; 2 leads epoch 1, and has committed four with 3."""
    stage.begin()
    stage.cut((1, 2), (2, 1), (1, 3), (3, 1))
    stage.wait_ms(50.0)
    stage.hold_metadata(1)
    for _ in range(6):
        stage.append(1)
    stage.elect(2)
    stage.until(lambda: stage.partition(2).is_leader)
    for _ in range(4):
        stage.append(2)
    stage.until(lambda: stage.partition(3).log.high_watermark == 4)


def _scenario(*, elr: bool) -> Scenario:
    return Scenario(
        brokers=3,
        directories=1,
        topics=(TopicScenario(name=_NAME.topic, partitions=1, factor=3, is_clean=True, assignment=(1, 2, 3)),),
        elr=elr,
        producers=0,
        consumers=0,
        drift=0.0,
        weather=Weather(),
        metadata_delay_ms=1.0,
        metadata_commit_ms=1.0,
        fault_every_ms=_FOR_EVER,
        calm_share=0.0,
        produce_every_ms=_FOR_EVER,
        io_inline_share=1.0,
        io_delay_ms=1.0,
        session_timeout_ms=2_000,
        heartbeat_interval_ms=300,
        lag_time_max_ms=500,
        fetch_wait_max_ms=20,
        fetch_backoff_ms=100,
        fetch_partition_max_bytes=1_048_576,
        socket_timeout_ms=5_000,
        fetchers=1,
        request_timeout_ms=1_000,
        delivery_timeout_ms=10_000,
        segment_bytes=100_000,
        flush_messages=MAX_LONG,
        checkpoint_interval_ms=5_000,
        retention_interval_ms=5_000,
        restart_mean_ms=0.0,
        in_bytes=False,
        mood=Mood.MIXED,
    )


def _nothing(_: object) -> None:
    """Nobody waits for the answer."""

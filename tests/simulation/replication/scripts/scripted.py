"""Scripted histories that random schedules find only in thousands of seeds.

One partition on three brokers, of which 1 is the first leader. Each script runs under the checker and may end in any
state.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from broker.runtime.partitions.partition import Partition
from broker.runtime.replication.fetch_transport import Unanswered
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import iter_headers
from protocol.records.builder import Record, build_batch
from storage.config import MAX_LONG
from tests.simulation.replication.broker import Node
from tests.simulation.replication.clients import ACKS_ALL
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.network import Connection, Outcome
from tests.simulation.replication.process import TaskProcess
from tests.simulation.replication.producers import PRODUCE_VERSION
from tests.simulation.replication.scenario import Mood, Scenario, TopicScenario
from tests.simulation.replication.simulation import ReplicationSimulator
from tests.simulation.weather import Weather

_NAME: Final = ReplicaName("clean", 0)
_FOR_EVER: Final = 1e12
_CLIENT_ID: Final = 500
_PATIENCE_MS: Final = 20_000.0


class _WorstCaseRandom(Random):
    """A random source with which all unsynced data is lost."""

    def randint(self, a: int, b: int) -> int:
        return a


class _EmptySchedule:
    """A schedule without events: the script does everything."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class ScriptedCluster:
    """A cluster without faults, and the operations of scripts."""

    def __init__(self, seed: int, *, elr: bool = True) -> None:
        self.simulation = ReplicationSimulator(seed, lambda _: _EmptySchedule(), events=0, scenario=_scenario(elr=elr))
        self._number = 0

    def begin(self) -> None:
        """Start with all replicas in sync and broker 1 as leader of epoch 0."""
        self.simulation.create_cluster()
        self.until(lambda: all(self._partition(node_id) is not None for node_id in (1, 2, 3)))
        self.until(lambda: self.partition(1).is_leader)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline_ms = self.simulation.world.now_ms + _PATIENCE_MS
        while not condition():
            self.simulation.step()
            assert self.simulation.world.now_ms < deadline_ms, "the script does not proceed"

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
        """Whether a node's present registration is unfenced."""
        registered, broker = self.simulation.service.image.brokers.get(node_id), self.node(node_id).broker
        if registered is None or broker is None:
            return False
        return registered.is_active and registered.incarnation_id == broker.incarnation_id

    def append(self, node_id: int) -> None:
        """Append a record with acks=1 to each node that believes to be leader."""
        self._number += 1
        batch = bytearray(build_batch([Record(1, None, b"%d" % self._number)]))
        broker = self.node(node_id).broker
        assert broker is not None
        self.simulation.world.run(broker.process, self.partition(node_id).append, batch, 1)

    def produce(self, node_id: int, *, timeout_ms: int) -> None:
        """Send a record with acks=all to a broker; an acknowledgement is checked whenever it arrives."""
        self._number += 1
        data = build_batch([Record(1, None, b"%d" % self._number)])
        crc = next(iter_headers(data))[1].crc
        client = TaskProcess(self.simulation.world, _CLIENT_ID + self._number)
        connection = Connection(self.simulation.wires, client, self.node(node_id).endpoint, "script", 2.0 * timeout_ms)
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=_NAME.topic, partition_data=[PartitionProduceData(0, bytearray(data))])],
        )

        def on_answer(outcome: Outcome) -> None:
            if not isinstance(outcome, Unanswered):
                (answer,) = outcome.responses[0].partition_responses
                if answer.error_code == ErrorCode.NONE:
                    self.simulation.checker.on_acknowledged(_NAME, crc, answer.base_offset, ACKS_ALL)

        self.simulation.world.run(client, connection.ask, request, PRODUCE_VERSION, on_answer)

    def delete(self, node_id: int, offset: int) -> None:
        """Delete records below an offset, at the leader."""
        self.simulation.checker.on_deleted(_NAME, offset)
        broker = self.node(node_id).broker
        assert broker is not None
        self.simulation.world.run(broker.process, self.partition(node_id).record_deletion.delete_records, offset)

    def flush(self, node_id: int) -> None:
        """Flush a log, so that a restart keeps it."""
        broker = self.node(node_id).broker
        assert broker is not None
        assert broker.data is not None
        self.simulation.world.run(broker.process, self.partition(node_id).log.flush)
        self.simulation.world.run(broker.process, broker.data.log_dirs.checkpoints.write_recovery_points)

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.simulation.crash(self.node(node_id), power=False)

    def stop(self, node_id: int) -> None:
        """Shut a broker down gracefully, and keep it down."""
        node = self.node(node_id)
        assert node.broker is not None
        node.is_leaving = True
        self.simulation.world.run(node.broker.process, node.broker.shut_down)
        self.until(lambda: node.broker is None)

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.simulation.start(self.node(node_id))

    def is_led(self, *node_ids: int) -> bool:
        """Whether one of these nodes is leader."""
        found = map(self._partition, node_ids)
        return any(partition is not None and partition.is_leader for partition in found)

    def end_alike(self) -> None:
        """Wait until every replica has the committed records, from the log start offset on."""
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
        """Hold back the metadata of these nodes; deliver all to the others."""
        for node_id, node in self.simulation.nodes.items():
            node.feed.held_until_ms = _FOR_EVER if node_id in node_ids else 0.0
            node.feed.wake()

    def elect(self, node_id: int) -> None:
        """Make a replica the preferred leader and the leader."""
        replicas = sorted((1, 2, 3), key=lambda each: (each != node_id, each))
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        order = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=_NAME.topic, partitions=[partition])])
        election = ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic=_NAME.topic, partitions=[0])]
        )
        service = self.simulation.service
        service.command(lambda controller, _now: controller.alter_reassignments(order), _nothing)
        service.command(lambda controller, _now: controller.elect_leaders(election), _nothing)


def fetch_with_older_leader_epoch(seed: int) -> None:
    """Fail the first version of KIP-320. Broker 3 has a record of broker 1 from epoch 0, and broker 2 lacks it. Broker
    2 leads epoch 1, which neither 1 nor 3 learn of; broker 1 leads again in epoch 2. Broker 3 still fetches with epoch
    0: if that fetch, or its progress from epoch 0, counts, the record is committed. Then 3 learns of epoch 1, and 2,
    which has received no metadata since, makes it truncate the record.
    """
    cluster = ScriptedCluster(seed)
    try:
        cluster.begin()
        cluster.append(1)
        cluster.until(lambda: all(cluster.partition(node_id).log.high_watermark == 1 for node_id in (1, 2, 3)))
        cluster.cut((1, 2), (2, 1))
        cluster.wait_ms(50.0)
        cluster.append(1)
        cluster.until(lambda: cluster.partition(3).log.log_end_offset == 2)
        cluster.hold_metadata(1, 3)
        cluster.elect(2)
        cluster.until(lambda: cluster.partition(2).is_leader)
        cluster.hold_metadata(2, 3)
        cluster.elect(1)
        cluster.until(lambda: cluster.partition(1).leader_epoch == 2 and cluster.partition(1).is_leader)
        cluster.until(lambda: 2 not in cluster.isr)
        cluster.wait_ms(300.0)
        while cluster.partition(3).leader_epoch < 1:
            cluster.node(3).feed.bring_one()
        cluster.wait_ms(2_000.0)
    finally:
        cluster.simulation.close()


def delayed_fetch_of_previous_registration(seed: int) -> None:
    """Show what KIP-903 prevents. A fetch of broker 3 is delayed. Meanwhile 3 loses power and its unsynced data,
    restarts, and leaves the ISR. Then the delayed fetch arrives, with some seeds before any other fetch, and claims all
    records.
    """
    cluster = ScriptedCluster(seed)
    try:
        cluster.begin()
        for _ in range(5):
            cluster.append(1)
        cluster.until(lambda: all(cluster.partition(node_id).log.high_watermark == 5 for node_id in (1, 2, 3)))
        cluster.cut((3, 1))
        cluster.append(1)
        cluster.wait_ms(40.0)
        cluster.simulation.crash(cluster.node(3), power=True, luck=_WorstCaseRandom())
        cluster.simulation.start(cluster.node(3))
        cluster.until(lambda: 3 not in cluster.isr)
        cluster.until(lambda: cluster.is_active(3))
        cluster.wait_ms(300.0)
        cluster.cut()
        cluster.wait_ms(2_000.0)
    finally:
        cluster.simulation.close()


def delayed_fetch_before_registration(seed: int) -> None:
    """Show why a broker fetches only after its registration. Broker 3 is killed, restarts with all its data, and a
    fetch of that process is delayed. It loses power before it is registered, and its unsynced data; it restarts and
    leaves the ISR. Then the fetch arrives: without a broker epoch it could belong to any process.
    """
    cluster = ScriptedCluster(seed)
    try:
        cluster.begin()
        for _ in range(5):
            cluster.append(1)
        cluster.until(lambda: all(cluster.partition(node_id).log.high_watermark == 5 for node_id in (1, 2, 3)))
        cluster.cut((3, 1), (3, 0))
        cluster.simulation.crash(cluster.node(3), power=False)
        cluster.simulation.start(cluster.node(3))
        cluster.wait_ms(100.0)
        cluster.simulation.crash(cluster.node(3), power=True, luck=_WorstCaseRandom())
        cluster.cut((3, 1))
        cluster.simulation.start(cluster.node(3))
        cluster.until(lambda: 3 not in cluster.isr)
        cluster.until(lambda: cluster.is_active(3))
        cluster.wait_ms(50.0)
        cluster.cut()
        cluster.wait_ms(2_000.0)
    finally:
        cluster.simulation.close()


def divergence_below_deleted_records(seed: int) -> None:
    """Broker 1 appends unreplicated records in epoch 0; 2 and 3 continue without it, and delete their own records at
    these offsets. Broker 1 returns and truncates above. It is the last in-sync replica when it is killed, and then the
    only possible leader. With its log start offset it has lost the deletion; its records below must not be served.
    """
    cluster = ScriptedCluster(seed, elr=False)
    try:
        _part(cluster)
        cluster.delete(2, 4)
        cluster.hold_metadata()
        cluster.cut()
        cluster.until(lambda: cluster.partition(1).log.high_watermark == 4)
        cluster.append(2)
        cluster.until(lambda: cluster.isr == {1, 2, 3} and cluster.partition(1).log.high_watermark == 5)
        cluster.kill(2, 3)
        cluster.until(lambda: cluster.isr == {1})
        cluster.kill(1)
        cluster.start(1)
        cluster.until(lambda: cluster.is_led(1))
        cluster.append(1)
        cluster.start(2, 3)
        cluster.end_alike()
    finally:
        cluster.simulation.close()


def divergence_below_lost_log_start(seed: int) -> None:
    """As before, but 2 and 3 are killed before 1 returns. They lose their log start offset, but have no epochs for the
    deleted records. Broker 1 must learn where its log diverges.
    """
    cluster = ScriptedCluster(seed, elr=False)
    try:
        _part(cluster)
        cluster.delete(2, 4)
        cluster.until(lambda: cluster.partition(3).log.log_start_offset == 4)
        cluster.append(2)
        cluster.until(lambda: cluster.partition(3).log.high_watermark == 5)
        for node_id in (2, 3):
            cluster.flush(node_id)
        cluster.kill(2, 3)
        cluster.start(2, 3)
        cluster.until(lambda: cluster.is_led(2, 3))
        cluster.hold_metadata()
        cluster.cut()
        cluster.end_alike()
    finally:
        cluster.simulation.close()


def acknowledgement_of_an_earlier_term(seed: int) -> None:
    """Broker 1 leads epoch 0 and has an unreplicated record, whose producer waits for acks=all. Broker 2 leads epoch 1;
    broker 1 learns of it and truncates. Broker 1 leads epoch 2 and commits another record at that offset, which must
    not acknowledge the first one.
    """
    cluster = ScriptedCluster(seed)
    try:
        cluster.begin()
        cluster.cut((1, 2), (2, 1), (1, 3), (3, 1))
        cluster.wait_ms(50.0)
        cluster.produce(1, timeout_ms=15_000)
        cluster.until(lambda: cluster.partition(1).log.log_end_offset == 1)
        cluster.elect(2)
        cluster.until(lambda: cluster.partition(2).is_leader and not cluster.partition(1).is_leader)
        cluster.append(2)
        cluster.cut()
        cluster.until(lambda: cluster.partition(1).log.high_watermark == 1 and cluster.isr == {1, 2, 3})
        cluster.elect(1)
        cluster.until(lambda: cluster.partition(1).is_leader)
        cluster.append(1)
        cluster.until(lambda: cluster.partition(1).log.high_watermark == 2)
        cluster.wait_ms(500.0)
    finally:
        cluster.simulation.close()


def _part(cluster: ScriptedCluster) -> None:
    """Isolate broker 1 with six records of epoch 0; broker 2 leads epoch 1, and has committed four records with 3."""
    cluster.begin()
    cluster.cut((1, 2), (2, 1), (1, 3), (3, 1))
    cluster.wait_ms(50.0)
    cluster.hold_metadata(1)
    for _ in range(6):
        cluster.append(1)
    cluster.elect(2)
    cluster.until(lambda: cluster.partition(2).is_leader)
    for _ in range(4):
        cluster.append(2)
    cluster.until(lambda: cluster.partition(3).log.high_watermark == 4)


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
    """Ignore the result."""

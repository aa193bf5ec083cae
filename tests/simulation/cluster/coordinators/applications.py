"""The transactional applications of a cluster: their topics, their processes, and the end of their work."""

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final

from broker.metadata.image.topic_names import GROUP_OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from broker.transactions.shard import TransactionShard
from broker.transactions.state import TransactionPartition, TransactionState
from protocol.primitives import Uuid
from tests.simulation.cluster.coordinators.checker import CoordinatorChecker, PipelineWork
from tests.simulation.cluster.coordinators.members import MEMBERS, GroupMember
from tests.simulation.cluster.coordinators.migrating_members import (
    MIGRATING,
    MemberCommits,
    MemberReader,
    is_stable,
    migrating_member,
)
from tests.simulation.cluster.coordinators.offsets import OffsetClient
from tests.simulation.cluster.coordinators.pipeline import Pipeline
from tests.simulation.cluster.coordinators.services import WireServices
from tests.simulation.cluster.coordinators.share_members import ShareMember
from tests.simulation.cluster.scenario import INPUT
from tests.simulation.replication.broker import Node
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.scenario import Scenario, TopicScenario
from tests.simulation.simulator import PartCounts
from tests.simulation.transactions.clients import Application, ProducerInstance

if TYPE_CHECKING:
    from tests.simulation.cluster.simulation import ClusterSimulator

OUTPUT: Final = "output"
PIPELINE: Final = "pipeline"
"""The transactional id and the group of the pipeline."""
TOPICS: Final = (
    TopicScenario(name=TRANSACTION_STATE_TOPIC, partitions=2, factor=3, is_clean=True),
    TopicScenario(name=GROUP_OFFSETS_TOPIC, partitions=1, factor=3, is_clean=True),
    TopicScenario(name=SHARE_STATE_TOPIC, partitions=1, factor=3, is_clean=True),
    TopicScenario(name=OUTPUT, partitions=2, factor=3, is_clean=True),
)
SOURCE: Final = ReplicaName(INPUT, 0)
_FIRST_ID: Final = 301
_CHANGE_MS: Final = 2_500.0
_COUNTS: Final = {
    "committed": "transactions committed",
    "aborted": "transactions aborted",
    "fenced producers": "fenced transactional producers",
    "acquired records": "share records acquired",
    "acknowledged records": "share records acknowledged",
    "released records": "share records released",
    "failed acknowledgements": "failed share acknowledgements",
    "records at their last delivery": "share records at their last delivery",
}


_MEMBERS: Final = 3
"""Number of members of each group at first."""


class Work(Enum):
    """The work of a history beside the pipeline and committed offsets."""

    TRANSACTIONS = "transactions"
    MEMBERS = "members"
    SHARES = "shares"
    MIGRATIONS = "migrations"


_MIGRATION_BYTES: Final = 4_000
_SUBSCRIBED: Final = ((OUTPUT, 0), (OUTPUT, 1), (INPUT, 0))
"""The partitions of consumer groups."""
WORKS: Final = (Work.TRANSACTIONS, Work.MEMBERS, Work.SHARES)


def _work(seed: int) -> Work:
    """Return the work of a seed: half of the histories with members have a group that changes its protocol."""
    work = Random(f"work {seed}").choice(WORKS)
    migrates = work is Work.MEMBERS and Random(f"members {seed}").random() < 0.5
    return Work.MIGRATIONS if migrates else work


class Applications:
    """Producers of transactions and clients that commit offsets. Each instance is a process of its own."""

    def __init__(self, simulation: "ClusterSimulator", work: Work | None = None) -> None:
        self._simulation = simulation
        self._random = Random(f"applications {simulation.seed}")
        counts = PartCounts(simulation.checker.counts, _COUNTS)
        self.checker = CoordinatorChecker(simulation.checker, counts, lambda: simulation.world.now_ms, self)
        self.checker.watched = {GROUP_OFFSETS_TOPIC, OUTPUT}
        self.checker.shares.on_pruned = self._on_pruned
        self.outputs = [TransactionPartition(OUTPUT, index) for index in range(2)]
        self.instances: list[Application] = []
        self._node_ids = iter(range(_FIRST_ID, _FIRST_ID + 1_000))
        self.work = work or _work(simulation.seed)
        self._commits = MemberCommits(self.outputs[0], self.checker)
        ids = self._random.randint(1, 2) if self.work is Work.TRANSACTIONS else 0
        self._ids = [f"id{number}" for number in range(ids)]
        self._stray_share = self._random.choice((0.0, 0.02, 0.1))
        self._is_over = False
        self._is_finished = False
        self._is_group_finished = False

    def note_stray(self) -> None:
        """Count a request that arrives once more."""
        self.checker.counts.add("stray requests of clients")

    def fitting(self, scenario: Scenario) -> Scenario:
        """Return the scenario with segments that hold the migration of a group, which is one batch."""
        if self.work is not Work.MIGRATIONS:
            return scenario
        return replace(scenario, segment_bytes=max(_MIGRATION_BYTES, scenario.segment_bytes))

    # Work

    def start(self) -> None:
        """Start all applications."""
        histories = self._simulation.checker.data.histories
        names = {INPUT, *(topic.name for topic in TOPICS)}
        self.checker.histories = {name: history for name, history in histories.items() if name.topic in names}
        for transactional_id in self._ids:
            self._start_producer(transactional_id)
        services = self._services()
        self.instances.append(OffsetClient("readers", self.outputs[0], services, self._random, self.checker))
        history = histories[SOURCE]
        self.checker.pipeline = PipelineWork(PIPELINE, TransactionPartition(*SOURCE), lambda: history.end, self.checker)
        self._start_producer(PIPELINE)
        if self.work is Work.MEMBERS:
            for group_id in MEMBERS:
                for _ in range(_MEMBERS):
                    self._start_member(group_id)
        if self.work is Work.MIGRATIONS:
            for _ in range(_MEMBERS):
                self._start_member(MIGRATING)
        if self.work is Work.SHARES:
            for _ in range(_MEMBERS):
                self._start_share_member()
        self._plan()

    def name_of(self, topic_id: Uuid) -> str:
        """Return the name of a topic, or its id."""
        topic = self._simulation.checker.committed.image.topics.by_id(topic_id)
        return str(topic_id) if topic is None else topic.name

    def _on_pruned(self, partition: int, offset: int) -> None:
        """Let a share coordinator delete its own records."""
        history = self._simulation.checker.data.histories[ReplicaName(SHARE_STATE_TOPIC, partition)]
        history.delete(offset)
        self.checker.counts.add("prunings of share states")

    def share_epoch(self) -> int:
        """Return the leader epoch of the partition that share groups read."""
        registration = self._simulation.registration(SOURCE)
        return -1 if registration is None else registration.leader_epoch

    def _start_share_member(self) -> None:
        services = self._services()
        self.checker.note(f"member {services.process.node_id} of a share group starts")
        history = self._simulation.checker.data.histories[SOURCE]
        shares = self.checker.shares
        self.instances.append(
            ShareMember(
                TransactionPartition(*SOURCE), services, self._random, lambda: shares.highest_start >= history.end > 0
            )
        )

    def _start_member(self, group_id: str) -> None:
        services = self._services()
        self.checker.note(f"member {services.process.node_id} of {group_id} starts")
        owners = self.checker.owners
        self.instances.append(
            migrating_member(_SUBSCRIBED, services, self._random, owners, self._commits)
            if group_id == MIGRATING
            else MEMBERS[group_id](group_id, _SUBSCRIBED, services, self._random, owners)
        )

    def _services(self) -> WireServices:
        services = WireServices(self._simulation, next(self._node_ids), self._random)
        services.stray_share = self._stray_share
        return services

    def _start_producer(self, transactional_id: str) -> ProducerInstance:
        services = self._services()
        name = f"{transactional_id}.{services.process.node_id}"
        self.checker.note(f"{name} starts")
        instance: ProducerInstance
        work = self.checker.pipeline
        if transactional_id == PIPELINE:
            assert work is not None
            instance = Pipeline(name, services, self._random, self.checker, work)
        else:
            instance = ProducerInstance(name, transactional_id, services, self._random, self.checker, supports_v2=True)
        self.instances.append(instance)
        return instance

    def _plan(self) -> None:
        self._simulation.world.schedule(self._random.random() * _CHANGE_MS, self._change)

    def _change(self) -> None:
        """Start another instance of a producer. The former ones are dead, or go on beside it."""
        if self._is_over:
            return
        if self.work is not Work.TRANSACTIONS and self._random.random() < 0.8:
            if self.work is Work.SHARES:
                self._change_share_member()
            else:
                self._change_member()
            self._plan()
            return
        transactional_id = self._random.choice([*self._ids, PIPELINE])
        running = self._running(transactional_id)
        if not running or self._random.random() < 0.4:
            for instance in running:
                if self._random.random() < 0.6:
                    self._kill(instance)
            self._start_producer(transactional_id)
        self._plan()

    def _change_member(self) -> None:
        """End a member, with or without notice, or start another one."""
        group_id = MIGRATING if self.work is Work.MIGRATIONS else self._random.choice(list(MEMBERS))
        running = self._members_of(group_id)
        if running and self._random.random() < 0.55:
            member = self._random.choice(running)
            if self._random.random() < 0.5:
                self._kill(member)
            else:
                member.is_stopping = True
        else:
            self._start_member(group_id)

    def _members_of(self, group_id: str) -> list[GroupMember]:
        return [
            each
            for each in self.instances
            if isinstance(each, GroupMember) and each.ownership.group_id == group_id and not each.is_done
        ]

    def _change_share_member(self) -> None:
        """Replace a member of the share group, which ends without notice."""
        running = [each for each in self.instances if isinstance(each, ShareMember) and not each.is_done]
        if running:
            self._kill(self._random.choice(running))
        self._start_share_member()

    def _running(self, transactional_id: str) -> list[ProducerInstance]:
        return [
            each
            for each in self.instances
            if isinstance(each, ProducerInstance) and each.transactional_id == transactional_id and not each.is_done
        ]

    @staticmethod
    def _kill(instance: Application) -> None:
        instance.kill()
        assert isinstance(instance.services, WireServices)
        instance.services.process.die()

    # The end

    def stop(self) -> None:
        """Let the applications end their work; the last instance of an id ends the transactions of the former ones."""
        self._is_over = True
        self._stray_share = 0.0
        for instance in self.instances:
            # Members of the migrating group stop when they are stable.
            instance.is_stopping |= self.work is not Work.MIGRATIONS or not isinstance(instance, GroupMember)
            assert isinstance(instance.services, WireServices)
            instance.services.stray_share = 0.0
        for transactional_id in [*self._ids, PIPELINE]:
            if not self._running(transactional_id):
                self._start_producer(transactional_id).is_stopping = True

    def close(self) -> None:
        """End all processes."""
        for instance in self.instances:
            self._kill(instance)

    def unsettled_reason(self) -> str | None:
        """Return what is missing until all transactions are decided."""
        self._find_dead_partitions()
        if self.checker.is_void:
            self.close()
            return None
        work = self.checker.pipeline
        if work is not None and work.acknowledged < work.goal() and not self._running(PIPELINE):
            self._start_producer(PIPELINE).is_stopping = True
        if self.work is Work.MIGRATIONS and not self._is_group_finished:
            return self._unstable_members()
        running = sum(not each.is_done for each in self.instances)
        if running:
            return f"{running} applications have work"
        undecided = self._undecided()
        if undecided:
            return f"transactions {undecided} are not ended"
        unstable = self.checker.unstable()
        if unstable:
            return f"{unstable} have records that are not stable"
        if not self._is_finished:
            self._is_finished = True
            self.checker.finish()
        return None

    def _unstable_members(self) -> str:
        """Let the members of the migrating group leave, and read its offset, once they own all partitions."""
        members = [each for each in self._members_of(MIGRATING) if not each.is_stopping]
        if not members:
            self._start_member(MIGRATING)
        if not is_stable(members, _SUBSCRIBED):
            return f"{len(members)} members of {MIGRATING} are not stable"
        self._is_group_finished = True
        for member in members:
            member.is_stopping = True
        self.instances.append(MemberReader(self._services(), self._commits))
        return f"{len(members)} members of {MIGRATING} leave"

    def _find_dead_partitions(self) -> None:
        for name in self.checker.histories:
            registration = self._simulation.registration(name)
            assert registration is not None
            if registration.leader < 0 and {*registration.isr, *registration.elr} <= self._simulation.dead:
                self.checker.give_up(f"all replicas of {name} are dead")

    def _undecided(self) -> list[str]:
        """Return the transactions that the coordinators have not ended."""
        return [
            f"{transactional_id} at {node.id}"
            for node in self._simulation.nodes.values()
            for shard in _shards(node)
            for part in shard.slices()
            for transactional_id, each in part
            if each.state is TransactionState.ONGOING or each.state.is_prepared
        ]


def _shards(node: Node) -> Iterator[TransactionShard]:
    """Return the shards in service on a broker."""
    broker = node.broker
    coordinators = getattr(broker, "coordinators", None)
    return iter(()) if coordinators is None else coordinators.transactions._shards.shards()

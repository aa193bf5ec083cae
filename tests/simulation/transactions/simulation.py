"""One history of transactions."""

from collections.abc import Callable
from random import Random
from typing import Final

from broker.transactions.state import EPOCH_PER_TRANSACTION, TransactionPartition, TransactionState
from protocol.errors import ErrorCode
from tests.simulation.simulator import RECOVERY_EVENTS, RECOVERY_MS, Simulator
from tests.simulation.transactions.checker import TransactionChecker, TransactionCounts
from tests.simulation.transactions.clients import ProducerInstance
from tests.simulation.transactions.coordinator import CoordinatorPartition
from tests.simulation.transactions.network import REQUEST_TIMEOUT_MS, Answer, Network
from tests.simulation.transactions.partitions import DataPartition, ProduceRequest
from tests.simulation.transactions.services import IdealServices
from tests.simulation.world import World, early_ms_of

_NEAR_EXHAUSTION: Final = 32_762
_VERIFICATION_TIMEOUT_MS: Final = 2 * REQUEST_TIMEOUT_MS
"""A leader waits longer for the coordinator than its client waits for the leader."""


class TransactionSimulator(Simulator):
    """A simulation of one coordinator partition, its producers and the partitions that they write to."""

    def __init__(self, seed: int, events: int) -> None:
        super().__init__(seed)
        self._wanted = events
        self._rng = Random(seed)
        self._world = World(early_ms_of(seed))
        self._checker = TransactionChecker(TransactionCounts(), lambda: self._world.now_ms)
        self._network = Network(self._world, self._rng)
        self._coordinator = CoordinatorPartition(
            self._world, self._rng, self._network, self.counts, feature_level=self._rng.choice((0, 1, 2, 2))
        )
        for number in range(self._rng.randint(1, 4)):
            name = TransactionPartition("t", number)
            partition = DataPartition(name, self._world, self._rng, self._checker, self._verify)
            self._coordinator.partitions[name] = partition
        self._services = IdealServices(self._world, self._network, self._coordinator)
        self._ids = [f"id{number}" for number in range(self._rng.randint(1, 3))]
        self._instances: list[ProducerInstance] = []
        self._started = 0
        self._is_peace = False

    @property
    def events(self) -> int:
        return self._checker.events

    @property
    def counts(self) -> TransactionCounts:
        counts = self._checker.counts
        assert isinstance(counts, TransactionCounts)
        return counts

    def last_lines(self, count: int) -> list[str]:
        return self._checker.last_lines(count)

    def close(self) -> None:
        """Stop the producers."""
        for instance in self._instances:
            instance.kill()

    def play(self) -> None:
        """Run transactions under faults, then without, until everything is decided."""
        self._draw_hardships()
        if self._rng.random() < 0.3:
            self._coordinator.seed_state(self._ids[0], _NEAR_EXHAUSTION + self._rng.randint(0, 4))
        for transactional_id in self._ids:
            self._start(transactional_id)
        self._plan()
        while self.events < self._wanted:
            self._step()
        self._begin_peace()
        deadline_ms, last_event = self._world.now_ms + RECOVERY_MS, self.events + RECOVERY_EVENTS
        while not self._is_settled():
            if self._world.now_ms > deadline_ms or self.events > last_event:
                self._checker.fail("EverythingIsDecided", self._unsettled())
            self._step()
        self._checker.finish()
        self.counts.add("late requests", self._network.late_messages)
        self.counts.add("lost messages", self._network.lost_messages)

    def _step(self) -> None:
        self._checker.events += 1
        assert self._world.step(), "a history goes on"

    # Hardships

    def _draw_hardships(self) -> None:
        rng = self._rng
        self._network.late = rng.choice((0.0, 0.02, 0.1))
        self._network.lost = rng.choice((0.0, 0.02, 0.1))
        self._coordinator.slow_commits = rng.choice((0.0, 0.02, 0.1))
        self._coordinator.has_clock_steps = rng.random() < 0.3
        for partition in self._coordinator.partitions.values():
            partition.slow_commits = rng.choice((0.0, 0.05, 0.2))
        self._slow_verification = rng.choice((0.0, 0.1, 0.4))
        self._pace_ms = rng.choice((1_500.0, 4_000.0, 15_000.0))

    def _plan(self) -> None:
        """Schedule the next change."""
        self._world.schedule(self._rng.random() * self._pace_ms, self._change)

    def _change(self) -> None:
        if self._is_peace:
            return
        rng = self._rng
        kind = rng.choices(("coordinator", "leader", "instance", "upgrade"), weights=(3, 3, 3, 0.3))[0]
        if kind == "coordinator":
            stays_unaware = rng.random() < 0.5
            self._change_coordinator(stays_unaware)
        elif kind == "leader":
            rng.choice(sorted(self._coordinator.partitions.items()))[1].change_leader()
            self.counts.add("leader changes")
        elif kind == "instance":
            self._start(rng.choice(self._ids))
        elif self._coordinator.feature_level < EPOCH_PER_TRANSACTION:
            self._coordinator.feature_level += 1
            self.counts.add("upgrades")
        self._plan()

    def _change_coordinator(self, stays_unaware: bool) -> None:
        self._coordinator.change_leader(stays_unaware=stays_unaware)
        self.counts.add("coordinator changes")
        self.counts.add("unaware coordinators", stays_unaware)
        self._checker.note(f"coordinator of epoch {self._coordinator.leader.epoch}")

    def _start(self, transactional_id: str) -> None:
        """Start another instance of a producer. The former ones are dead, or go on beside it."""
        for instance in self._instances:
            if instance.transactional_id == transactional_id and not instance.is_done:
                if self._rng.random() < 0.5:
                    instance.kill()
                else:
                    self.counts.add("instances beside another")
        self._started += 1
        self._instances.append(
            ProducerInstance(
                f"{transactional_id}.{self._started}",
                transactional_id,
                self._services,
                self._rng,
                self._checker,
                supports_v2=self._rng.random() < 0.8,
            )
        )

    # Verification

    def _verify(
        self, request: ProduceRequest, partition: TransactionPartition, respond: Callable[[Answer[None]], None]
    ) -> None:
        """Ask the coordinator as a partition leader does: version 2 adds the partition, others verify it.

        Some responses take almost as long as the request may.
        """
        is_slow = self._rng.random() < self._slow_verification
        pause_ms = self._rng.random() * _VERIFICATION_TIMEOUT_MS if is_slow else 0.0

        def serve(answer: Callable[[Answer[None]], None]) -> None:
            def answer_later(code: Answer[None]) -> None:
                self._world.schedule(pause_ms, answer, code)

            leader = self._coordinator.asked()
            if request.version >= EPOCH_PER_TRANSACTION:
                leader.run(
                    lambda shard, _: shard.add_partitions(
                        request.transactional_id, request.producer, [partition], request.version
                    ),
                    answer_later,
                )
            else:
                code = leader.verify(request.transactional_id, request.producer, partition)
                answer_later(None if code is ErrorCode.NONE else code)

        self._network.send(serve, respond, timeout_ms=_VERIFICATION_TIMEOUT_MS)

    # Peace

    def _begin_peace(self) -> None:
        self._is_peace = True
        self._network.late = self._network.lost = self._coordinator.slow_commits = 0.0
        for partition in self._coordinator.partitions.values():
            partition.slow_commits = 0.0
        for instance in self._instances:
            instance.is_stopping = True
        self._checker.note("peace")

    def _is_settled(self) -> bool:
        return (
            all(instance.is_done for instance in self._instances)
            and all(partition.is_stable for partition in self._coordinator.partitions.values())
            and not self._undecided()
        )

    def _undecided(self) -> list[str]:
        return [
            transactional_id
            for transactions in self._coordinator.leader.shard.slices()
            for transactional_id, each in transactions
            if each.state is TransactionState.ONGOING or each.state.is_prepared
        ]

    def _unsettled(self) -> str:
        running = [instance.name for instance in self._instances if not instance.is_done]
        unstable = [name for name, each in self._coordinator.partitions.items() if not each.is_stable]
        return f"running: {running}; undecided: {self._undecided()}; unstable partitions: {unstable}"

"""The random schedule of a cluster: work, faults and operations at random moments drawn from the seed.

Kafka's guarantees have conditions, and the schedule keeps to them. A broker loses unsynced data, its disks or its life
only while every partition of it has another in-sync or eligible replica, by the committed metadata and by the decisions
of every controller; unsynced data and disks only with eligible leader replicas. At most one controller and one broker
die for good; voters have rules of their own (`voter_changes.py`). Everything else may happen at any time, to any number
of nodes.
"""

from collections.abc import Callable
from typing import Final

from tests.simulation.cluster.acls.changes import AclChanges
from tests.simulation.cluster.disk_faults import DiskFaults
from tests.simulation.cluster.fault_source import FaultSource, ScheduleState
from tests.simulation.cluster.link_faults import LinkFaults
from tests.simulation.cluster.lost_objects import LostObjects
from tests.simulation.cluster.node_faults import NodeFaults
from tests.simulation.cluster.operators import ASK_AGAIN_MS, Operators
from tests.simulation.cluster.replica import MetadataReplica
from tests.simulation.cluster.simulation import ClusterSimulator
from tests.simulation.cluster.store_faults import StoreFaults
from tests.simulation.cluster.voter_changes import VoterChanges
from tests.simulation.replication.producers import Producer
from tests.simulation.weather import Weather

_PENDING_MAX: Final = 12
"""Number of waiting batches at which a producer pauses."""
_PROBE_MS: Final = 1_000.0
_QUIET_SHARE: Final = 0.6
"""Share of tiered histories in which a leader stays deposed until its successor has copied segments."""


class RandomSchedule(FaultSource):
    """The random schedule. Implements Schedule."""

    _deposes = True
    """Whether a leader of the tiered topic may be deposed without other faults."""
    _losing = 0.3
    """Share of the tiered histories that lose objects for good."""

    def __init__(self, simulation: ClusterSimulator) -> None:
        super().__init__(ScheduleState(simulation))
        self._voters = VoterChanges(self._state)
        self._nodes = NodeFaults(self._state, self._voters)
        self._disks = DiskFaults(self._state)
        self._store = StoreFaults(self._state)
        self._lost_objects = LostObjects(self._state)
        self._links = LinkFaults(self._state)
        self._acls = AclChanges(self._state)
        self._operators = Operators(self._state, self._nodes.kill_active_controller)
        self._faults: tuple[tuple[int, Callable[[], None]], ...] = (
            (10, self._nodes.kill_broker),
            (8, self._nodes.kill_controller),
            (5, self._nodes.kill_active_controller),
            (5, self._nodes.lose_power),
            (6, self._nodes.lose_power_soon),
            (3, self._nodes.wipe),
            (3, self._nodes.move),
            (8, self._nodes.restart_behind_stall),
            (16, self._nodes.delay_first_requests),
            (3, self._disks.fail_disk_soon),
            (3, self._disks.fill_disk),
            (4, self._disks.stall_disk),
            (5, self._nodes.shut_down),
            (6, self._nodes.stall),
            (6, self._links.cut_some),
            (6, self._links.cut_two),
            (8, self._links.cut_broker_from_controllers),
            (6, self._links.cut_active_controller),
            (12 if simulation.metadata_scenario.tiered else 0, self._links.cut_tiered_leader),
            (6, self._links.heal),
            (3, self._links.change_weather),
            (8, self._nodes.step_clock),
            (6, self._nodes.step_clock_of_active_controller),
            (4, self._operators.resign),
            (6, self._operators.move_leader),
            (3, self._operators.reassign),
            (14, self._operators.churn_topics),
            (14 if simulation.metadata_scenario.spares else 3, self._voters.add_voter),
            (10 if simulation.metadata_scenario.spares else 3, self._voters.remove_voter),
            (3, self._voters.replace_disk),
            (4, self._burst),
            (10 if simulation.metadata_scenario.deaths else 0, self._nodes.die),
            (20 if simulation.metadata_scenario.tiered else 0, self._store.fail_store),
        )
        self._weights = [weight for weight, _ in self._faults]

    def begin(self) -> None:
        scenario = self._simulation.scenario
        self._acls.begin()
        self._lost_objects.begin(share=self._losing)
        for producer in self._simulation.producers:
            self._after(self._random.expovariate(1.0 / scenario.produce_every_ms), self._producing(producer))
        self._after(self._random.expovariate(1.0 / scenario.fault_every_ms), self._fault_again)
        self._simulation.checker.on_active = self._on_active
        if self._simulation.metadata_scenario.tiered and self._deposes and self._random.random() < _QUIET_SHARE:
            self._after(self._random.uniform(300.0, 1_500.0), self._depose_once)

    def end(self) -> None:
        self._state.is_over = True
        if self._simulation.tier is not None:
            self._simulation.tier.end_faults()
            self._lost_objects.end()
        for name in self._partitions():
            self._operators.alter(name, None)
        self._acls.end()
        self._probe()

    @property
    def is_on_trial(self) -> bool:
        return self._world.now_ms < self._state.quiet_until_ms

    @property
    def is_over(self) -> bool:
        return not self._voters.has_open and self._acls.is_restored and self._lost_objects.is_settled

    def _probe(self) -> None:
        """Produce to every partition that has no acknowledgement since the faults ended."""
        missing = False
        for producer in self._simulation.producers:
            if producer.name not in self._simulation.checker.data.acknowledged:
                missing = True
                if not producer.pending_count:
                    self._produce(producer)
        if missing:
            self._after(_PROBE_MS, self._probe)

    def _depose_once(self) -> None:
        """Depose a tiered leader as soon as another broker can lead, and end all other faults meanwhile."""
        if not self._is_over and not self._links.depose_if_possible():
            self._after(ASK_AGAIN_MS, self._depose_once)

    def _fault_again(self) -> None:
        if self._is_over:
            return
        scenario = self._simulation.scenario
        if self._random.random() < scenario.calm_share:
            self._note("calm")
            self._simulation.links.heal()
            self._after(self._random.uniform(1.0, 3.0) * scenario.session_timeout_ms, self._fault_again)
            return
        self._after(self._random.expovariate(1.0 / scenario.fault_every_ms), self._fault_again)
        if self._world.now_ms < self._state.quiet_until_ms:
            self._burst()
            return
        (_, fault) = self._random.choices(self._faults, self._weights)[0]
        fault()

    def _producing(self, producer: Producer) -> Callable[[], None]:
        def produce() -> None:
            if not self._is_over:
                self._after(self._random.expovariate(1.0 / self._simulation.scenario.produce_every_ms), produce)
                self._produce(producer)

        return produce

    def _produce(self, producer: Producer) -> None:
        if producer.pending_count < _PENDING_MAX:
            self._world.run(producer.process, producer.produce)

    def _burst(self) -> None:
        for producer in self._simulation.producers:
            for _ in range(self._random.randint(1, 4)):
                self._produce(producer)

    def _on_active(self, replica: MetadataReplica) -> None:
        """Disturb some controllers soon after they become active."""
        if not self._is_over and self._random.random() < 0.3:
            disturb = self._random.choice(
                (
                    self._operators.churn_topics,
                    self._nodes.kill_active_controller,
                    self._links.cut_active_controller,
                    self._voters.add_voter,
                    self._voters.remove_voter,
                )
            )
            self._after(self._random.choice((0.0, 5.0, 50.0)), disturb)


class OneFault(RandomSchedule):
    """A schedule with one kind of fault. The network delays and loses nothing, new controllers are left alone."""

    def begin(self) -> None:
        super().begin()
        self._simulation.checker.on_active = _nothing
        self._simulation.wires.weather = self._simulation.network.weather = Weather()


class DeposedTieredLeaders(OneFault):
    """A schedule whose only faults are leaders of the tiered topic that do not learn that they are deposed."""

    _losing = 0.0

    def __init__(self, simulation: ClusterSimulator) -> None:
        super().__init__(simulation)
        self._weights = [int(fault == self._burst) for _, fault in self._faults]

    def begin(self) -> None:
        super().begin()
        self._after(self._random.uniform(300.0, 1_500.0), self._depose_again)

    def _depose_again(self) -> None:
        """Depose one leader after another."""
        if not self._is_over:
            self._links.depose_if_possible()
            self._after(ASK_AGAIN_MS, self._depose_again)


class DeposedCoordinators(OneFault):
    """A schedule whose only faults are transaction coordinators that do not learn that they are deposed."""

    def __init__(self, simulation: ClusterSimulator) -> None:
        super().__init__(simulation)
        self._faults = ((3, self._burst), (1, self._links.depose_coordinator))
        self._weights = [weight for weight, _ in self._faults]


class RottingStore(OneFault):
    """A schedule whose only faults are bits that flip in the object store."""

    _deposes = False
    _losing = 0.0

    def __init__(self, simulation: ClusterSimulator) -> None:
        super().__init__(simulation)
        self._faults = ((1, self._burst), (2, self._store.rot))
        self._weights = [weight for weight, _ in self._faults]


class LosingStore(OneFault):
    """A schedule whose only faults are objects that the store loses for good."""

    _deposes = False
    _losing = 1.0

    def __init__(self, simulation: ClusterSimulator) -> None:
        super().__init__(simulation)
        self._weights = [int(fault == self._burst) for _, fault in self._faults]


def _nothing(_: object) -> None:
    """Ignore the result."""

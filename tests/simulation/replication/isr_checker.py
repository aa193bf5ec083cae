"""Evaluation of in-sync sets after every event, by the fetches that leaders served, in true time.

Invariants, by the names in violations:

- SilentMembersLeave: a leader that is undisturbed, with the latest state and a controller, removes a member that has
  been silent for `replica.lag.time.max.ms` and lacks records, at its next check.
- FetchingMembersStay: a leader removes no member that was caught up within `replica.lag.time.max.ms`.
- FencedMembersLeave: a fenced broker is in no in-sync set, except as its last member without a leader.
- SilentBrokersAreFenced: an undisturbed controller fences a broker without a process within the session timeout.
- HeartbeatsCount: a controller fences no broker from which it accepted a heartbeat within the session timeout.
- LeaderEpochsGrow: each change of a partition raises its partition epoch, and each change of its leader, or removal of
  a replica, its leader epoch.
- ChangesFollowTheLatest: a controller accepts an in-sync set only on top of the latest partition epoch.

A disturbance is a fault that touches the leader or the controller, and what it leaves in flight. The times of a process
run up to a tenth too fast or too slow.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import NO_LEADER, PartitionRegistration
from broker.replication.isr import PendingShrink
from broker.replication.leader import LeaderRole
from broker.runtime.partitions.partition import Partition
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from protocol.primitives import Uuid
from tests.simulation.replication.broker import Node
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.metadata import MetadataService
from tests.simulation.replication.network import Wires
from tests.simulation.replication.scenario import CONTROLLER_ID, Scenario
from tests.simulation.simulator import EventLog

_Positions = dict[tuple[Uuid, int], FetchPartition]
_NEVER: Final = -1e18
_DRIFT: Final = 1.12
_HOUR_MS: Final = 3_600_000.0
_IN_FLIGHT_MS: Final = 600.0
"""Time until the network has delivered what a blocked link held."""
_FENCING_SHARE: Final = 1.5
"""Share of the session timeout after which a silent broker must be fenced."""


@dataclass(slots=True)
class _Progress:
    """A follower's progress as its leader can know it by fetches (Kafka's ReplicaState)."""

    acknowledged: int
    leader_end: int
    fetched_ms: float
    caught_up_ms: float
    behind_since_ms: float | None = None

    def on_fetch(self, offset: int, leader_end: int, now_ms: float) -> None:
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.acknowledged, self.leader_end, self.fetched_ms = offset, leader_end, now_ms


class IsrChecker:
    """Checker of the leaders' and the controller's changes of in-sync sets."""

    def __init__(
        self, log: EventLog, nodes: Mapping[int, Node], scenario: Scenario, wires: Wires, service: MetadataService
    ) -> None:
        self._log = log
        self._nodes = nodes
        self._scenario = scenario
        self._wires = wires
        self._service = service
        self._progress: dict[tuple[int, ReplicaName, int], _Progress] = {}
        self._sessions: dict[tuple[int, int], _Positions] = {}
        """The positions in each fetch session, by leader and session id: each request of the session repeats them."""
        self._contact: dict[tuple[int, int], float] = {}
        self._began_ms: dict[tuple[int, ReplicaName, int], float] = {}
        self._calm_since: dict[int, float] = {}
        self._current_since: dict[tuple[int, ReplicaName], float] = {}
        self._shrinks: dict[tuple[int, ReplicaName], PendingShrink] = {}
        self._next_sweep_ms = 0.0
        self._zombie_ms = 0.0
        self._controller_epochs: dict[ReplicaName, int] = {}

    @property
    def _now_ms(self) -> float:
        return self._wires.world.now_ms

    # Disturbances

    def look(self) -> None:
        """Note which processes are disturbed now; called before and after each fault."""
        for node in self._nodes.values():
            if self._is_disturbed(node):
                self._calm_since[node.id] = self._now_ms
        if self._is_controller_disturbed():
            self._calm_since[CONTROLLER_ID] = self._now_ms

    def _is_controller_disturbed(self) -> bool:
        service = self._service
        is_stalled = service.process.stalled_until_ms > self._now_ms
        return is_stalled or service.quorum.leader.leader_id is None

    def _is_disturbed(self, node: Node) -> bool:
        wires, now_ms = self._wires, self._now_ms
        if node.broker is None or self._is_controller_disturbed():
            return True
        if wires.is_blocked(node.id, CONTROLLER_ID) or wires.is_blocked(CONTROLLER_ID, node.id):
            return True
        if wires.weather.lost or wires.weather.slow:
            return True
        return max(node.broker.process.stalled_until_ms, node.feed.held_until_ms) > now_ms

    # Fetches

    def on_served(self, node: Node, request: FetchRequest, answer: Any) -> None:
        """Record a fetch of a follower that a leader has handled; `answer` is a response, or a future one."""
        follower_id = request.replica_state.replica_id
        if follower_id < 0 or node.broker is None:
            return
        self._contact[node.id, follower_id] = self._now_ms
        refused = _refused(answer)
        if refused is None:
            return
        positions: _Positions = {}
        if request.session_epoch > 0:
            positions = self._sessions.setdefault((node.id, request.session_id), positions)
        for topic in request.topics:
            positions.update({(topic.topic_id, each.partition): each for each in topic.partitions})
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                positions.pop((forgotten.topic_id, index), None)
        if request.session_epoch == 0:
            self._open_session(node, positions, answer)
        for key, asked in positions.items():
            image = node.broker.cache.image.topics.by_id(key[0])
            if image is not None and key not in refused:
                self._on_position(node, ReplicaName(image.name, key[1]), asked, request)

    def _open_session(self, node: Node, positions: "_Positions", answer: Any) -> None:
        """Remember the positions of a full fetch under the session of its response."""
        if isinstance(answer, FetchResponse):
            self._sessions[node.id, answer.session_id] = positions
        else:
            answer.add_done_callback(
                lambda done: None if done.cancelled() else self._open_session(node, positions, done.result())
            )

    def _on_position(self, node: Node, name: ReplicaName, asked: FetchPartition, request: FetchRequest) -> None:
        assert node.broker is not None
        follower_id, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        partition = node.broker.partition(*name)
        registered = node.broker.cache.image.brokers.get(follower_id)
        if partition is None or not partition.is_leader or registered is None or broker_epoch < registered.epoch:
            return
        if asked.current_leader_epoch != partition.leader_epoch:
            return
        key, now_ms = (node.id, name, follower_id), self._now_ms
        known = self._progress.get(key)
        if known is None:
            known = self._progress[key] = _Progress(-1, 0, _NEVER, self._began_ms.get(key, _NEVER))
        known.on_fetch(asked.fetch_offset, partition.log.log_end_offset, now_ms)

    # Leaders

    def on_stop(self, node: Node) -> None:
        """Forget a process."""
        self._progress = {key: each for key, each in self._progress.items() if key[0] != node.id}
        self._began_ms = {key: each for key, each in self._began_ms.items() if key[0] != node.id}
        self._current_since = {key: each for key, each in self._current_since.items() if key[0] != node.id}
        self._shrinks = {key: each for key, each in self._shrinks.items() if key[0] != node.id}
        self._sessions = {key: each for key, each in self._sessions.items() if key[0] != node.id}

    def on_topic_deleted(self, name: ReplicaName) -> None:
        """Forget a partition."""
        self._progress = {key: each for key, each in self._progress.items() if key[1] != name}
        self._began_ms = {key: each for key, each in self._began_ms.items() if key[1] != name}
        self._current_since = {key: each for key, each in self._current_since.items() if key[1] != name}
        self._shrinks = {key: each for key, each in self._shrinks.items() if key[1] != name}

    def on_new_epoch(self, node: Node, name: ReplicaName, members: Collection[int]) -> None:
        """Begin anew with a leader's epoch: all members count as caught up."""
        for member in self._nodes:
            self._began_ms[node.id, name, member] = self._now_ms if member in members else _NEVER
        for key in [key for key in self._progress if key[:2] == (node.id, name)]:
            del self._progress[key]

    def on_leader_event(self, node: Node, name: ReplicaName, partition: Partition, role: LeaderRole) -> None:
        """Check a leader's proposal to remove members."""
        if isinstance(role.isr, PendingShrink) and self._shrinks.get((node.id, name)) is not role.isr:
            self._shrinks[node.id, name] = role.isr
            self._check_shrink(node, name, role.isr)

    def _check_shrink(self, node: Node, name: ReplicaName, shrink: PendingShrink) -> None:
        least_ms = self._scenario.lag_time_max_ms / _DRIFT - 1.0
        for member in sorted(shrink.removed):
            progress = self._progress.get((node.id, name, member))
            began_ms = self._began_ms.get((node.id, name, member), _NEVER)
            caught_up_ms = began_ms if progress is None else progress.caught_up_ms
            if self._now_ms - caught_up_ms < least_ms:
                self._log.fail(
                    "FetchingMembersStay",
                    f"leader {node.id} of {name} removes {member}, which was caught up "
                    f"{self._now_ms - caught_up_ms:.0f} ms ago",
                )

    def sweep(self, registered: Mapping[ReplicaName, PartitionRegistration]) -> None:
        """Check from time to time that silent members have left."""
        now_ms = self._now_ms
        if now_ms < self._next_sweep_ms:
            return
        interval_ms = self._scenario.lag_time_max_ms / 16
        self._next_sweep_ms = now_ms + interval_ms
        self.look()
        self._check_silent_brokers()
        for name, registration in registered.items():
            self._count_zombies(name, registration, interval_ms)
            node = self._nodes.get(registration.leader)
            if node is not None:
                self._check_members(node, name, registration)

    def _count_zombies(self, name: ReplicaName, registration: PartitionRegistration, interval_ms: float) -> None:
        """Add up the time in which leaders do not know that they are deposed."""
        for node in self._nodes.values():
            partition = None if node.broker is None else node.broker.partition(*name)
            if partition is not None and partition.is_leader and partition.leader_epoch < registration.leader_epoch:
                self._zombie_ms += interval_ms
        if self._zombie_ms >= _HOUR_MS:
            self._zombie_ms -= _HOUR_MS
            self._log.counts.add("zombie hours")

    def _check_members(self, node: Node, name: ReplicaName, registration: PartitionRegistration) -> None:
        partition = None if node.broker is None else node.broker.partition(*name)
        role, now_ms = None if partition is None else partition.role, self._now_ms
        topic = self._service.decided.topics.by_name(name.topic)
        is_current = (
            isinstance(role, LeaderRole)
            and partition is not None
            and topic is not None
            and partition.topic_id == topic.id
            and (role.epoch, role.partition_epoch) == (registration.leader_epoch, registration.partition_epoch)
            and self._calm_since.get(node.id, 0.0) < now_ms
            and (role.isr.committed == role.isr.maximal)
        )
        if not is_current:
            self._current_since[node.id, name] = now_ms
            return
        assert partition is not None
        calm_ms = self._calm_since.get(node.id, 0.0) + self._scenario.session_timeout_ms / 2
        calm_ms += _IN_FLIGHT_MS * self._scenario.pace
        since_ms = max(self._current_since.get((node.id, name), now_ms), calm_ms)
        for member in registration.isr:
            if member != node.id:
                self._check_member(node, name, member, partition.log.log_end_offset, since_ms)

    def _check_member(self, node: Node, name: ReplicaName, member: int, log_end: int, since_ms: float) -> None:
        key, scenario, now_ms = (node.id, name, member), self._scenario, self._now_ms
        progress, began_ms = self._progress.get(key), self._began_ms.get(key, _NEVER)
        if progress is None:
            progress = self._progress[key] = _Progress(-1, 0, _NEVER, began_ms)
        if progress.acknowledged >= log_end:
            progress.behind_since_ms = None
            return
        if progress.behind_since_ms is None:
            progress.behind_since_ms = now_ms
        silent_since_ms = max(self._contact.get((node.id, member), _NEVER), began_ms)
        lag_ms = _DRIFT * scenario.lag_time_max_ms
        due_ms = max(silent_since_ms + lag_ms, progress.behind_since_ms, since_ms) + lag_ms / 2
        weather = self._wires.weather
        patience_ms = 50.0 + 20 * (2 * weather.delay_ms + scenario.metadata_commit_ms) + lag_ms / 16
        if now_ms > due_ms + patience_ms:
            self._log.fail(
                "SilentMembersLeave",
                f"{member} is in sync for {name}, has {progress.acknowledged} of {log_end} for "
                f"{now_ms - progress.behind_since_ms:.0f} ms, and was heard of by leader {node.id} "
                f"{now_ms - silent_since_ms:.0f} ms ago",
            )

    # The controller

    def on_decided(self, before: MetadataImage, now: MetadataImage) -> None:
        """Check the brokers that the controller fences: only by their own wish, or after silence."""
        for node in self._nodes.values():
            was, broker = before.brokers.get(node.id), now.brokers.get(node.id)
            if was is None or broker is None or was.fenced or not broker.fenced or was.epoch != broker.epoch:
                continue
            if node.broker is not None and node.broker.registered_epoch != was.epoch:
                continue  # late requests of an ended process, whose successor is not registered yet
            silent_ms = self._now_ms - self._service.heeded_ms.get(node.id, _NEVER)
            is_own_wish = was.in_controlled_shutdown or node.is_leaving or node.broker is None
            has_lost = node.broker is not None and node.broker.has_lost_directory
            if silent_ms < self._scenario.session_timeout_ms / _DRIFT - 1.0 and not (is_own_wish or has_lost):
                self._log.fail(
                    "HeartbeatsCount",
                    f"broker {node.id} is fenced, and the controller accepted a heartbeat {silent_ms:.0f} ms ago",
                )

    def _check_silent_brokers(self) -> None:
        """Check that brokers without a process are fenced in time after the last heartbeat that the controller had."""
        now_ms, timeout_ms = self._now_ms, self._scenario.session_timeout_ms
        calm_ms = self._calm_since.get(CONTROLLER_ID, 0.0)
        for node in self._nodes.values():
            broker = self._service.decided.brokers.get(node.id)
            if node.broker is not None or broker is None or broker.fenced:
                continue
            silent_ms = now_ms - max(calm_ms, self._service.heard_ms.get(node.id, 0.0))
            if silent_ms > _FENCING_SHARE * timeout_ms + _late_ms(self._wires, self._scenario):
                self._log.fail(
                    "SilentBrokersAreFenced",
                    f"broker {node.id} is unfenced, without a process, and silent for {silent_ms:.0f} ms; the session "
                    f"timeout is {timeout_ms} ms",
                )

    def on_registration(self, name: ReplicaName, before: PartitionRegistration, now: PartitionRegistration) -> None:
        """Check a decided change. Another controller may not know the last decisions of the former one."""
        controller_epoch = self._service.quorum.leader.epoch
        if self._controller_epochs.get(name) != controller_epoch:
            self._controller_epochs[name] = controller_epoch
            return
        if now.partition_epoch <= before.partition_epoch:
            self._log.fail("LeaderEpochsGrow", f"{name} changes within partition epoch {now.partition_epoch}")
        needs_epoch = now.leader != before.leader or not set(before.replicas) <= set(now.replicas)
        if now.leader_epoch < before.leader_epoch + needs_epoch:
            self._log.fail(
                "LeaderEpochsGrow",
                f"{name} goes from leader {before.leader} and replicas {before.replicas} to {now.leader} and "
                f"{now.replicas} within leader epoch {now.leader_epoch}",
            )

    def on_fenced(self, name: ReplicaName, registration: PartitionRegistration, decided: MetadataImage) -> None:
        """Check that no fenced broker is in a decided in-sync set."""
        for member in registration.isr:
            broker = decided.brokers.get(member)
            is_last = len(registration.isr) == 1 and registration.leader == NO_LEADER
            if (broker is None or broker.fenced) and not is_last:
                self._log.fail("FencedMembersLeave", f"{member} is fenced and in sync for {name}: {registration}")

    def on_altered(self, request: AlterPartitionRequest, response: AlterPartitionResponse) -> None:
        """Check the controller's answer to proposed in-sync sets."""
        asked = {
            (topic.topic_id, each.partition_index): each.partition_epoch
            for topic in request.topics
            for each in topic.partitions
        }
        for topic in response.topics:
            for each in topic.partitions:
                proposed_at = asked[topic.topic_id, each.partition_index]
                if each.error_code:
                    self._log.counts.add("refused in-sync sets")
                elif each.partition_epoch > proposed_at + 1:
                    self._log.fail(
                        "ChangesFollowTheLatest",
                        f"broker {request.broker_id} proposes {each.isr} at partition epoch {proposed_at}, and the "
                        f"controller accepts that as {each.partition_epoch}",
                    )


def _late_ms(wires: Wires, scenario: Scenario) -> float:
    """Return a time in which messages and commits have certainly taken effect."""
    weather = wires.weather
    slow_ms = weather.slow_ms if weather.slow else 0.0
    return _IN_FLIGHT_MS * scenario.pace + 20 * (weather.delay_ms + slow_ms + scenario.metadata_commit_ms)


def _refused(answer: Any) -> set[tuple[Any, int]] | None:
    """Return the partitions whose positions a response does not acknowledge; None if it refuses the session."""
    if not isinstance(answer, FetchResponse):
        return set()  # the request waits at the leader: it has no errors
    if answer.error_code:
        return None
    return {
        (topic.topic_id, data.partition_index)
        for topic in answer.responses
        for data in topic.partitions
        if data.error_code or data.diverging_epoch.epoch >= 0
    }

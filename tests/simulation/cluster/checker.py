"""Evaluation of every invariant after every event: those of the quorum, those of the data plane, and those of the
controllers between them, by the names in violations:

- ImagesAreEqual: every image that a node publishes, from replay or from a snapshot, equals the replay of the committed
  log up to the same offset, and its delta names everything that has changed since the image before it.
- TakeoverHasEverything: a controller that takes over has replayed the whole committed log of its epoch and of former
  ones. A deposed leader may learn late that the records of its epoch were committed, and take over.
- ControllerStateIsImage: the derived state of a controller (index of partitions, offsets of registrations, sessions)
  is that of its image.
- EpochsRise: a change of a partition raises its partition epoch, and a change of its leader raises the leader epoch.
- MembersAreUnfenced: the leader and the in-sync replicas of a partition with a leader are unfenced.
- EligibleReplicasLead: no partition is without a leader while an eligible replica is unfenced, for longer than a bound.
- LiveBrokersStayUnfenced: a controller fences a broker only at its own request, or after a session without contact.
- SilentBrokersAreFenced: after a session without contact a controller has fenced the broker.
- StaleRequestsAreRefused: a controller refuses requests with an old broker epoch, partition epoch or incarnation.
- AcknowledgedMetadataIsKept: an acknowledged creation or deletion of a topic is in the committed metadata.

Those of authorization are in `acls/access.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.image_difference import difference
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.partition import NO_LEADER, PartitionRegistration
from broker.metadata.image.partition_index import PartitionIndex
from broker.metadata.image.slices import finish
from broker.metadata.image.topic_image import TopicImage
from broker.replication.leader import LeaderRole
from broker.runtime.quorum.quorum import CommittedBatch
from tests.simulation.cluster.committed import CommittedMetadata
from tests.simulation.cluster.coordinators.checker import CoordinatorChecker
from tests.simulation.cluster.replica import MetadataReplica
from tests.simulation.cluster.sessions import SessionChecker
from tests.simulation.cluster.tier import TIERED
from tests.simulation.cluster.tier_checker import TierChecker
from tests.simulation.quorum.checker import Checker as QuorumChecker
from tests.simulation.quorum.checker import QuorumCounts
from tests.simulation.quorum.node import Node as QuorumNode
from tests.simulation.replication.broker import Node
from tests.simulation.replication.checker import KEPT_LINES
from tests.simulation.replication.checker import Checker as PartitionChecker
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.simulator import Counts, EventLog, PartCounts
from tests.simulation.world import Process

_LEADERLESS_MS: Final = 1_000.0
"""Time within which an active controller elects an eligible replica."""


class ClusterCounts(Counts):
    """Incidents of a cluster."""

    NAMES = (
        "quorum elections",
        "takeovers from replay",
        "takeovers from a snapshot",
        "snapshot loads",
        "fencings",
        "unfencings",
        "leader changes",
        "ISR changes",
        "topics created",
        "topics deleted",
        "clock steps",
        "full disks",
        "stalled disks",
        "deaths for good",
        "brokers cut off from the controllers",
        "added voters",
        "removed voters",
        "replaced controllers",
        "takeovers of combined nodes",
        "delayed registrations",
        "delayed start-up heartbeats",
        "ended processes found",
        "acknowledged records",
        "remote copies",
        "copies past a deposed leader",
        "remote deletions",
        "store outages",
        "lost responses of the store",
        "rotten bytes in the store",
        "lost objects",
        "objects lost for good",
        "segments given up",
        "skips of given up records",
        "log starts unreadable",
        "unanswered metadata",
        "remote reads",
        "tiered records read",
        "look-ups by time",
        "transactions committed",
        "transactions aborted",
        "fenced transactional producers",
        "stray requests of clients",
        "offsets fetched",
        "pipeline commits",
        "coordinator snapshots",
        "coordinators loaded from snapshots",
        "assignments of members",
        "changes of owners",
        "generations of members",
        "group migrations",
        "share records acquired",
        "share records acknowledged",
        "prunings of share states",
        "ACL changes",
        "refused batches",
        "refused fetches",
    )
    OPTIONAL = ("zombie leader seconds", "zombie controller seconds")


class _QuorumPart(QuorumChecker):
    """The quorum's checker, which writes to the common history."""

    def __init__(self, whole: EventLog, subjects: Mapping[int, QuorumNode], now_ms: Callable[[], float]) -> None:
        super().__init__(subjects, now_ms)
        names = {name: f"quorum {name}" for name in (*QuorumCounts.NAMES, *QuorumCounts.OPTIONAL)}
        self.counts = PartCounts(whole.counts, names)
        self._whole = whole

    def note(self, text: str) -> None:
        """Add a line to the common history, except for the many snapshots and trims of the metadata log."""
        if " has snapshot " not in text and " removes batches " not in text:
            self._whole.note(text)


class _DataPart(PartitionChecker):
    """The brokers' checker, which writes to the common history."""

    def __init__(self, whole: EventLog, nodes: Mapping[int, Node], now_ms: Callable[[], float]) -> None:
        super().__init__(nodes, now_ms)
        self.counts = PartCounts(whole.counts, {"elections": "partition elections"})
        self._whole = whole
        self.acknowledged: set[ReplicaName] = set()
        """Partitions with an acknowledgement of all in-sync replicas since the last reset."""

    def note(self, text: str) -> None:
        self._whole.note(text)

    def on_acknowledged(self, name: ReplicaName, crc: int, offset: int, acks: int) -> None:
        self.acknowledged.add(name)
        super().on_acknowledged(name, crc, offset, acks)


class ClusterChecker(EventLog):
    """The witness of the whole cluster; `quorum` and `data` are those of its parts."""

    def __init__(
        self,
        nodes: Mapping[int, Node],
        quorum_nodes: Mapping[int, QuorumNode],
        now_ms: Callable[[], float],
        session_timeout_ms: int,
    ) -> None:
        super().__init__(ClusterCounts(), now_ms, kept_lines=KEPT_LINES)
        self.quorum = _QuorumPart(self, quorum_nodes, now_ms)
        self.data = _DataPart(self, nodes, now_ms)
        self.committed = CommittedMetadata(self._on_committed_image)
        self.sessions = SessionChecker(self, nodes, session_timeout_ms)
        self.tier: TierChecker | None = None
        self.coordinators: CoordinatorChecker | None = None
        self.on_active: Callable[[MetadataReplica], None] = _nothing
        """Called when a controller becomes active."""
        self._nodes = nodes
        self._before: MetadataImage = EMPTY_IMAGE
        self._published: dict[Process, MetadataImage] = {}
        self._decided: dict[Process, MetadataImage] = {}
        self._leaderless_since: dict[tuple[Process, object], float] = {}
        self._last_seen_ms: dict[tuple[Process, str], float] = {}
        self._newest_epoch = -1
        self._zombie_ms = {"zombie leader seconds": 0.0, "zombie controller seconds": 0.0}

    # The committed log

    def on_committed(self, replica: MetadataReplica, batches: Sequence[CommittedBatch]) -> None:
        """Replay batches that a node reports as committed."""
        gap = self.committed.add(batches)
        if gap is not None:
            self.fail(
                "ImagesAreEqual", f"node {replica.node.id} reports {batches[0].base_offset} as committed at {gap}"
            )

    def _on_committed_image(self, image: MetadataImage) -> None:
        before, self._before = self._before, image
        for broker in image.brokers.all():
            known = before.brokers.get(broker.id)
            if known is not None and known.epoch == broker.epoch and known.fenced != broker.fenced:
                self.counts.add("fencings" if broker.fenced else "unfencings")
                self.note(f"committed: broker {broker.id} is {'fenced' if broker.fenced else 'unfenced'}")
            elif known is None or known.epoch != broker.epoch:
                self.note(f"committed: broker {broker.id} is registered with epoch {broker.epoch}")
        if image.topics is not before.topics:
            self._on_committed_topics(before, image)
        self.data.on_controller_event(image, image)

    def _on_committed_topics(self, before: MetadataImage, image: MetadataImage) -> None:
        for topic in _sorted(image):
            known = before.topics.by_id(topic.id)
            if known is topic:
                continue
            for index, registration in topic.partitions.items():
                old = None if known is None else known.partitions.get(index)
                if old is not None and old is not registration:
                    self._check_epochs(f"{topic.name}-{index}", old, registration)
                    if self.tier is not None and topic.name == TIERED:
                        self.tier.on_registration(old, registration)
        self._check_members(image)

    def _check_epochs(self, name: str, before: PartitionRegistration, now: PartitionRegistration) -> None:
        if now.partition_epoch <= before.partition_epoch or now.leader_epoch < before.leader_epoch:
            self.fail("EpochsRise", f"{name} went from {before} to {now}")
        if now.leader != before.leader:
            self.counts.add("leader changes")
            if now.leader_epoch == before.leader_epoch:
                self.fail("EpochsRise", f"{name} has leaders {before.leader} and {now.leader} in {now.leader_epoch}")
        self.counts.add("ISR changes", int(set(now.isr) != set(before.isr)))

    def _check_members(self, image: MetadataImage) -> None:
        for topic in _sorted(image):
            for index, registration in topic.partitions.items():
                if registration.leader == NO_LEADER:
                    continue
                for member in {registration.leader, *registration.isr}:
                    broker = image.brokers.get(member)
                    if broker is None or broker.fenced:
                        self.fail("MembersAreUnfenced", f"{member} is {broker} in {topic.name}-{index}: {registration}")
                if registration.leader not in registration.isr:
                    self.fail("MembersAreUnfenced", f"{topic.name}-{index} has an outside leader: {registration}")

    # Images

    def on_image(self, replica: MetadataReplica, delta: MetadataDelta, image: MetadataImage) -> None:
        """Check an image that a node publishes."""
        name = f"node {replica.node.id}"
        expected = self.committed.images.get(image.offset)
        if expected is None:
            self.fail("ImagesAreEqual", f"{name} has an image at {image.offset}, where no committed batch ends")
        if image != expected:
            self.fail("ImagesAreEqual", f"{name} has another image at {image.offset}: {_differences(image, expected)}")
        before = self._published.get(replica.process, EMPTY_IMAGE)
        self._published[replica.process] = image
        missing = _unnamed_changes(before, delta, image)
        if missing:
            self.fail("ImagesAreEqual", f"{name} at {image.offset} publishes a delta without {missing}")

    # Controllers

    def on_takeover(self, replica: MetadataReplica, *, from_snapshot: bool) -> None:
        """Check a controller that becomes active, before its first decision."""
        self.counts.add("takeovers from a snapshot" if from_snapshot else "takeovers from replay")
        node_id, controller, epoch = replica.node.id, replica.controller, replica.quorum.leader.epoch
        self.counts.add("takeovers of combined nodes", int(node_id in self._nodes))
        applied = controller.last_offset + 1
        self.note(f"controller {node_id} takes over in epoch {epoch} at {applied}")
        committed_end = self.committed.end_for_epoch(epoch)
        if applied < committed_end:
            self.fail(
                "TakeoverHasEverything",
                f"controller {node_id} takes over with everything below {applied}, committed is {committed_end}",
            )
        image, expected = controller.image, self.committed.images.get(controller.image.offset)
        if image != expected:
            self.fail("TakeoverHasEverything", f"controller {node_id} takes over with another image at {image.offset}")
        self._check_index(replica)
        self._newest_epoch = max(self._newest_epoch, epoch)
        self.on_active(replica)

    def on_controller_event(self, replica: MetadataReplica) -> None:
        """Check a controller after an event of its own."""
        controller, process = replica.controller, replica.process
        self.quorum.on_event(replica.node, replica.observe())
        image = controller.image
        before, self._decided[process] = self._decided.get(process), image
        if image is not before:
            self._check_index(replica)
        self.sessions.on_event(replica)
        if replica.driver.is_active:
            self._check_led(replica, image)
            if replica.quorum.leader.epoch < self._newest_epoch:
                self._add_zombie_time(process, "zombie controller seconds")
        self._last_seen_ms[process, "zombie controller seconds"] = self._now_ms()

    def _check_index(self, replica: MetadataReplica) -> None:
        state = replica.controller._state
        expected = PartitionIndex.of(state.image.topics)
        for part in ("_replicas", "_leader_counts", "_leaderless", "_imbalanced", "_reassigning"):
            own, wanted = _content(getattr(state.index, part)), _content(getattr(expected, part))
            if own != wanted:
                self.fail(
                    "ControllerStateIsImage",
                    f"controller {replica.node.id} has {part} {own} in its index instead of {wanted}",
                )
        for broker in state.image.brokers.all():
            offset = state.registration_offsets.get(broker.id, broker.epoch)
            if not broker.epoch <= offset <= replica.controller.last_offset:
                self.fail(
                    "ControllerStateIsImage", f"broker {broker.id} of epoch {broker.epoch} registered at {offset}"
                )

    def _check_led(self, replica: MetadataReplica, image: MetadataImage) -> None:
        """Check that a controller leaves no partition without a leader that has an eligible replica."""
        now_ms, process = self._now_ms(), replica.process
        for partition in replica.controller._state.index.leaderless():
            topic = image.topics.by_id(partition.topic_id)
            assert topic is not None
            registration = topic.partitions[partition.partition]
            members = registration.isr or registration.elr
            eligible = [member for member in members if image.brokers.is_active(member)]
            key = (process, partition)
            if not eligible or not self._has_directories(image, registration, eligible):
                self._leaderless_since.pop(key, None)
            elif (
                now_ms - max(self._leaderless_since.setdefault(key, now_ms), process.stalled_until_ms) > _LEADERLESS_MS
            ):
                self.fail(
                    "EligibleReplicasLead",
                    f"controller {replica.node.id} leaves {topic.name}-{partition.partition} without a leader, "
                    f"{eligible} could lead: {registration}",
                )

    @staticmethod
    def _has_directories(image: MetadataImage, registration: PartitionRegistration, eligible: list[int]) -> bool:
        """Whether an eligible replica is in an online directory."""
        found = False
        for member in eligible:
            broker = image.brokers.get(member)
            assert broker is not None
            index = registration.replicas.index(member)
            directories = registration.directories
            found = found or index >= len(directories) or broker.has_online_directory(directories[index])
        return found

    def on_request(self, replica: MetadataReplica, message: object, before: MetadataImage) -> None:
        """Check an accepted request of a broker; `before` is the controller's image when it arrived."""
        self.sessions.on_request(replica, message, before)

    # Brokers

    def on_broker_event(self, node: Node, replica: MetadataReplica | None) -> None:
        """Check a broker after an event of its own."""
        if replica is not None:
            self.quorum.on_event(replica.node, replica.observe())
        self.data.on_broker_event(node)
        broker = node.broker
        if broker is None or broker.data is None:
            return
        image = self.committed.image
        if self.coordinators is not None:
            self.coordinators.on_broker_event(node)
        if self.tier is not None:
            self.tier.check(node, _registration(image.topics.by_name(TIERED), 0))
        for topic in broker.data.partitions.by_id.values():
            for partition in topic.partitions.values():
                role = partition.role
                if isinstance(role, LeaderRole):
                    registered = _registration(image.topics.by_name(partition.topic), partition.index)
                    if registered is not None and registered.leader_epoch > role.epoch:
                        self._add_zombie_time(broker.process, "zombie leader seconds")
                        break
        self._last_seen_ms[broker.process, "zombie leader seconds"] = self._now_ms()

    def _add_zombie_time(self, process: Process, name: str) -> None:
        """Count the time since the process's last event as time of a leader that does not know of its successor."""
        self._zombie_ms[name] += self._now_ms() - self._last_seen_ms.get((process, name), self._now_ms())
        self.counts.by_name[name] = int(self._zombie_ms[name] / 1000)

    def on_stop(self, process: Process) -> None:
        """Forget a process that has ended."""
        for table in (self._published, self._decided):
            table.pop(process, None)
        for name in self._zombie_ms:
            self._last_seen_ms.pop((process, name), None)
        for key in [key for key in self._leaderless_since if key[0] is process]:
            del self._leaderless_since[key]
        self.sessions.on_stop(process)

    # Operators

    def on_topic_acknowledged(self, name: str, *, exists: bool) -> None:
        """Check the acknowledgement of a creation or a deletion."""
        self.counts.add("topics created" if exists else "topics deleted")
        if (self.committed.image.topics.by_name(name) is not None) != exists:
            what = "creation" if exists else "deletion"
            self.fail("AcknowledgedMetadataIsKept", f"the {what} of {name} is acknowledged and not committed")


def _registration(topic: TopicImage | None, index: int) -> PartitionRegistration | None:
    return None if topic is None else topic.partitions.get(index)


def _content(table: Mapping[object, object]) -> dict[object, object]:
    """Return the entries of a table of an index, without those that say the same as their absence."""
    found = {key: _content(value) if isinstance(value, dict) else value for key, value in table.items()}
    return {key: value for key, value in found.items() if value not in (0, {})}


def _differences(image: MetadataImage, expected: MetadataImage) -> str:
    found = [name for name in image._fields if getattr(image, name) != getattr(expected, name)]
    return ", ".join(f"{name} {getattr(image, name)} instead of {getattr(expected, name)}" for name in found)


def _unnamed_changes(before: MetadataImage, delta: MetadataDelta, image: MetadataImage) -> list[str]:
    """Return the topics and brokers that differ between two images and that the delta between them does not name."""
    if before.topics is image.topics and before.brokers is image.brokers:
        return []
    wanted = finish(difference(before, image))
    missing: list[str] = []
    if wanted.topics is not None:
        named = set() if delta.topics is None else {*delta.topics.changed, *delta.topics.deleted}
        changed = (*wanted.topics.changed, *wanted.topics.deleted)
        missing += [f"topic {each!r}" for each in changed if each not in named]
    if wanted.brokers is not None:
        known = set() if delta.brokers is None else set(delta.brokers.changed_brokers)
        missing += [f"broker {each}" for each in wanted.brokers.changed_brokers if each not in known]
    return missing


def _sorted(image: MetadataImage) -> list[TopicImage]:
    return sorted(image.topics, key=lambda topic: topic.name)


def _nothing(_replica: MetadataReplica) -> None:
    """Ignore the call."""

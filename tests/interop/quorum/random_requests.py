"""Random requests of brokers and operators to a controller, the same for Apache Kafka's and Ottla's.

Requests are drawn from Ottla's metadata image, so that most of them are valid. Requests are left out where the two are
known to differ, each with its reason beside it, and where the result depends on time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, NamedTuple

from broker.metadata.image.features import SUPPORTED_FEATURES
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import LOST_DIRECTORY, PartitionRegistration
from protocol.messages import Message
from protocol.messages import alter_partition as ap
from protocol.messages import alter_partition_reassignments as apr
from protocol.messages import assign_replicas_to_dirs as ard
from protocol.messages import create_partitions as cp
from protocol.messages import create_topics as ct
from protocol.messages import elect_leaders as el
from protocol.messages import incremental_alter_configs as iac
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.primitives import Uuid
from tests.broker.metadata.images import directory_of, incarnation_of
from tests.interop.quorum.controllers import Ask, ControllerPair, Side

BROKERS: Final = (1, 2, 3, 4, 5)
TIMEOUT_MS: Final = 30_000
TOPIC: Final = 2
BROKER: Final = 4
MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"


class Step(NamedTuple):
    """A request builder with its API version (None: the latest) and a description."""

    name: str
    ask: Ask
    version: int | None = None


class _Target(NamedTuple):
    """A partition and its registration."""

    topic: str
    number: int
    registration: PartitionRegistration


def _plain(name: str, request: Message) -> Step:
    """Return a step whose request is the same for both controllers."""
    return Step(name, lambda _side: request)


def directories(broker: int) -> list[Uuid]:
    """Return a broker's directory ids; brokers with odd ids have two."""
    return [directory_of(broker), directory_of(broker + 500)][: 1 + broker % 2]


def registration(broker: int) -> Step:
    def ask(side: Side) -> BrokerRegistrationRequest:
        features = dict(sorted(SUPPORTED_FEATURES.items()))
        return BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id=side.cluster_id,
            incarnation_id=incarnation_of(broker),
            listeners=[Listener("PLAINTEXT", f"host-{broker}", 9000 + broker, 0)],
            features=[Feature(name, *levels) for name, levels in features.items()],
            rack=None,
            log_dirs=directories(broker),
        )

    return Step(f"register {broker}", ask)


def heartbeat(
    broker: int, *, want_fence: bool = False, want_shut_down: bool = False, offline: Sequence[Uuid] = ()
) -> Step:
    def ask(side: Side) -> BrokerHeartbeatRequest:
        epoch = side.epochs.get(broker, -1)
        return BrokerHeartbeatRequest(broker, epoch, side.last_offset, want_fence, want_shut_down, list(offline))

    return Step(f"heartbeat {broker} fence={want_fence} stop={want_shut_down} offline={len(offline)}", ask)


class RandomRequests:
    """A generator of random steps."""

    def __init__(self, controller_pair: ControllerPair, seed: int) -> None:
        self._pair = controller_pair
        self._random = Random(seed)
        self._count = 0
        anywhere: dict[Callable[[], Iterator[Step]], float] = {
            self._heartbeats: 20,
            self._topics: 4,
            self._offline: 1.5,
            self._other_requests: 1,
        }
        somewhere: dict[Callable[[_Target], Iterator[Step]], float] = {
            self._in_sync_sets: 30,
            self._elections: 8,
            self._reassignments: 10,
            self._configs: 6,
            self._directories: 4,
            self._deletions: 0.7,
            self._partitions: 1,
        }
        self._weights = [*anywhere.values(), *somewhere.values()]
        self._draws: list[Callable[[], Iterator[Step]]] = [*anywhere]
        self._draws += [partial(self._somewhere, draw) for draw in somewhere]

    def steps(self, count: int) -> Iterator[Step]:
        """Yield at least `count` steps, starting with broker registrations."""
        for broker in BROKERS:
            yield registration(broker)
            yield from self._with_heartbeat(heartbeat(broker), broker)
        for _ in range(count):
            (draw,) = self._random.choices(self._draws, self._weights)
            yield from draw()

    @property
    def _image(self) -> MetadataImage:
        return self._pair.ours.controller.image

    @property
    def _with_elr(self) -> bool:
        return self._image.features.elr_enabled

    def _all(self) -> list[_Target]:
        topics = sorted(self._image.topics, key=lambda topic: topic.name)
        return [_Target(topic.name, number, each) for topic in topics for number, each in topic.in_order()]

    def _any(self) -> list[_Target]:
        """Return one random partition, or none if there is none."""
        found = self._all()
        return [self._random.choice(found)] if found else []

    def _is_fenced(self, broker: int) -> bool:
        known = self._image.brokers.get(broker)
        return known is None or known.fenced

    def _somewhere(self, draw: Callable[[_Target], Iterator[Step]]) -> Iterator[Step]:
        for target in self._any():
            yield from draw(target)

    # Brokers

    def _heartbeats(self) -> Iterator[Step]:
        broker = self._random.choice(BROKERS)
        kind = self._random.choices(["live", "fence", "stop"], [6, 3, 2])[0]
        if kind == "live":
            yield from self._with_heartbeat(heartbeat(broker), broker)
        elif kind == "fence":
            yield heartbeat(broker, want_fence=True)
        elif not self._is_fenced(broker):  # Kafka fences a fenced broker again on every shutdown request
            yield heartbeat(broker, want_shut_down=True)

    def _with_heartbeat(self, step: Step, broker: int) -> Iterator[Step]:
        """Add a heartbeat: Kafka forgets a broker's metadata offset when fencing changes, until the next heartbeat."""
        was_fenced = self._is_fenced(broker)
        yield step
        if was_fenced and not self._is_fenced(broker):
            yield heartbeat(broker)

    def _offline(self) -> Iterator[Step]:
        """Leave out leaders in controlled shutdown, which Kafka checks like replicas out of sync, unlike Ottla."""
        broker = self._random.choice(BROKERS)
        settled = all(self._image.brokers.is_active(each.leader) for _, _, each in self._all() if each.has_leader)
        if settled and self._image.brokers.is_active(broker):
            yield heartbeat(broker, offline=[self._random.choice(directories(broker))])
            yield heartbeat(broker)

    def _directories(self, target: _Target) -> Iterator[Step]:
        """Leave out cases in which Kafka drops eligible leaders, or elects twice during a controlled shutdown."""
        topic, number, before = target
        broker = self._random.choice(BROKERS)
        if before.has_elr or not self._image.brokers.is_active(before.leader):
            return
        directory = self._random.choice([*directories(broker), LOST_DIRECTORY])
        partitions = [ard.AssignReplicasToDirsRequestPartitionData(each) for each in (number, 66)]

        def ask(side: Side) -> ard.AssignReplicasToDirsRequest:
            topics = [ard.AssignReplicasToDirsRequestTopicData(side.topic_ids[topic], partitions)]
            data = [ard.AssignReplicasToDirsRequestDirectoryData(directory, topics)]
            return ard.AssignReplicasToDirsRequest(broker, side.epochs.get(broker, -1), data)

        yield Step(f"assign {broker} {topic}-{number}", ask)

    # Topics

    def _topics(self) -> Iterator[Step]:
        self._count += 1
        name, factor = f"t{self._count}", self._random.choice([1, 2, 3, 3, 4])
        lists = [self._random.sample(BROKERS, factor) for _ in range(self._random.choice([1, 2, 4]))]
        configs = []
        if self._random.random() < 0.4:
            configs.append(ct.CreatableTopicConfig(MIN_ISR, str(self._random.choice([1, 2, 3]))))
        if self._random.random() < 0.3:
            configs.append(ct.CreatableTopicConfig(UNCLEAN, "true"))
        assigned = [ct.CreatableReplicaAssignment(index, each) for index, each in enumerate(lists)]
        topic = ct.CreatableTopic(name, -1, -1, assigned, configs)
        yield _plain(f"create {name} {lists}", ct.CreateTopicsRequest([topic], TIMEOUT_MS))

    def _partitions(self, target: _Target) -> Iterator[Step]:
        """Use one replication factor: Kafka takes that of any partition, which is visible only if all are equal."""
        image = self._image.topics.by_name(target.topic)
        assert image is not None
        factors = {len(each.replicas) for each in image.partitions.values()}
        if len(factors) > 1:
            return
        size = min(len(BROKERS), factors.pop() + self._random.choice([0, 0, 0, 1]))
        assigned = [cp.CreatePartitionsAssignment(self._random.sample(BROKERS, size))]
        wanted = cp.CreatePartitionsTopic(target.topic, image.partition_count + 1, assigned)
        yield _plain(f"add to {target.topic}", cp.CreatePartitionsRequest([wanted], TIMEOUT_MS))

    def _deletions(self, target: _Target) -> Iterator[Step]:
        gone = [DeleteTopicState(target.topic)]
        yield _plain(f"delete {target.topic}", DeleteTopicsRequest(gone, timeout_ms=TIMEOUT_MS))

    # Replicas

    def _in_sync_sets(self, target: _Target) -> Iterator[Step]:
        topic, number, before = target
        draw = self._random
        sender = before.leader if before.has_leader and draw.random() < 0.95 else draw.choice(BROKERS)
        members = self._members(before, sender)
        asked = ap.AlterPartitionRequestPartitionData(
            number,
            before.leader_epoch + draw.choices([0, 1, -1], [40, 1, 1])[0],
            leader_recovery_state=draw.choice([0, 1]) if before.leader_recovery_state or draw.random() < 0.05 else 0,
            partition_epoch=before.partition_epoch + draw.choices([0, 1, -1], [40, 1, 1])[0],
        )
        version, outdated = draw.choice([2, 3, 3, 3]), draw.random() < 0.03

        def ask(side: Side) -> ap.AlterPartitionRequest:
            if version == 2:
                data = replace(asked, new_isr=members)
            else:
                known = [ap.BrokerState(each, side.epochs.get(each, -1) - outdated) for each in members]
                data = replace(asked, new_isr_with_epochs=known)
            topics = [ap.AlterPartitionRequestTopicData(side.topic_ids[topic], [data])]
            return ap.AlterPartitionRequest(sender, side.epochs.get(sender, -1), topics)

        yield Step(f"{sender} says {topic}-{number} has {members}", ask, version)

    def _members(self, before: PartitionRegistration, sender: int) -> list[int]:
        """Return an ISR, mostly with one more replica, sometimes invalid. Only Kafka writes a mere reordering."""
        draw, members = self._random, list(before.isr)
        kind = draw.random()
        if kind < 0.6:
            members += [each for each in before.replicas if each not in members and not self._is_fenced(each)][:1]
        elif kind < 0.8 and len(members) > 1:
            members.remove(draw.choice([each for each in members if each != sender] or members))
        elif kind < 0.9:
            members = draw.sample(before.replicas, draw.randint(1, len(before.replicas)))
        elif kind < 0.95:
            members = draw.sample([*BROKERS, -3], 2)
        if set(members) == set(before.isr):
            members = list(before.isr)
        return members + members[:1] if draw.random() < 0.03 else members

    def _elections(self, target: _Target) -> Iterator[Step]:
        kind = self._random.choice([0, 0, 1])
        asked = [el.TopicPartitions(target.topic, [target.number, 55])] if self._random.random() < 0.8 else None
        yield _plain(f"elect {kind} {asked}", el.ElectLeadersRequest(kind, asked, TIMEOUT_MS))

    def _reassignments(self, target: _Target) -> Iterator[Step]:
        topic, number, before = target
        wanted = self._target(before)
        may_change = self._random.random() < 0.8
        if wanted is None and self._with_elr and before.adding_replicas and (before.has_elr or len(before.isr) < 3):
            return
        rows = [apr.ReassignablePartition(number, wanted)]
        request = apr.AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=may_change, topics=[apr.ReassignableTopic(topic, rows)]
        )
        yield _plain(f"reassign {topic}-{number} to {wanted}", request)

    def _target(self, before: PartitionRegistration) -> list[int] | None:
        """Return the target of a reassignment, or None to cancel one.

        Kafka forgets the original replicas when another reassignment replaces it, so reassignments are cancelled first.
        With eligible leader replicas Kafka keeps removed replicas eligible, so none is removed.
        """
        draw = self._random
        if before.is_reassigning or draw.random() < 0.3:
            return None
        target = draw.sample(BROKERS, draw.choice([1, 2, 3, 3, 4]))
        if self._with_elr:
            target = [*before.replicas, *(each for each in target if each not in before.replicas)]
            draw.shuffle(target)
        return [*target, draw.choice([target[0], 77, -1])] if draw.random() < 0.05 else target

    # Configs and the rest

    def _configs(self, target: _Target) -> Iterator[Step]:
        key, value = self._random.choice([*((MIN_ISR, each) for each in "123"), *((UNCLEAN, each) for each in _FLAGS)])
        resource = self._random.choice([(TOPIC, target.topic), (TOPIC, target.topic), (BROKER, ""), (BROKER, "1000")])
        if key == MIN_ISR and self._with_elr and (resource == (BROKER, "1000") or self._would_clear(resource, value)):
            return
        operations = [iac.AlterableConfig(key, 1 if value is None else 0, value)]
        request = iac.IncrementalAlterConfigsRequest([iac.AlterConfigsResource(*resource, operations)])
        yield _plain(f"config {resource} {key}={value}", request)

    def _would_clear(self, resource: tuple[int, str], value: str | None) -> bool:
        """Whether only Kafka clears eligible leaders: the value is unchanged, or no other replica has the data."""
        same = self._image.configs.of(*resource).get(MIN_ISR) == value
        return same or any(each.has_elr and not each.has_leader for _, _, each in self._all())

    def _other_requests(self) -> Iterator[Step]:
        broker = self._random.choice(BROKERS)
        yield _plain("list", ListPartitionReassignmentsRequest())
        yield Step("ids", lambda side: AllocateProducerIdsRequest(broker, side.epochs.get(broker, -1)))


_FLAGS: Final = ("true", "false", None)

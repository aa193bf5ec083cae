"""Random histories of a group whose consumers change the protocol: upgrades and downgrades (KIP-848), with failovers.

The invariants hold after every event: each partition has at most one owner among the members; a group of classic
members alone is a classic group where the policy allows a downgrade; generations and epochs never decrease while the
group has members; a downgrade keeps the classic members with their targets; the log yields the same group.
"""

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from broker.groups.classic import ClassicGroup
from broker.groups.consumer.assignment import Assignment, assignment_from, each_partition, in_order
from broker.groups.consumer.embedded_protocol import assignment_bytes, embedded_assignment, embedded_subscription
from broker.groups.consumer.environment import ConsumerGroupEnvironment, MigrationPolicy
from broker.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from broker.groups.member import SupportedProtocol
from broker.groups.shard import GroupShard
from broker.groups.state import GroupState
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.common_records import ConsumerProtocolSubscription, ConsumerProtocolSubscriptionTopicPartition
from protocol.messages.join_group import JoinGroupResponse
from protocol.primitives import Uuid
from tests.support.harnesses.consumer_group_harness import ConsumerGroupHarness
from tests.support.harnesses.group_harness import GROUP, ReplyBox

EVENTS = 200
NEW = "abc"
CLASSIC = "xyz"
TOPICS = ("t", "u")
SESSION_MS = 40_000
REFUSALS = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
}
REJOINS = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}

Partition = tuple[Uuid, int]


class ClassicClient:
    """A cooperative consumer of the classic protocol, in groups of either protocol. It keeps its pending request."""

    def __init__(self, name: str, harness: ConsumerGroupHarness) -> None:
        self.name = name
        self.owned: Assignment = {}
        self.is_member = False
        self._harness = harness
        self._joining: ReplyBox | None = None
        self._syncing: ReplyBox | None = None

    def act(self) -> None:
        """Take the next step: read a response, join, or send a heartbeat."""
        if self._joining is not None:
            self._after_join(self._joining)
        elif self._syncing is not None:
            self._after_sync(self._syncing)
        elif not self.is_member:
            self.join()
        else:
            self._on_error(self._harness.heartbeat(self.name))

    def join(self) -> None:
        """Send JoinGroup with the owned partitions; a pending response counts as lost."""
        if self._is_removed():
            self.owned = {}  # others may have its partitions until the client learns of that
        owned = [
            ConsumerProtocolSubscriptionTopicPartition(topic, partitions)
            for topic_id, partitions in in_order(self.owned)
            if (topic := self._harness.topics.name_of(topic_id)) is not None
        ]
        message = ConsumerProtocolSubscription(topics=list(TOPICS), owned_partitions=owned)
        protocols = {"range": (3).to_bytes(2, "big") + encode_bytes(message, 3)}
        self._syncing, self.is_member = None, True
        try:
            self._joining = self._harness.join(self.name, protocols=protocols, session_ms=SESSION_MS)
        except KafkaError as error:
            self._on_error(error.code)

    def leave(self) -> None:
        self._harness.leave(self.name)
        self.forget()

    def forget(self) -> None:
        """Lose the membership and all partitions."""
        self._harness.client(self.name, member_id="", generation=-1)
        self.owned, self.is_member, self._joining, self._syncing = {}, False, None, None

    def _is_removed(self) -> bool:
        """Whether the group has removed the member. A consumer group takes it back when it joins, as in Kafka."""
        shard = self._harness.shard
        group = shard.consumer_groups.table.get(GROUP) or shard.groups.get(GROUP)
        return group is None or self._harness.client(self.name).member_id not in group.members

    def _on_error(self, error: ErrorCode) -> None:
        if error is ErrorCode.ILLEGAL_GENERATION:
            self.owned = {}  # the partitions count as lost
        if error in REJOINS:
            self.join()
        elif error is not ErrorCode.NONE:
            self.forget()

    def _after_join(self, box: ReplyBox) -> None:
        if box.answer is None:
            return
        self._joining = None
        if box.error is not ErrorCode.NONE:
            self._on_error(box.error)
            return
        joined = box.joined
        shares = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            shares = self._cooperative_assignment(joined)
        try:
            self._syncing = self._harness.sync(self.name, shares)
        except KafkaError as error:
            self._on_error(error.code)

    def _after_sync(self, box: ReplyBox) -> None:
        if box.answer is None:
            return
        self._syncing = None
        if box.error is not ErrorCode.NONE:
            self._on_error(box.error)
            return
        before = set(each_partition(self.owned))
        self.owned = embedded_assignment(bytes(box.synced.assignment), self._harness.topics)
        if before - set(each_partition(self.owned)):
            self.join()

    def _cooperative_assignment(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """Return the assignments by client name. A partition that its owner has to give up has no owner this time."""
        topics = self._harness.topics
        names = {client.member_id: name for name, client in self._harness.clients.items()}
        protocols = {each.member_id: SupportedProtocol("", bytes(each.metadata)) for each in joined.members}
        owned = {
            member_id: sorted(each_partition(embedded_subscription([protocol], topics).owned))
            for member_id, protocol in protocols.items()
        }
        taken = {partition for partitions in owned.values() for partition in partitions}
        most = -(-len(all_partitions(self._harness)) // len(owned))
        shares = {member_id: partitions[:most] for member_id, partitions in owned.items()}
        for partition in sorted(all_partitions(self._harness) - taken):
            min(shares.values(), key=len).append(partition)
        return {
            names[member_id]: assignment_bytes(assignment_from(partitions), protocols[member_id], topics)
            for member_id, partitions in shares.items()
            if member_id in names
        }


def all_partitions(harness: ConsumerGroupHarness) -> set[Partition]:
    described = [topic for name in TOPICS if (topic := harness.topics.describe(name)) is not None]
    return {(topic.topic_id, index) for topic in described for index in range(topic.partition_count)}


class GroupView(NamedTuple):
    """The group at one moment; `targets` and `owned` have the classic members of a consumer group, or all of a classic
    one.
    """

    is_classic: bool
    epoch: int
    members: frozenset[str]
    targets: dict[str, set[Partition]]
    owned: dict[str, set[Partition]]


class MigrationSimulation:
    """One group under random events."""

    def __init__(self, seed: int, policy: MigrationPolicy) -> None:
        self.random = Random(seed)
        self.policy = policy
        self.harness = ConsumerGroupHarness(environment=ConsumerGroupEnvironment(migration_policy=policy))
        self.joined: set[str] = set()
        self.classic = {name: ClassicClient(name, self.harness) for name in CLASSIC}
        self.counts = Counter[str]()
        self._before: GroupView | None = None

    def run(self) -> None:
        """Let events happen under changing tastes of the clients, then settle."""
        prefers_new = 0.5
        for event in range(EVENTS):
            if event % 25 == 0:
                prefers_new = self.random.choice([0.0, 0.5, 1.0])
            is_simple = self._step(prefers_new)
            self._check(is_simple)
        self._settle()

    def _step(self, prefers_new: float) -> bool:
        """Let one thing happen. Return False if it may contain several changes of the group."""
        match self.random.randrange(14):
            case 0:
                self.harness.restart()
                self._before = None  # a generation that is being negotiated is soft state
                return False
            case 1 | 2:
                self.harness.advance(self.random.choice([1, 4, 30]))
                return False
            case 3:
                self._leave_against(prefers_new)
            case 4:
                self.classic[self.random.choice(CLASSIC)].join()
            case _ if self.random.random() < 0.5:
                name = self.random.choice(NEW)
                if name in self.joined or self.random.random() < prefers_new:
                    self._beat(name, keeps=self.random.random() < 0.3)
            case _:
                client = self.classic[self.random.choice(CLASSIC)]
                if client.is_member or self.random.random() >= prefers_new:
                    client.act()
        return True

    def _leave_against(self, prefers_new: float) -> None:
        """Let a consumer of the protocol that is not preferred leave."""
        if self.random.random() < prefers_new:
            members = [each for each in self.classic.values() if each.is_member]
            if members:
                self.random.choice(members).leave()
        elif self.joined:
            name = self.random.choice(sorted(self.joined))
            self.joined.discard(name)
            try:
                self.harness.leave_group_of(name)
            except KafkaError as error:
                self._refused(name, error)

    def _beat(self, name: str, *, keeps: bool = False) -> None:
        try:
            settings = {} if name in self.joined else {"topics": TOPICS}
            self.harness.beat(name, keeps=keeps, **settings)
            self.joined.add(name)
        except KafkaError as error:
            self._refused(name, error)

    def _refused(self, name: str, error: KafkaError) -> None:
        if error.code not in REFUSALS:
            raise error
        self.harness.forget(name)
        self.joined.discard(name)

    # Invariants.

    def _view(self, shard: GroupShard) -> GroupView | None:
        group: ConsumerGroup | ClassicGroup | None = shard.consumer_groups.table.get(GROUP)
        if isinstance(group, ConsumerGroup):
            classic = [each for each, member in group.members.items() if member.classic is not None]
            targets = {each: set(each_partition(group.target(each))) for each in classic}
            owned = {each: set(group.current(each).held()) for each in classic}
            return GroupView(False, group.epoch, frozenset(group.members), targets, owned)
        group = shard.groups.get(GROUP)
        if group is None:
            return None
        assigned = {
            each.member_id: set(each_partition(embedded_assignment(each.assignment, self.harness.topics)))
            for each in group.members.values()
        }
        return GroupView(True, group.generation, frozenset(group.members), assigned, assigned)

    def _check(self, is_simple: bool) -> None:
        before, now = self._before, self._view(self.harness.shard)
        self._before = now
        if now is None:
            return
        self._check_owners(now.members)
        if not now.is_classic and self.policy.allows_downgrade:
            assert not now.members or now.members - now.targets.keys(), "classic members alone form a consumer group"
        if before is None or not before.members or not now.members:
            return
        assert now.epoch >= before.epoch, f"the epoch {before.epoch} is followed by {now.epoch}"
        if before.is_classic != now.is_classic:
            self._check_conversion(before, now, is_simple)

    def _check_conversion(self, before: GroupView, now: GroupView, is_simple: bool) -> None:
        self.counts["downgrades" if now.is_classic else "upgrades"] += 1
        assert self.policy.allows_downgrade if now.is_classic else self.policy.allows_upgrade
        kept = now.targets.keys() & before.targets.keys()
        if now.is_classic:
            assert now.members == kept, "a classic group has members that were not classic"
        if is_simple:
            assert kept == before.targets.keys(), "classic members are lost"
            if now.is_classic:
                assert self.harness.group.state is GroupState.PREPARING_REBALANCE, "no rebalance follows"
                assert all(now.owned[each] == before.owned[each] for each in kept), "a member has not what it owned"
        replayed = self._view(self.harness.replayed_shard())
        assert replayed == now, "the log has another group"

    def _check_owners(self, members: Iterable[str]) -> None:
        owned = Counter(each for member_id in members for each in each_partition(self._owned_by(member_id)))
        assert [partition for partition, count in owned.items() if count > 1] == [], "two owners"

    def _owned_by(self, member_id: str) -> Assignment:
        """Return the partitions that the client of the member works on."""
        for client in self.classic.values():
            if self.harness.client(client.name).member_id == member_id:
                return client.owned
        return self.harness.consumer(member_id).owned if member_id in NEW else {}

    # End.

    def _settle(self) -> None:
        """Let the clients that are there go on until the group is stable, and check that everything is assigned."""
        for _ in range(60):
            if not self.joined and not any(client.is_member for client in self.classic.values()):
                self.classic["x"].join()
            self.harness.advance(3)  # members without a client expire
            for name in sorted(self.joined):
                self._beat(name)
            for client in self.classic.values():
                if client.is_member:
                    client.act()
            self._check(False)
        view = self._view(self.harness.shard)
        assert view is not None
        if view.is_classic:
            assert self.harness.group.state is GroupState.STABLE
        else:
            assert self.harness.consumer_group.state is ConsumerGroupState.STABLE
        owned = [each for member_id in view.members for each in each_partition(self._owned_by(member_id))]
        assert sorted(owned) == sorted(all_partitions(self.harness)), "partitions have no owner"

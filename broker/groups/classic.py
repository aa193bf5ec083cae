"""A classic group: its members, parked requests, leader and protocol.

Holds data and local rules only. `rebalance.py` decides when to rebalance, `records.py` builds the records, and only
`GroupTable.move` changes states. The methods here maintain counters, so that no request iterates over all members.
"""

from collections.abc import Collection, Iterable

from broker.coordination.reply import Reply
from broker.groups.member import ClassicGroupMember, SupportedProtocol
from broker.groups.state import GroupState
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, all_subscribed_topics
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.sync_group import SyncGroupResponse


class ClassicGroup:
    """A group whose leader, a client, assigns the partitions.

    `leader` is a member's id whenever there are members. `pending_joins` are member ids that were given out and not
    used yet (KIP-394). `pending_syncs` have received their JoinGroup response and must send SyncGroup. `topics` are the
    topics that members subscribe to, None when unknown. `was_empty` distinguishes an initial rebalance from a later
    one. `assigning` is the generation whose assignment is being written to the log, if any. `awaits_rebalance` is true
    between the downgrade of a consumer group and the rebalance that follows it.
    """

    def __init__(self, group_id: str, *, state: GroupState = GroupState.EMPTY, state_since_ms: int = -1) -> None:
        self.group_id = group_id
        self.state = state
        self.state_since_ms = state_since_ms
        self.was_empty = False
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.pending_joins: set[str] = set()
        self.pending_syncs: set[str] = set()
        self.has_new_member = False
        self.assigning: int | None = None
        self.awaits_rebalance = False
        self.topics: frozenset[str] | None = None
        self._static_members: dict[str, str] = {}
        self._supporters: dict[str, int] = {}
        self._parked_joins = 0

    # Membership.

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def parked_join_count(self) -> int:
        return self._parked_joins

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self._parked_joins and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_member_id(self, instance_id: str) -> str | None:
        """Return the current member id of the instance."""
        return self._static_members.get(instance_id)

    def member_or_raise(self, member_id: str, instance_id: str | None) -> ClassicGroupMember:
        """Return the member that sent a request.

        Raise KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another process took over the instance.
        """
        if instance_id is not None:
            owner = self._static_members.get(instance_id)
            if owner is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if owner != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic. A consumer group with unreadable subscriptions counts as reading all
        topics.
        """
        return self.uses_consumer_protocol if self.topics is None else topic in self.topics

    # Changes of members.

    def add(
        self, member: ClassicGroupMember, protocol_type: str | None, reply: Reply[JoinGroupResponse] | None = None
    ) -> None:
        """Add a member that `supports` accepted. The first member leads and decides the protocol type."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending_joins.discard(member.member_id)
        self._count_support(member, 1)
        self.park_join(member, reply)

    def update(self, member: ClassicGroupMember, protocols: tuple[SupportedProtocol, ...]) -> None:
        """Replace the protocols of the member."""
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, 1)

    def remove(self, member_id: str) -> None:
        """Remove a member, pending or not, whose replies have been answered. Another member may become the leader."""
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.park_join(member, None)
        self._count_support(member, -1)
        if member.instance_id is not None:
            self._static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename_static(self, instance_id: str, new_member_id: str) -> ClassicGroupMember:
        """Give a static member a new member id; assignment and leadership stay. Its replies must have been answered."""
        old_member_id = self._static_members[instance_id]
        member = self.members.pop(old_member_id)
        member.member_id = new_member_id
        member.is_new = False
        self.members[new_member_id] = member
        self._static_members[instance_id] = new_member_id
        if self.leader == old_member_id:
            self.leader = new_member_id
        if old_member_id in self.pending_syncs:
            self.pending_syncs.remove(old_member_id)
            self.pending_syncs.add(new_member_id)
        return member

    # Parked requests.

    def park_join(self, member: ClassicGroupMember, reply: Reply[JoinGroupResponse] | None) -> None:
        """Park the member's JoinGroup until the join phase ends; None removes a parked reply without a response."""
        self._parked_joins += (reply is not None) - member.awaits_join
        member.join_reply = reply

    def answer_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> bool:
        """Answer a parked JoinGroup. Return False when none is parked."""
        reply = member.join_reply
        if reply is None:
            return False
        self.park_join(member, None)
        return reply.complete(response)

    def answer_sync(self, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
        """Answer a parked SyncGroup. Return False when none is parked."""
        reply, member.sync_reply = member.sync_reply, None
        return reply is not None and reply.complete(response)

    # Leader and protocol.

    def elect_joined_leader(self) -> bool:
        """Make a member with a parked JoinGroup the leader. Return False when there is none."""
        if self.leader is not None and self.members[self.leader].awaits_join:
            return True
        joined = next((member.member_id for member in self.members.values() if member.awaits_join), None)
        self.leader = joined or self.leader
        return joined is not None

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a client with these protocols can join the current members."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and any(
            self._supporters.get(name, 0) == len(self.members) for name in names
        )

    def elect_protocol(self) -> str | None:
        """Return the protocol with the most votes among those that all members support; of equals, the first one voted
        for.
        """
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        return _most_voted(member.vote(candidates) for member in self.members.values())

    def refresh_topics(self) -> None:
        """Update `topics` from the members' metadata under the elected protocol."""
        self.topics = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        return all_subscribed_topics(member.metadata(self.protocol) for member in self.members.values())

    def _count_support(self, member: ClassicGroupMember, change: int) -> None:
        for protocol in member.protocols:
            count = self._supporters.get(protocol.name, 0) + change
            if count:
                self._supporters[protocol.name] = count
            else:
                del self._supporters[protocol.name]


def _most_voted(votes: Iterable[str | None]) -> str | None:
    counts: dict[str, int] = {}
    for vote in votes:
        if vote is not None:
            counts[vote] = counts.get(vote, 0) + 1
    return max(counts, key=counts.__getitem__, default=None)

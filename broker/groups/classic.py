"""A classic group: its members, who is parked, who leads, which protocol they share.

Data and local rules only. When to rebalance is `rebalance.py`'s affair, what reaches the log `records.py`'s, and states
change through `GroupTable.move` alone. Counters are kept by the methods here so that no request looks at all members.
"""

from collections.abc import Collection, Iterable

from broker.coordination.reply import Reply
from broker.groups.member import ClassicGroupMember, SupportedProtocol
from broker.groups.state import GroupState
from broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, all_subscribed_topics
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.sync_group import SyncGroupResponse


class ClassicGroup:
    """A group whose leader, a client, assigns the partitions.

    `leader` is a member's id whenever there are members. `pending_joins` were given an id and asked to come back with
    it (KIP-394); `pending_syncs` have been answered their JoinGroup and owe a SyncGroup. `topics` are those the members
    subscribe to, None when unknown. `was_empty` tells an initial rebalance from a later one. `assigning` is the
    generation whose assignment is on its way to the log, if any.
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
        self.topics: frozenset[str] | None = None
        self._static_members: dict[str, str] = {}
        self._supporters: dict[str, int] = {}
        self._parked_joins = 0

    # Who is in, and in what condition.

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_simple(self) -> bool:
        """Whether it exists only because somebody stored offsets under its name."""
        return self.protocol_type is None and self.is_empty and not self.pending_joins

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def parked_join_count(self) -> int:
        return self._parked_joins

    @property
    def everybody_joined(self) -> bool:
        return len(self.members) == self._parked_joins and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The patience of the most patient member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_member_id(self, instance_id: str) -> str | None:
        """Which member id the instance has at present."""
        return self._static_members.get(instance_id)

    def is_leader(self, member_id: str) -> bool:
        return self.leader is not None and self.leader == member_id

    def member_or_raise(self, member_id: str, instance_id: str | None) -> ClassicGroupMember:
        """The member that a request comes from.

        Raises KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another process took over the instance.
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
        """Whether a member reads the topic; a consumer group that cannot be understood is taken to read them all."""
        return self.uses_consumer_protocol if self.topics is None else topic in self.topics

    # Members come, change and go.

    def add(
        self, member: ClassicGroupMember, protocol_type: str | None, reply: Reply[JoinGroupResponse] | None = None
    ) -> None:
        """Take in a member that `supports` accepted; the first one leads and decides the protocol type."""
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
        """Let the member support other protocols."""
        self._count_support(member, -1)
        member.protocols = protocols
        self._count_support(member, 1)

    def remove(self, member_id: str) -> None:
        """Forget a member, pending or not; its replies must have been answered. Another one may come to lead."""
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
        """Give a static member a new member id; slot, assignment and leadership stay. Its replies must be answered."""
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
        """Hold the member's JoinGroup until the phase ends; None releases the slot without an answer."""
        self._parked_joins += (reply is not None) - member.awaits_join
        member.join_reply = reply

    def answer_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> bool:
        """Answer a parked JoinGroup; False when none is parked."""
        reply = member.join_reply
        if reply is None:
            return False
        self.park_join(member, None)
        return reply.complete(response)

    def answer_sync(self, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
        """Answer a parked SyncGroup; False when none is parked."""
        reply, member.sync_reply = member.sync_reply, None
        return reply is not None and reply.complete(response)

    # Leader and protocol.

    def elect_joined_leader(self) -> bool:
        """See that a parked member leads; False when nobody is parked."""
        if self.leader is not None and self.members[self.leader].awaits_join:
            return True
        joined = next((member.member_id for member in self.members.values() if member.awaits_join), None)
        self.leader = joined or self.leader
        return joined is not None

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether somebody who brings these protocols can be in one group with the present members."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and any(
            self._supporters.get(name, 0) == len(self.members) for name in names
        )

    def elect_protocol(self) -> str | None:
        """The protocol with the most votes among those that all support; of equals, the one voted for first."""
        candidates = {name for name, count in self._supporters.items() if count == len(self.members)}
        return _most_voted(member.vote(candidates) for member in self.members.values())

    def refresh_topics(self) -> None:
        """Work out `topics` from what the members said under the elected protocol."""
        self.topics = self._subscribed_topics()

    def as_join_members(self) -> list[JoinGroupResponseMember]:
        """The members as their leader sees them."""
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in self.members.values()
        ]

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

"""Ownership of partitions by members of consumer groups, from the committed log and from the view of clients.

- OwnersAreSole: no partition is in the current assignment of two members of a consumer group, or in the assignments of
  two members in one generation of a classic group. In a group with members of both protocols, no member gets a
  partition that another member has.
- OwnersGiveUpFirst: a partition goes to another member only after its former owner has given it up, or has left the
  group. The check leaves out clients with a request that may still arrive: no field of it tells that it is late.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from broker.groups.consumer.records import (
    ConsumerGroupRemoved,
    ConsumerMemberRemoved,
    ConsumerMemberWritten,
    CurrentAssignmentRemoved,
    CurrentAssignmentWritten,
)
from broker.groups.records import GroupRemoved, GroupWritten
from protocol.primitives import Uuid
from tests.simulation.simulator import Counts

Owned = frozenset[tuple[str, int]]
"""Partitions by topic and index."""
NOTHING: Final[Owned] = frozenset()
Fail = Callable[[str, str], None]


class Ownership:
    """The partitions of one client, as the client knows them."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1
        self.owned = NOTHING
        self.is_doubtful = False
        """Whether a request without response may still arrive."""
        self.migrates = False
        """Whether the group has members of both protocols, so that epochs and generations do not tell the owners."""

    def give_up(self) -> None:
        """Own nothing."""
        self.owned = NOTHING


class OwnerChecker:
    """Checks the owners after every committed batch. `topic_name` returns the name of a topic id."""

    def __init__(self, counts: Counts, fail: Fail, topic_name: Callable[[Uuid], str]) -> None:
        self.clients: list[Ownership] = []
        self._counts = counts
        self._fail = fail
        self._topic_name = topic_name
        self._members: dict[str, set[str]] = {}
        self._assigned: dict[tuple[str, str], Owned] = {}
        self._generations: dict[tuple[str, int], dict[tuple[str, int], str]] = {}

    # Clients

    def on_assigned(self, client: Ownership, owned: Iterable[tuple[str, int]]) -> None:
        """Note the assignment that a client has received, and check it within its generation."""
        client.owned = frozenset(owned)
        self._counts.add("assignments of members")
        if client.migrates:
            self._check_others(client)
        if client.migrates or client.generation < 0:
            return
        owners = self._generations.setdefault((client.group_id, client.generation), {})
        for partition in client.owned:
            other = owners.setdefault(partition, client.member_id)
            if other != client.member_id:
                self._fail(
                    "OwnersAreSole",
                    f"{partition} belongs to {other} and {client.member_id} in generation {client.generation}",
                )

    def _check_others(self, client: Ownership) -> None:
        """Check a new assignment against what the other members of the group have."""
        members = self._members.get(client.group_id, ())
        if client.member_id not in members:
            return  # removed meanwhile: the response is late
        for other in self.clients:
            is_member = other.group_id == client.group_id and other.member_id in members and not other.is_doubtful
            if is_member and other is not client and other.owned & client.owned:
                self._fail(
                    "OwnersAreSole",
                    f"{sorted(other.owned & client.owned)} belong to {other.member_id} and {client.member_id}",
                )

    # The committed log

    def on_batch(self, batch: Iterable[object]) -> None:
        """Check the events of one committed batch."""
        gained: list[tuple[str, str, Owned]] = []
        events = list(batch)
        self._counts.add("group migrations", _migrations(events))
        for event in events:
            match event:
                case ConsumerMemberWritten(group_id, member):
                    self._members.setdefault(group_id, set()).add(member.member_id)
                case ConsumerMemberRemoved(group_id, member_id):
                    self._members.get(group_id, set()).discard(member_id)
                case CurrentAssignmentRemoved(group_id, member_id):
                    self._assigned.pop((group_id, member_id), None)
                case CurrentAssignmentWritten(group_id, member_id, assignment):
                    held = frozenset((self._topic_name(topic), index) for topic, index in assignment.held())
                    new = held - self._assigned.get((group_id, member_id), NOTHING)
                    self._assigned[group_id, member_id] = held
                    gained.append((group_id, member_id, new))
                case GroupWritten(group_id, value):
                    self._on_generation(group_id, value.generation, {each.member_id for each in value.members})
                case GroupRemoved(group_id):
                    self._members.pop(group_id, None)
        for group_id, member_id, new in gained:
            # A batch has the records of several commands, and a later one may have taken the partitions away again.
            self._check_gained(group_id, member_id, new & self._assigned.get((group_id, member_id), NOTHING))

    def _check_gained(self, group_id: str, member_id: str, gained: Owned) -> None:
        for (other_group, other), held in self._assigned.items():
            if other_group == group_id and other != member_id and held & gained:
                self._fail("OwnersAreSole", f"{sorted(held & gained)} belong to {other} and {member_id} of {group_id}")
        for client in self.clients:
            is_member = client.member_id in self._members.get(group_id, ())
            if client.group_id != group_id or client.member_id == member_id or not is_member or client.is_doubtful:
                continue
            self._counts.add("changes of owners", int(bool(gained)))
            if client.owned & gained:
                self._fail(
                    "OwnersGiveUpFirst",
                    f"{sorted(client.owned & gained)} go to {member_id}, but {client.member_id} has them still",
                )

    def _on_generation(self, group_id: str, generation: int, members: set[str]) -> None:
        if any(client.group_id == group_id and client.migrates for client in self.clients):
            self._members[group_id] = members
            return
        for client in self.clients:
            if client.group_id != group_id or client.member_id not in members or client.is_doubtful:
                continue
            self._counts.add("generations of members")
            if client.owned and client.generation < generation:
                self._fail(
                    "OwnersGiveUpFirst",
                    f"{client.member_id} is in generation {generation} of {group_id}, and goes on in"
                    f" {client.generation} with {sorted(client.owned)}",
                )


def _migrations(events: Sequence[object]) -> int:
    """Return 1 for a batch that changes the protocol of a group with members, else 0."""
    is_upgrade = any(isinstance(each, GroupRemoved) for each in events) and any(
        isinstance(each, ConsumerMemberWritten) and each.member.classic is not None for each in events
    )
    is_downgrade = any(isinstance(each, ConsumerGroupRemoved) for each in events) and any(
        isinstance(each, GroupWritten) and each.value.members for each in events
    )
    return int(is_upgrade or is_downgrade)


def by_topic(owned: Owned) -> Mapping[str, list[int]]:
    """Return the partitions of each topic."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(owned):
        found.setdefault(topic, []).append(index)
    return found

"""The range assignor: consecutive partitions of each topic, so that co-partitioned topics stay together.

Members in order: static ones by instance id, then the others by member id. Of a topic with P partitions and n
subscribers, each subscriber gets ⌊P/n⌋ consecutive partitions, the first P mod n subscribers one more. The former
target does not count.
"""

from collections.abc import Mapping
from typing import Final

from broker.groups.consumer.assignment import Assignment
from broker.groups.consumer.assignors.assignor import AssignableGroup, AssignableMember
from protocol.primitives import Uuid


class RangeAssignor:
    """Assigns ranges; see the module."""

    name: Final = "range"

    def assign(self, group: AssignableGroup) -> Mapping[str, Assignment]:
        """Return the target of each member. Raise AssignorFailed."""
        members = sorted(group.members.values(), key=_rank)
        subscribers: dict[Uuid, list[str]] = {}
        for member in members:
            for topic_id in member.topic_ids:
                subscribers.setdefault(topic_id, []).append(member.member_id)
        targets: dict[str, dict[Uuid, frozenset[int]]] = {member.member_id: {} for member in members}
        for topic_id, member_ids in subscribers.items():
            size, extra = divmod(group.partition_count(topic_id), len(member_ids))
            start = 0
            for index, member_id in enumerate(member_ids):
                end = start + size + (index < extra)
                if start < end:
                    targets[member_id][topic_id] = frozenset(range(start, end))
                start = end
        return targets


def _rank(member: AssignableMember) -> tuple[bool, str]:
    is_dynamic = member.instance_id is None
    return is_dynamic, member.member_id if member.instance_id is None else member.instance_id

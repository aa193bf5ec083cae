"""A member of a consumer group: its subscription, and its way to the target assignment."""

from dataclasses import field
from enum import IntEnum
from typing import Final

from broker.groups.consumer.assignment import NO_PARTITIONS, Assignment, each_partition, union
from broker.groups.member import SupportedProtocol
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member whose process has stopped and will return (KIP-848, "Static Membership")."""


class ReconciliationState(IntEnum):
    """The state of a member between two assignments, with its number in records; `reconciliation.py` has the table."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> "ReconciliationState":
        """Return the state with that number; UNKNOWN for a state of a later version."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


@lazy_dataclass(frozen=True, slots=True)
class ClassicProtocolSupport:
    """The JoinGroup data of a member that uses the classic protocol within a consumer group."""

    session_timeout_ms: int
    protocols: tuple[SupportedProtocol, ...]


@lazy_dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member as its record describes it. `topic_regex` is empty without a pattern."""

    member_id: str
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    server_assignor: str | None = None
    classic: ClassicProtocolSupport | None = None

    @property
    def subscription(self) -> "MemberSubscription":
        return (self.topic_names, self.topic_regex)


MemberSubscription = tuple[frozenset[str], str]
"""Topic names and pattern; members with equal subscriptions read the same topics."""


@lazy_dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The partitions of a member now. `revoking` are partitions that the member must give up, and still owns.

    `previous_epoch` is the epoch before the last change, which a client has whose last response was lost.
    """

    epoch: int = 0
    previous_epoch: int = 0
    state: ReconciliationState = ReconciliationState.STABLE
    assigned: Assignment = field(default_factory=lambda: NO_PARTITIONS)
    revoking: Assignment = field(default_factory=lambda: NO_PARTITIONS)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has reached the target assignment of that epoch."""
        return self.state is ReconciliationState.STABLE and self.epoch == epoch

    @property
    def owned(self) -> Assignment:
        """The partitions of `held` by topic."""
        return union(self.assigned, self.revoking) if self.revoking else self.assigned

    def held(self) -> frozenset[tuple[Uuid, int]]:
        """Return all partitions that no other member may own yet."""
        return frozenset((*each_partition(self.assigned), *each_partition(self.revoking)))


NEW_MEMBER_ASSIGNMENT: Final = MemberAssignment()

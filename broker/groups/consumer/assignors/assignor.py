"""The interface of assignors: subscriptions and former targets in, new targets out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from broker.groups.consumer.assignment import Assignment
from broker.groups.consumer.loads import MemberLoads
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid


class AssignorFailed(Exception):
    """An assignor has no assignment for this group; the heartbeat fails and the former target remains."""


@lazy_dataclass(frozen=True, slots=True)
class AssignableMember:
    """A member: the ids of its existing topics, and its former target."""

    member_id: str
    topic_ids: frozenset[Uuid]
    target: Assignment
    instance_id: str | None = None
    rack_id: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class AssignableGroup:
    """The input of an assignor. `partition_racks` has the racks of each partition's replicas, by topic id and index.

    The group `is_homogeneous` when all members subscribe to the same topics.
    """

    members: Mapping[str, AssignableMember]
    partition_racks: Mapping[Uuid, Sequence[frozenset[str]]]
    is_homogeneous: bool

    def partition_count(self, topic_id: Uuid) -> int:
        """Return the number of partitions; raise AssignorFailed for a missing topic."""
        racks = self.partition_racks.get(topic_id)
        if racks is None:
            raise AssignorFailed(f"a member subscribes to topic {topic_id.hex()}, which does not exist")
        return len(racks)


@lazy_dataclass(frozen=True, slots=True)
class FormerTargets:
    """The targets of a homogeneous group: existing partitions, of which no two members have the same.

    `loads` has the number of partitions of each member; `newcomer` joins behind them, without partitions. The members
    subscribe to `partition_count` partitions, of which those in `free` have no owner.
    """

    loads: MemberLoads
    newcomer: str | None
    free: Mapping[Uuid, Collection[int]]
    partition_count: int
    target: Callable[[str], Assignment]


class PartitionAssignor(Protocol):
    """Assigns each partition to at most one member that subscribes to its topic."""

    @property
    def name(self) -> str:
        """The name by which clients request this assignor."""

    def assign(self, group: AssignableGroup) -> Mapping[str, Assignment]:
        """Return the target of each member; a member without one gets no partitions. Raise AssignorFailed.

        The result must depend on the input alone.
        """


class IncrementalAssignor(ABC):
    """The base of an assignor that can return changed targets alone, which saves the work for all other members."""

    @abstractmethod
    def changes(self, former: FormerTargets) -> Mapping[str, Assignment]:
        """Return the targets by which `assign` would differ from the former ones, in the order of the group."""

"""Who votes: the immutable set of voters, and what it says in VotersRecord (KIP-853).

Which set is in force at which offset is `control_history.py`'s; who counts how is not known here.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker.quorum.identity import KRaftVersions, ListenerEndpoint, Listeners, ReplicaKey, SocketAddress
from broker.quorum.settings import StaticVoter
from protocol.messages.common_records import Endpoint as RecordEndpoint
from protocol.messages.common_records import KRaftVersionFeature, VotersRecord, VotersRecordVoter
from protocol.primitives import ZERO_UUID

STATIC_VERSIONS = KRaftVersions(0, 0)
"""What is known of a voter that only the configuration names."""


class VoterNode(NamedTuple):
    """A voter, its controller listeners (the default one first) and the kraft.version range that it supports."""

    key: ReplicaKey
    listeners: Listeners = ()
    versions: KRaftVersions = STATIC_VERSIONS

    def is_replica(self, replica: ReplicaKey) -> bool:
        """Whether a replica is this voter: an entry without a directory takes any, one with a directory only that."""
        return self.key.id == replica.id and self.key.directory_id in (ZERO_UUID, replica.directory_id)

    def endpoint(self, listener: str) -> SocketAddress | None:
        """Where it listens under a listener's name."""
        return next((own.endpoint for own in self.listeners if own.name == listener), None)


class VoterSet:
    """Voters by id, in the order of ids; at most one of each id. Immutable, hashable, compared by content.

    A set that differs from another by one voter cannot decide anything behind the other's back: each majority of one
    meets each majority of the other.
    """

    __slots__ = ("_by_id", "ids", "majority")

    def __init__(self, voters: Iterable[VoterNode] = ()) -> None:
        """Raises ValueError for an id that occurs twice."""
        members = sorted(voters, key=lambda voter: voter.key.id)
        self._by_id = {voter.key.id: voter for voter in members}
        if len(self._by_id) != len(members):
            raise ValueError(f"two voters share an id: {[voter.key.id for voter in members]}")
        self.ids: tuple[int, ...] = tuple(self._by_id)
        self.majority = len(members) // 2 + 1
        """How many voters decide; 1 for the empty set, so that nobody ever does."""

    @classmethod
    def of_static(cls, voters: Iterable[StaticVoter], listener: str) -> "VoterSet":
        """The voters of `controller.quorum.voters`, reached under the default controller listener."""
        return cls(
            VoterNode(ReplicaKey(voter.id), (ListenerEndpoint(listener, voter.endpoint.host, voter.endpoint.port),))
            for voter in voters
        )

    @classmethod
    def of_record(cls, record: VotersRecord) -> "VoterSet":
        """The set that a record establishes. Raises ValueError for an id that occurs twice."""
        return cls(_voter_of(voter) for voter in record.voters)

    def to_record(self) -> VotersRecord:
        """In the order of ids, so that equal sets make equal bytes."""
        return VotersRecord(voters=[_record_of(voter) for voter in self])

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, voter_id: object) -> bool:
        """Whether some voter has this id, whatever its directory."""
        return voter_id in self._by_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"VoterSet({list(self)!r})"

    @property
    def keys(self) -> frozenset[ReplicaKey]:
        return frozenset(voter.key for voter in self)

    def get(self, voter_id: int) -> VoterNode | None:
        """The voter with an id."""
        return self._by_id.get(voter_id)

    def has(self, replica: ReplicaKey) -> bool:
        """Whether a replica is one of the voters (`VoterNode.is_replica`)."""
        voter = self._by_id.get(replica.id)
        return voter is not None and voter.is_replica(replica)

    def is_only(self, replica: ReplicaKey) -> bool:
        """Whether a replica is the one voter there is."""
        return len(self) == 1 and self.has(replica)

    def endpoint(self, voter_id: int, listener: str) -> SocketAddress | None:
        """Where a voter listens; None for others, and for a listener that it has not."""
        voter = self._by_id.get(voter_id)
        return None if voter is None else voter.endpoint(listener)

    def support(self, version: int) -> bool:
        """Whether every voter can work at a kraft.version."""
        return all(version in voter.versions for voter in self)

    def with_voter(self, voter: VoterNode) -> "VoterSet":
        """One voter more. Raises ValueError if its id is taken."""
        return VoterSet((*self, voter))

    def without(self, key: ReplicaKey) -> "VoterSet":
        """One voter less, named exactly. Raises ValueError if it is none."""
        if key not in self.keys:
            raise ValueError(f"{key} is not a voter")
        return VoterSet(voter for voter in self if voter.key != key)

    def updated(self, voter: VoterNode) -> "VoterSet":
        """The same voters with another entry for the one that `voter` is. Raises ValueError if it is none."""
        if not self.has(voter.key):
            raise ValueError(f"{voter.key} is not a voter")
        return VoterSet(voter if own.key.id == voter.key.id else own for own in self)

    def differs_by_one(self, other: "VoterSet") -> bool:
        """Whether at most one voter came or went; entries may differ in all but their keys.

        Stricter than Kafka, which also lets one come and another go at once: {1,2,3} and {1,2,4} have the majorities
        {2,3} and {1,4}, which do not meet.
        """
        return len(self.keys ^ other.keys) <= 1


def _voter_of(record: VotersRecordVoter) -> VoterNode:
    versions = record.kraft_version_feature
    return VoterNode(
        ReplicaKey(record.voter_id, record.voter_directory_id),
        tuple(ListenerEndpoint(own.name, own.host, own.port) for own in record.endpoints),
        KRaftVersions(versions.min_supported_version, versions.max_supported_version),
    )


def _record_of(voter: VoterNode) -> VotersRecordVoter:
    return VotersRecordVoter(
        voter_id=voter.key.id,
        voter_directory_id=voter.key.directory_id,
        endpoints=[RecordEndpoint(name=own.name, host=own.host, port=own.port) for own in voter.listeners],
        kraft_version_feature=KRaftVersionFeature(
            min_supported_version=voter.versions.minimum, max_supported_version=voter.versions.maximum
        ),
    )

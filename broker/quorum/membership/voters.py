"""The immutable set of voters and its VotersRecord (KIP-853).

`control_history.py` tracks the set in force at each offset.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker.quorum.identity import KRaftVersions, ListenerEndpoint, Listeners, ReplicaKey, SocketAddress
from broker.quorum.settings import StaticVoter
from protocol.ids import BrokerId
from protocol.messages.common_records import Endpoint as RecordEndpoint
from protocol.messages.common_records import KRaftVersionFeature, VotersRecord, VotersRecordVoter
from protocol.primitives import ZERO_UUID

STATIC_VERSIONS = KRaftVersions(0, 0)
"""The assumed kraft.version range of a voter known only from the configuration."""


class VoterNode(NamedTuple):
    """A voter with its controller listeners (the default listener first) and supported kraft.version range."""

    key: ReplicaKey
    listeners: Listeners = ()
    versions: KRaftVersions = STATIC_VERSIONS

    def is_replica(self, replica: ReplicaKey) -> bool:
        """Whether the replica is this voter. An entry without a directory id matches any directory."""
        return self.key.id == replica.id and self.key.directory_id in (ZERO_UUID, replica.directory_id)

    def endpoint(self, listener: str) -> SocketAddress | None:
        """Return the address of the named listener, or None."""
        return next((own.endpoint for own in self.listeners if own.name == listener), None)


class VoterSet:
    """Voters by unique id, in the order of ids. Immutable, hashable, compared by content.

    Two sets that differ by one voter cannot decide independently: every majority of one set shares a voter with every
    majority of the other.
    """

    __slots__ = ("_by_id", "ids", "majority")

    def __init__(self, voters: Iterable[VoterNode] = ()) -> None:
        """Raise ValueError for a duplicate id."""
        members = sorted(voters, key=lambda voter: voter.key.id)
        self._by_id = {voter.key.id: voter for voter in members}
        if len(self._by_id) != len(members):
            raise ValueError(f"two voters share an id: {[voter.key.id for voter in members]}")
        self.ids: tuple[BrokerId, ...] = tuple(self._by_id)
        self.majority = len(members) // 2 + 1
        """The size of a majority; 1 for the empty set, so that it has no majority."""

    @classmethod
    def of_static(cls, voters: Iterable[StaticVoter], listener: str) -> "VoterSet":
        """Build the set of `controller.quorum.voters`, whose addresses are those of the default controller listener."""
        return cls(
            VoterNode(ReplicaKey(voter.id), (ListenerEndpoint(listener, voter.endpoint.host, voter.endpoint.port),))
            for voter in voters
        )

    @classmethod
    def of_record(cls, record: VotersRecord) -> "VoterSet":
        """Build the set of a record. Raise ValueError for a duplicate id."""
        return cls(_voter_of(voter) for voter in record.voters)

    def to_record(self) -> VotersRecord:
        """Return the record, with voters in the order of ids so that equal sets give equal bytes."""
        return VotersRecord(voters=[_record_of(voter) for voter in self])

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, voter_id: object) -> bool:
        """Whether a voter has this id, with any directory id."""
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

    def get(self, voter_id: BrokerId) -> VoterNode | None:
        """Return the voter with the id, or None."""
        return self._by_id.get(voter_id)

    def has(self, replica: ReplicaKey) -> bool:
        """Whether the replica is one of the voters (`VoterNode.is_replica`)."""
        voter = self._by_id.get(replica.id)
        return voter is not None and voter.is_replica(replica)

    def is_only(self, replica: ReplicaKey) -> bool:
        """Whether the replica is the only voter."""
        return len(self) == 1 and self.has(replica)

    def endpoint(self, voter_id: BrokerId, listener: str) -> SocketAddress | None:
        """Return the address of a voter's named listener; None for an unknown voter or listener."""
        voter = self._by_id.get(voter_id)
        return None if voter is None else voter.endpoint(listener)

    def address(self, voter_id: BrokerId, default_listener: str) -> SocketAddress | None:
        """Return the address for requests to a voter: its default listener, or else its first; None if unknown."""
        voter = self._by_id.get(voter_id)
        if voter is None or not voter.listeners:
            return None
        return voter.endpoint(default_listener) or voter.listeners[0].endpoint

    def listeners_of(self, voter_id: BrokerId) -> Listeners:
        """Return the listeners of a voter; empty if unknown."""
        voter = self._by_id.get(voter_id)
        return () if voter is None else voter.listeners

    def support(self, version: int) -> bool:
        """Whether every voter supports the kraft.version."""
        return all(version in voter.versions for voter in self)

    def with_voter(self, voter: VoterNode) -> "VoterSet":
        """Return the set with an added voter. Raise ValueError if its id is taken."""
        return VoterSet((*self, voter))

    def without(self, key: ReplicaKey) -> "VoterSet":
        """Return the set without the voter of this id and directory id. Raise ValueError if there is none."""
        if key not in self.keys:
            raise ValueError(f"{key} is not a voter")
        return VoterSet(voter for voter in self if voter.key != key)

    def updated(self, voter: VoterNode) -> "VoterSet":
        """Return the set with the entry of `voter` replaced. Raise ValueError if it is not a voter."""
        if not self.has(voter.key):
            raise ValueError(f"{voter.key} is not a voter")
        return VoterSet(voter if own.key.id == voter.key.id else own for own in self)

    def differs_by_one(self, other: "VoterSet") -> bool:
        """Whether the keys of the sets differ by at most one voter; other fields may differ.

        Stricter than Kafka, which also allows one addition and one removal at once: {1,2,3} and {1,2,4} have the
        disjoint majorities {2,3} and {1,4}.
        """
        return len(self.keys ^ other.keys) <= 1


def _voter_of(record: VotersRecordVoter) -> VoterNode:
    versions = record.kraft_version_feature
    return VoterNode(
        ReplicaKey(BrokerId(record.voter_id), record.voter_directory_id),
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

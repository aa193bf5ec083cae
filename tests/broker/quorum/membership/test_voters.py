"""The set of voters (KIP-853, `broker.quorum.membership.voters`)."""

from itertools import chain, combinations

import pytest

from broker.quorum.identity import KRaftVersions, ListenerEndpoint, ReplicaKey, SocketAddress
from broker.quorum.membership.voters import VoterNode, VoterSet
from protocol.compiler import decode, encode_bytes
from protocol.ids import BrokerId
from protocol.messages.common_records import VotersRecord
from protocol.primitives import Uuid
from tests.support.quorum_values import make_static_voter, replica_key


def directory(number: int) -> Uuid:
    return Uuid(bytes(15) + bytes([number]))


def key(voter_id: int, home: int | None = None) -> ReplicaKey:
    return replica_key(voter_id, directory(voter_id if home is None else home))


def voter(voter_id: int, home: int | None = None) -> VoterNode:
    listeners = (
        ListenerEndpoint("CONTROLLER", f"node{voter_id}", 9093),
        ListenerEndpoint("OTHER", f"node{voter_id}", 9094),
    )
    return VoterNode(key(voter_id, home), listeners, KRaftVersions(0, 1))


def voters(*ids: int) -> VoterSet:
    return VoterSet(map(voter, ids))


def test_voter_set_equals_its_record() -> None:
    for ids in [(), (1,), (3, 1, 2)]:
        record = voters(*ids).to_record()
        read, _ = decode(VotersRecord, encode_bytes(record, 0), 0)
        assert VoterSet.of_record(read) == voters(*ids)


def test_equal_voter_sets_encode_to_equal_bytes() -> None:
    assert encode_bytes(voters(3, 1, 2).to_record(), 0) == encode_bytes(voters(1, 2, 3).to_record(), 0)
    assert hash(voters(3, 1, 2)) == hash(voters(1, 2, 3))
    assert voters(1, 2) != voters(1, 2).updated(voter(2)._replace(listeners=()))


@pytest.mark.parametrize(("count", "majority"), [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority_is_more_than_half_of_the_voters(count: int, majority: int) -> None:
    assert voters(*range(count)).majority == majority


def test_voter_with_a_directory_matches_that_replica_only() -> None:
    one = voters(1)
    assert one.has(key(1))
    assert not one.has(key(1, home=7))
    assert not one.has(replica_key(1)), "a sender that names no directory may be on another disk"
    assert not one.has(key(2))


def test_static_voter_matches_any_replica_of_its_id() -> None:
    static = VoterSet.of_static(
        [make_static_voter(1, SocketAddress("a", 1)), make_static_voter(2, SocketAddress("b", 2))], "CONTROLLER"
    )
    assert static.has(key(1))
    assert static.has(replica_key(2))
    assert not static.has(key(3))
    assert static.endpoint(BrokerId(2), "CONTROLLER") == SocketAddress("b", 2)
    assert static.endpoint(BrokerId(2), "OTHER") is None
    assert static.endpoint(BrokerId(3), "CONTROLLER") is None
    assert not static.support(1)


def test_changes_return_new_voter_sets() -> None:
    three = voters(1, 2, 3)
    assert three.with_voter(voter(4)) == voters(1, 2, 3, 4)
    assert three.without(key(2)) == voters(1, 3)
    moved = voter(2)._replace(listeners=(ListenerEndpoint("CONTROLLER", "elsewhere", 1),))
    assert three.updated(moved).endpoint(BrokerId(2), "CONTROLLER") == SocketAddress("elsewhere", 1)
    assert three == voters(1, 2, 3), "unchanged itself"


def test_invalid_changes_raise_value_error() -> None:
    with pytest.raises(ValueError, match="share an id"):
        voters(1).with_voter(voter(1, home=9))
    with pytest.raises(ValueError, match="is not a voter"):
        voters(1).without(key(1, home=9))
    with pytest.raises(ValueError, match="is not a voter"):
        voters(1).updated(voter(2))


def test_update_sets_the_directory_of_a_static_entry() -> None:
    static = VoterSet.of_static([make_static_voter(1, SocketAddress("a", 1))], "CONTROLLER")
    assert static.updated(voter(1)) == voters(1)


def test_only_voter_check_requires_a_single_matching_voter() -> None:
    assert voters(1).is_only(key(1))
    assert not voters(1, 2).is_only(key(1))
    assert not voters(2).is_only(key(1))
    assert not voters().is_only(key(1))


def test_version_support_requires_all_voters() -> None:
    assert voters(1, 2).support(1)
    assert not voters(1, 2).updated(voter(2)._replace(versions=KRaftVersions(0, 0))).support(1)


def test_majorities_of_sets_that_differ_by_one_intersect() -> None:
    every = [VoterSet(map(voter, ids)) for ids in _subsets(range(5)) if ids]
    for one in every:
        for other in every:
            if one.differs_by_one(other):
                assert all(a & b for a in _majorities(one) for b in _majorities(other)), (one, other)


def test_replacing_a_voter_counts_as_two_differences() -> None:
    assert not voters(1, 2, 3).differs_by_one(voters(1, 2, 4))
    assert not voters(1, 2, 3).differs_by_one(VoterSet([voter(1), voter(2), voter(3, home=9)]))
    assert voters(1, 2, 3).differs_by_one(voters(1, 2, 3))


def _subsets(ids: range) -> list[tuple[int, ...]]:
    return list(chain.from_iterable(combinations(ids, size) for size in range(len(ids) + 1)))


def _majorities(voter_set: VoterSet) -> list[set[ReplicaKey]]:
    return [set(some) for some in combinations(sorted(voter_set.keys), voter_set.majority)]

"""The leader's view of other replicas (`broker.quorum.progress`)."""

from broker.quorum.identity import Instant, ReplicaKey
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.progress import Progress, ReplicaProgress
from protocol.ids import Offset
from protocol.primitives import ZERO_UUID, Uuid
from tests.support.quorum_values import replica_key

DISK, OTHER_DISK = Uuid(b"d" * 16), Uuid(b"e" * 16)


def key(node_id: int, directory: Uuid = DISK) -> ReplicaKey:
    return replica_key(node_id, directory)


def at(ms: int) -> Instant:
    return Instant(float(ms), 1_000_000 + ms)


def voters(*ids: int, directory: Uuid = DISK) -> VoterSet:
    return VoterSet(VoterNode(key(each, directory)) for each in ids)


def test_leader_counts_its_synced_end_offset() -> None:
    progress = Progress(key(1), voters(1, 2, 3), at(0))
    assert progress.agreed(Offset(10)) == -1
    progress.fetched(key(2), Offset(7), Offset(10), at(0))
    assert progress.agreed(Offset(10)) == 7
    assert progress.agreed(Offset(5)) == 5


def test_leader_that_is_not_a_voter_does_not_count() -> None:
    progress = Progress(key(1), voters(2, 3), at(0))
    progress.fetched(key(2), Offset(7), Offset(10), at(0))
    assert progress.agreed(Offset(10)) == -1
    progress.fetched(key(3), Offset(9), Offset(10), at(0))
    assert progress.agreed(Offset(10)) == 7


def test_voter_id_with_another_directory_is_an_observer() -> None:
    progress = Progress(key(1), voters(1, 2), at(0))
    assert not progress.fetched(key(2, OTHER_DISK), Offset(9), Offset(10), at(0))
    assert progress.agreed(Offset(10)) == -1
    assert [each.key for each in progress.observers()] == [key(2, OTHER_DISK)]


def test_static_voter_matches_any_directory() -> None:
    progress = Progress(key(1), voters(1, 2, directory=ZERO_UUID), at(0))
    assert progress.fetched(key(2, OTHER_DISK), Offset(9), Offset(10), at(0))
    assert progress.agreed(Offset(10)) == 9


def test_progress_is_kept_across_voter_changes() -> None:
    progress = Progress(key(1), voters(1, 2), at(0))
    progress.fetched(key(2), Offset(4), Offset(10), at(0))
    progress.fetched(key(3), Offset(8), Offset(10), at(0))
    progress.set_voters(voters(1, 3), at(0))
    assert progress.agreed(Offset(10)) == 8
    assert [(each.key, each.end_offset) for each in progress.observers()] == [(key(2), 4)]


def test_voter_may_return_with_a_lower_end_offset() -> None:
    progress = Progress(key(1), voters(1, 2), at(0))
    progress.fetched(key(2), Offset(9), Offset(10), at(0))
    progress.fetched(key(2), Offset(0), Offset(10), at(1))
    assert progress.agreed(Offset(10)) == 0


def test_contact_with_a_majority_restarts_the_count() -> None:
    progress = Progress(key(1), voters(1, 2, 3, 4, 5), at(0))
    assert not progress.in_contact(key(2))
    assert not progress.in_contact(key(2))
    assert progress.in_contact(key(3))
    assert not progress.in_contact(key(3))


def test_contact_needs_one_more_voter_if_the_leader_is_not_a_voter() -> None:
    progress = Progress(key(1), voters(2, 3), at(0))
    assert not progress.in_contact(key(2))
    assert progress.in_contact(key(3))


def test_observers_do_not_count_as_contact() -> None:
    assert not Progress(key(1), voters(1, 2), at(0)).in_contact(key(3))


def test_replica_is_caught_up_with_the_leaders_earlier_end() -> None:
    """A replica is caught up now if it has all records, or at its last fetch if it now has all records of that time."""
    replica = ReplicaProgress(key(2), 0.0)
    caught_up = []
    for offset, leader_end, moment in ((3, 10, at(0)), (10, 12, at(100)), (12, 12, at(200))):
        replica.fetched(Offset(offset), Offset(leader_end), moment)
        caught_up.append(replica.caught_up)
    assert caught_up == [None, at(0), at(200)]


def test_live_replicas_are_in_contact_within_the_session() -> None:
    progress = Progress(key(1), voters(1, 2, 3), at(0))
    progress.fetched(key(2), Offset(2), Offset(10), at(900))
    progress.fetched(key(3), Offset(3), Offset(10), at(0))
    progress.fetched(key(4), Offset(4), Offset(10), at(0))
    progress.on_snapshot_fetch(key(5), at(900))
    assert {each.key.id: each.end_offset for each in progress.live(500.0)} == {2: 2, 5: -1}
    progress.expire_observers(500.0)
    assert [each.key.id for each in progress.observers()] == [5]


def test_voter_that_is_not_heard_of_is_live_for_one_session() -> None:
    """A new leader does not cut off followers that it has not heard of yet, nor a new voter."""
    progress = Progress(key(1), voters(1, 2), at(400))
    progress.set_voters(voters(1, 2, 3), at(600))
    assert [each.key.id for each in progress.live(400.0)] == [2, 3]
    assert [each.key.id for each in progress.live(500.0)] == [3]


def test_upgrade_to_dynamic_voters_keeps_the_progress_of_each_directory() -> None:
    """The upgrade gives directory ids to static voters. Their former entries would hold back the log start offset."""
    progress = Progress(key(1), voters(1, 2, 3, directory=ZERO_UUID), at(0))
    progress.fetched(key(2), Offset(7), Offset(10), at(0))
    progress.fetched(key(3, OTHER_DISK), Offset(8), Offset(10), at(0))
    progress.set_voters(voters(1, 2, 3), at(1))
    assert [(each.key, each.end_offset) for each in progress.observers()] == [(key(3, OTHER_DISK), 8)]
    assert [(each.key, each.end_offset) for each in progress.voters()] == [(key(2), 7), (key(3), -1)]


def test_removed_voter_does_not_replace_its_successor() -> None:
    """A node that lost its disk is an observer already when its former entry is removed."""
    progress = Progress(key(1), voters(1, 2), at(0))
    progress.fetched(key(2), Offset(7), Offset(10), at(0))
    progress.fetched(key(2, OTHER_DISK), Offset(5), Offset(10), at(1))
    progress.set_voters(voters(1), at(2))
    assert [each.key for each in progress.observers()] == [key(2, OTHER_DISK)]


def test_number_of_tracked_observers_is_limited() -> None:
    """The observer with the oldest contact is forgotten."""
    progress = Progress(key(1), voters(1, 2), at(0), max_observers=2)
    for number, node_id in enumerate((4, 5, 4, 6)):
        progress.fetched(key(node_id), Offset(3), Offset(10), at(number))
    assert [each.key.id for each in progress.observers()] == [4, 6]


def test_observer_with_a_new_directory_replaces_the_former_one() -> None:
    """A replica with a lost disk must not become a voter or hold back the log start offset."""
    progress = Progress(key(1), voters(1), at(0))
    progress.fetched(key(4), Offset(10), Offset(10), at(0))
    progress.fetched(key(5), Offset(10), Offset(10), at(0))
    progress.fetched(key(4, OTHER_DISK), Offset(0), Offset(10), at(1))
    assert progress.of(key(4)) is None
    assert [each.key for each in progress.live(0)] == [key(5), key(4, OTHER_DISK)]


def test_successors_are_ordered_by_end_offset() -> None:
    progress = Progress(key(1), voters(1, 2, 3, 4), at(0))
    progress.fetched(key(4), Offset(9), Offset(10), at(0))
    progress.fetched(key(3), Offset(5), Offset(10), at(0))
    assert [each.id for each in progress.successors()] == [4, 3, 2]

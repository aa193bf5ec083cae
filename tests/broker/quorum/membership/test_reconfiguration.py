"""Voter changes on the leader (KIP-853, `broker.quorum.membership.reconfiguration`)."""

from dataclasses import dataclass, field
from math import inf
from random import Random

import pytest

from broker.quorum.identity import KRaftVersions, ListenerEndpoint, ReplicaKey, SocketAddress
from broker.quorum.membership.reconfiguration import Reconfiguration
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import (
    AddVoterRequest,
    ProbeResponse,
    RemoveVoterRequest,
    SendFailure,
)
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, Offset
from tests.broker.quorum.membership.test_voters import key, voter, voters
from tests.support.quorum_values import make_static_voter, make_update_voter_request, replica_key

TIMEOUT = 2000
LOG_START, LOG_END = Offset(0), Offset(10)
TOKEN = 7


@dataclass
class FakeLeader:
    """A leader, node 1 at kraft.version 1 with everything committed, that records appends."""

    voters: VoterSet = field(default_factory=lambda: voters(1, 2, 3))
    voters_offset: Offset | None = LOG_START
    kraft_version: int = 1
    committed: Offset = LOG_END
    end: Offset = LOG_END
    own: VoterNode = field(default_factory=lambda: voter(1))
    default_listener: str = "CONTROLLER"
    caught_up: set[ReplicaKey] = field(default_factory=lambda: {key(4), key(5)})
    namesakes: dict[ReplicaKey, ReplicaKey] = field(default_factory=dict)
    can_probe: bool = True
    probed: list[tuple[ReplicaKey, SocketAddress]] = field(default_factory=list)
    appended: list[VoterSet] = field(default_factory=list)
    answers: list[tuple[int, ErrorCode]] = field(default_factory=list)
    messages: list[str | None] = field(default_factory=list)

    def is_caught_up(self, replica: ReplicaKey) -> bool:
        return replica in self.caught_up

    def namesake(self, voter: ReplicaKey) -> ReplicaKey | None:
        return self.namesakes.get(voter)

    def probe(self, replica: ReplicaKey, endpoint: SocketAddress) -> bool:
        if self.can_probe:
            self.probed.append((replica, endpoint))
        return self.can_probe

    def append_voters(self, kraft_version: int | None, voters: VoterSet) -> Offset:
        self.end = Offset(self.end + (1 if kraft_version is None else 2))
        self.kraft_version = self.kraft_version if kraft_version is None else kraft_version
        self.voters, self.voters_offset = voters, Offset(self.end - 1)
        self.appended.append(voters)
        return Offset(self.end - 1)

    def respond(self, token: int, error: ErrorCode, message: str | None) -> None:
        self.answers.append((token, error))
        self.messages.append(message)


class ReconfigurationHarness:
    """A leader and its voter changes."""

    def __init__(self, leader: FakeLeader | None = None) -> None:
        self.leader = leader or FakeLeader()
        self.changes = Reconfiguration(self.leader, TIMEOUT)

    def add(self, new: VoterNode | None = None, *, ack_when_committed: bool = True, now: float = 0) -> None:
        new = new or voter(4)
        request = AddVoterRequest("cluster", new.key, new.listeners, ack_when_committed)
        self.changes.add(TOKEN, request, now)

    def remove(self, which: ReplicaKey, *, now: float = 0) -> None:
        self.changes.remove(TOKEN, RemoveVoterRequest("cluster", which), now)

    def update(self, which: VoterNode) -> None:
        self.changes.update(TOKEN, make_update_voter_request("cluster", 1, which.key, which.listeners, which.versions))

    def supports(self, low: int = 0, high: int = 1) -> None:
        self.changes.on_probe(BrokerId(4), ProbeResponse(ErrorCode.NONE, KRaftVersions(low, high)))

    def commit(self) -> None:
        self.leader.committed = self.leader.end
        self.changes.on_committed()

    @property
    def errors(self) -> list[ErrorCode]:
        return [error for _, error in self.leader.answers]

    @property
    def is_over(self) -> bool:
        return self.changes.deadline == inf and not self.changes.is_pending


def static_leader() -> FakeLeader:
    configured = [make_static_voter(node, SocketAddress(f"node{node}", 9093)) for node in (1, 2, 3)]
    return FakeLeader(VoterSet.of_static(configured, "CONTROLLER"), voters_offset=None, kraft_version=0)


# AddVoter


def test_add_voter_appends_after_the_probe_and_responds_after_the_commit() -> None:
    harness = ReconfigurationHarness()
    harness.add()
    assert harness.leader.probed == [(key(4), SocketAddress("node4", 9093))]
    assert harness.leader.appended == []
    harness.supports()
    assert harness.leader.voters == voters(1, 2, 3, 4)
    assert harness.errors == []
    harness.changes.on_committed()
    assert harness.errors == [], "the high watermark is not beyond the record"
    harness.commit()
    assert harness.leader.answers == [(TOKEN, ErrorCode.NONE)]
    assert harness.is_over


def test_voter_entry_contains_the_supported_versions() -> None:
    harness = ReconfigurationHarness()
    harness.add()
    harness.supports(1, 3)
    entry = harness.leader.voters.get(BrokerId(4))
    assert entry is not None
    assert entry.versions == KRaftVersions(1, 3)


def test_auto_join_gets_a_response_before_the_commit() -> None:
    """KIP-1186: the commit may need the node's own fetch, which waits behind the response."""
    harness = ReconfigurationHarness()
    harness.add(ack_when_committed=False)
    harness.supports()
    assert harness.errors == [ErrorCode.NONE]
    assert harness.is_over
    harness.remove(key(2))
    assert harness.errors[-1] is ErrorCode.REQUEST_TIMED_OUT, "the addition is not committed yet"


@pytest.mark.parametrize("home", [4, 9])
def test_add_voter_refuses_an_id_with_any_directory_twice(home: int) -> None:
    harness = ReconfigurationHarness(FakeLeader(voters(1, 2, 3, 4)))
    harness.add(voter(4, home))
    assert harness.errors == [ErrorCode.DUPLICATE_VOTER]
    assert harness.is_over


def test_add_voter_times_out_when_the_probe_cannot_be_sent() -> None:
    harness = ReconfigurationHarness(FakeLeader(can_probe=False))
    harness.add()
    assert harness.errors == [ErrorCode.REQUEST_TIMED_OUT]
    assert harness.is_over


@pytest.mark.parametrize(
    "outcome", [SendFailure(ErrorCode.BROKER_NOT_AVAILABLE), ProbeResponse(ErrorCode.UNSUPPORTED_VERSION)]
)
def test_add_voter_times_out_when_the_probe_fails(outcome: SendFailure | ProbeResponse) -> None:
    harness = ReconfigurationHarness()
    harness.add()
    harness.changes.on_probe(BrokerId(4), outcome)
    assert harness.errors == [ErrorCode.REQUEST_TIMED_OUT]
    assert harness.is_over


def test_add_voter_refuses_a_replica_without_the_kraft_version() -> None:
    harness = ReconfigurationHarness()
    harness.add()
    harness.supports(0, 0)
    assert harness.errors == [ErrorCode.INVALID_REQUEST]
    assert harness.leader.appended == []


def test_add_voter_times_out_for_a_replica_that_lags() -> None:
    """The same id with another directory id is another replica."""
    harness = ReconfigurationHarness(FakeLeader(caught_up={key(4, home=9)}))
    harness.add()
    harness.supports()
    assert harness.errors == [ErrorCode.REQUEST_TIMED_OUT]
    assert harness.leader.appended == []
    assert harness.is_over


def test_responses_to_older_probes_are_ignored() -> None:
    harness = ReconfigurationHarness()
    harness.supports()
    harness.add()
    harness.changes.tick(TIMEOUT)
    harness.supports()
    harness.add(voter(5))
    harness.supports()
    assert harness.leader.appended == []
    harness.changes.on_probe(BrokerId(5), ProbeResponse(ErrorCode.NONE, KRaftVersions(0, 1)))
    harness.changes.on_probe(BrokerId(5), ProbeResponse(ErrorCode.NONE, KRaftVersions(0, 1)))
    assert harness.leader.appended == [voters(1, 2, 3, 5)]


@pytest.mark.parametrize("is_probed", [False, True])
def test_change_times_out_before_its_record_is_committed(is_probed: bool) -> None:
    harness = ReconfigurationHarness()
    harness.add(now=100)
    if is_probed:
        harness.supports()
    assert harness.changes.deadline == 100 + TIMEOUT
    harness.changes.tick(100 + TIMEOUT - 1)
    assert harness.errors == []
    harness.changes.tick(100 + TIMEOUT)
    assert harness.errors == [ErrorCode.REQUEST_TIMED_OUT]
    harness.commit()
    assert len(harness.errors) == 1
    assert harness.is_over


# RemoveVoter


def test_remove_voter_responds_after_the_commit() -> None:
    harness = ReconfigurationHarness()
    harness.remove(key(3))
    assert harness.leader.voters == voters(1, 2)
    assert harness.errors == []
    harness.commit()
    assert harness.errors == [ErrorCode.NONE]
    assert not harness.changes.has_removed_leader


@pytest.mark.parametrize("which", [key(9), key(3, home=9)])
def test_remove_voter_requires_the_exact_replica_key(which: ReplicaKey) -> None:
    harness = ReconfigurationHarness()
    harness.remove(which)
    assert harness.errors == [ErrorCode.VOTER_NOT_FOUND]
    assert harness.is_over


def test_voter_is_not_removed_while_another_node_has_its_id() -> None:
    harness = ReconfigurationHarness()
    harness.leader.namesakes[key(3)] = key(3, 2)
    harness.remove(key(3))
    assert (harness.errors, harness.leader.appended) == ([ErrorCode.INVALID_REQUEST], [])
    harness.leader.namesakes.clear()
    harness.remove(key(3))
    assert harness.leader.voters == voters(1, 2)


def test_last_voter_cannot_be_removed() -> None:
    harness = ReconfigurationHarness(FakeLeader(voters(1)))
    harness.remove(key(1))
    assert harness.errors == [ErrorCode.VOTER_NOT_FOUND]


def test_removed_leader_resigns_after_the_commit() -> None:
    harness = ReconfigurationHarness()
    harness.remove(key(1))
    assert harness.leader.voters == voters(2, 3)
    assert not harness.changes.has_removed_leader
    harness.changes.tick(TIMEOUT)
    harness.commit()
    assert harness.changes.has_removed_leader, "independent of a waiting request"


# UpdateVoter


def test_update_voter_responds_before_the_commit() -> None:
    harness = ReconfigurationHarness()
    moved = voter(2)._replace(listeners=(ListenerEndpoint("CONTROLLER", "elsewhere", 1),))
    harness.update(moved)
    assert harness.leader.voters == voters(1, 2, 3).updated(moved)
    assert harness.errors == [ErrorCode.NONE]
    assert harness.is_over


def test_update_voter_appends_nothing_for_an_equal_entry() -> None:
    harness = ReconfigurationHarness()
    harness.update(voter(2))
    assert harness.errors == [ErrorCode.NONE]
    assert harness.leader.appended == []


@pytest.mark.parametrize("which", [voter(9), voter(2, home=9)])
def test_update_voter_refuses_an_observer(which: VoterNode) -> None:
    harness = ReconfigurationHarness()
    harness.update(which)
    assert harness.errors == [ErrorCode.VOTER_NOT_FOUND]


@pytest.mark.parametrize("versions", [(-1, 1), (2, 1), (0, 0), (2, 3)])
def test_update_voter_refuses_invalid_and_insufficient_version_ranges(versions: tuple[int, int]) -> None:
    harness = ReconfigurationHarness()
    harness.update(voter(2)._replace(versions=KRaftVersions(*versions)))
    assert harness.errors == [ErrorCode.INVALID_REQUEST]
    assert harness.leader.appended == []


# Checks of every change


def test_changes_require_id_and_directory_id() -> None:
    for bad in (replica_key(-1, key(4).directory_id), replica_key(4)):
        harness = ReconfigurationHarness()
        harness.add(voter(4)._replace(key=bad))
        harness.remove(bad)
        harness.update(voter(4)._replace(key=bad))
        assert harness.errors == [ErrorCode.INVALID_REQUEST] * 3


def test_changes_require_the_default_listener() -> None:
    harness = ReconfigurationHarness()
    elsewhere = (ListenerEndpoint("OTHER", "node4", 9094),)
    harness.add(voter(4)._replace(listeners=elsewhere))
    harness.update(voter(2)._replace(listeners=elsewhere))
    assert harness.errors == [ErrorCode.INVALID_REQUEST] * 2


def every_change(harness: ReconfigurationHarness) -> None:
    harness.add(voter(5))
    harness.remove(key(2))
    harness.update(voter(2)._replace(listeners=(ListenerEndpoint("CONTROLLER", "elsewhere", 1),)))
    harness.changes.upgrade(TOKEN, 1, 0)


def test_second_change_times_out_while_one_is_pending() -> None:
    harness = ReconfigurationHarness()
    harness.add()
    every_change(harness)
    assert harness.errors == [*[ErrorCode.REQUEST_TIMED_OUT] * 3, ErrorCode.NONE]
    assert harness.leader.appended == []


def test_changes_wait_for_a_commit_in_the_leaders_epoch() -> None:
    """Without this commit two leaders could change different voters of the same set (Ongaro, 2015)."""
    harness = ReconfigurationHarness(FakeLeader(committed=Offset(-1)))
    every_change(harness)
    assert harness.errors == [*[ErrorCode.REQUEST_TIMED_OUT] * 3, ErrorCode.NONE]
    assert harness.leader.appended == []


@pytest.mark.parametrize("uncommitted", [10, 11])
def test_changes_wait_for_the_commit_of_the_last_change(uncommitted: int) -> None:
    harness = ReconfigurationHarness(FakeLeader(voters_offset=Offset(uncommitted)))
    every_change(harness)
    assert harness.errors == [*[ErrorCode.REQUEST_TIMED_OUT] * 3, ErrorCode.NONE]
    assert harness.leader.appended == []


def test_static_voters_cannot_change() -> None:
    harness = ReconfigurationHarness(static_leader())
    harness.add()
    harness.remove(key(2))
    assert harness.errors == [ErrorCode.UNSUPPORTED_VERSION] * 2


def test_pending_change_fails_when_the_leadership_ends() -> None:
    harness = ReconfigurationHarness()
    harness.add()
    harness.changes.abandon()
    harness.changes.abandon()
    assert harness.errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    harness.supports()
    assert harness.leader.appended == []


# Upgrade to version 1


def test_upgrade_succeeds_after_all_voters_sent_updates() -> None:
    harness = ReconfigurationHarness(static_leader())
    harness.update(voter(2))
    harness.changes.upgrade(TOKEN, 1, 0)
    assert harness.errors == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert "[3]" in (harness.leader.messages[-1] or "")
    harness.update(voter(3))
    assert harness.leader.appended == []
    harness.changes.upgrade(TOKEN, 1, 0)
    assert (harness.leader.voters, harness.leader.kraft_version) == (voters(1, 2, 3), 1)
    assert len(harness.errors) == 3
    harness.commit()
    assert harness.errors[-1] is ErrorCode.NONE
    assert len(harness.errors) == 4


def test_upgrade_refuses_while_a_voter_lacks_the_version() -> None:
    harness = ReconfigurationHarness(static_leader())
    harness.update(voter(2))
    harness.update(voter(3)._replace(versions=KRaftVersions(0, 0)))
    harness.changes.upgrade(TOKEN, 1, 0)
    assert harness.errors[-1] is ErrorCode.INVALID_UPDATE_VERSION


def test_upgrade_refuses_lower_and_unknown_versions() -> None:
    harness = ReconfigurationHarness()
    for version in (0, 1, 2):
        harness.changes.upgrade(TOKEN, version, 0)
    assert harness.errors == [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert harness.leader.appended == []


def test_upgrade_responds_after_the_commit_or_the_timeout() -> None:
    harness = ReconfigurationHarness(static_leader())
    harness.leader.committed = Offset(-1)
    harness.changes.upgrade(TOKEN, 1, 0)
    assert harness.errors == [ErrorCode.REQUEST_TIMED_OUT]
    harness = ReconfigurationHarness(static_leader())
    harness.update(voter(2))
    harness.update(voter(3))
    harness.changes.upgrade(TOKEN, 1, 0)
    harness.changes.tick(TIMEOUT)
    assert harness.errors[-1] is ErrorCode.REQUEST_TIMED_OUT


# Random changes


@pytest.mark.parametrize("seed", range(100))
def test_at_most_one_change_is_uncommitted_and_each_request_gets_one_response(seed: int) -> None:
    random, harness = Random(seed), ReconfigurationHarness()
    leader, requested, now = harness.leader, 0, 0.0
    for _ in range(200):
        now += random.randrange(500)
        before, count = leader.voters, len(leader.appended)
        was_free = leader.voters_offset is None or leader.voters_offset < leader.committed
        node = random.randrange(1, 7)
        leader.caught_up = {key(each) for each in range(1, 7) if random.random() < 0.7}
        match random.randrange(7):
            case 0:
                requested += 1
                harness.add(voter(node), ack_when_committed=random.random() < 0.5, now=now)
            case 1:
                requested += 1
                harness.remove(key(node), now=now)
            case 2:
                requested += 1
                harness.update(voter(node)._replace(versions=KRaftVersions(0, random.choice([1, 2]))))
            case 3:
                harness.changes.on_probe(
                    BrokerId(node), ProbeResponse(ErrorCode.NONE, KRaftVersions(0, random.choice([0, 1])))
                )
            case 4:
                leader.committed = Offset(random.randint(leader.committed, leader.end))
                harness.changes.on_committed()
            case 5:
                harness.changes.tick(now)
            case 6:
                leader.end = Offset(leader.end + 1)
        assert len(leader.appended) - count <= 1
        assert len(leader.appended) == count or was_free
        assert before.differs_by_one(leader.voters)
        assert len(leader.voters) >= 1
    harness.changes.abandon()
    assert len(leader.answers) == requested

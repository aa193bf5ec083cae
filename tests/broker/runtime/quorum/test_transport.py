"""Quorum requests on connections to other nodes, with all possible outcomes."""

import pytest

from broker.logs import fields_of
from broker.net.peer import Done, PeerError, PeerTimedOut, PeerUnavailable, Versioned, VersionMismatch
from broker.quorum import messages as core
from broker.quorum.identity import ListenerEndpoint, SocketAddress
from broker.quorum.messages import LeaderHint, Response, SendFailure
from broker.quorum.wire import elections, membership, replication
from broker.runtime.quorum.transport import NetworkTransport
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import vote as vote_messages
from tests.support.quorum_values import (
    log_position,
    make_fetch_request,
    make_fetch_snapshot_request,
    make_leader_hint,
    make_snapshot_id,
    make_vote_request,
    replica_key,
)

NODE = SocketAddress("other", 9093)
VOTE = make_vote_request("cluster", 5, replica_key(1), None, log_position(4, 99))
FETCH = make_fetch_request("cluster", replica_key(1), 5, 99, 4)
PAGE = make_fetch_snapshot_request("cluster", replica_key(1), 5, make_snapshot_id(10, 4), 0)


class Wires:
    """Connections that record sent requests."""

    def __init__(self) -> None:
        self.sent: list[tuple[SocketAddress, Versioned, float, tuple[int, int]]] = []
        self.done: list[Done] = []
        self.is_closed = False

    def send(
        self, endpoint: SocketAddress, request: Versioned, done: Done, *, timeout_ms: float, versions: tuple[int, int]
    ) -> None:
        self.sent.append((endpoint, request, timeout_ms, versions))
        self.done.append(done)

    def close(self) -> None:
        self.is_closed = True


class NetworkTransportHarness:
    def __init__(self) -> None:
        self.fetches, self.others = Wires(), Wires()
        self.transport = NetworkTransport(self.fetches, self.others, listener="CONTROLLER")
        self.outcomes: list[Response | SendFailure] = []

    def send(self, request: core.Request) -> None:
        self.transport.send(2, NODE, request, 2_000, self.outcomes.append)


def test_fetches_use_separate_connections() -> None:
    harness = NetworkTransportHarness()
    for request in (VOTE, FETCH, PAGE, core.ProbeRequest()):
        harness.send(request)
    assert [request.key for _, request, _, _ in harness.fetches.sent] == [ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT]
    assert [request.key for _, request, _, _ in harness.others.sent] == [ApiKey.VOTE, ApiKey.API_VERSIONS]
    assert {(to, timeout) for to, _, timeout, _ in harness.others.sent} == {(NODE, 2_000)}


def test_versions_without_the_requests_fields_are_excluded() -> None:
    harness = NetworkTransportHarness()
    harness.send(FETCH)
    harness.send(make_vote_request("cluster", 5, replica_key(1), None, log_position(4, 99), pre_vote=True))
    assert [harness.fetches.sent[0][3], harness.others.sent[0][3]] == [(12, 18), (2, 2)]


def test_response_names_the_leader_under_the_requested_listener() -> None:
    harness = NetworkTransportHarness()
    harness.send(VOTE)
    hint = make_leader_hint(3, 6, (ListenerEndpoint("THEIRS", "h", 1),))
    answer = elections.encode_vote_response(core.VoteResponse(ErrorCode.NONE, hint, granted=True), "THEIRS")
    harness.others.done[0](answer)
    known = make_leader_hint(3, 6, (ListenerEndpoint("CONTROLLER", "h", 1),))
    assert harness.outcomes == [core.VoteResponse(ErrorCode.NONE, known, granted=True)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PeerUnavailable("unavailable"), ErrorCode.BROKER_NOT_AVAILABLE),
        (PeerTimedOut("late"), ErrorCode.BROKER_NOT_AVAILABLE),
        (VersionMismatch("old"), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_connection_errors_are_send_failures(error: PeerError, expected: ErrorCode) -> None:
    harness = NetworkTransportHarness()
    harness.send(VOTE)
    harness.others.done[0](error)
    assert harness.outcomes == [SendFailure(expected)]


def test_malformed_response_is_a_send_failure() -> None:
    harness = NetworkTransportHarness()
    harness.send(VOTE)
    harness.others.done[0](vote_messages.VoteResponse())
    assert harness.outcomes == [SendFailure(ErrorCode.BROKER_NOT_AVAILABLE)]


def test_permanent_refusal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The error of two nodes that were formatted for different clusters."""
    harness = NetworkTransportHarness()
    refused = core.VoteResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, LeaderHint())
    granted = core.VoteResponse(ErrorCode.NONE, LeaderHint(), granted=True)
    for answer in (refused, refused, granted, refused):
        harness.send(VOTE)
        harness.others.done[-1](elections.encode_vote_response(answer, "CONTROLLER"))
    assert harness.outcomes == [refused, refused, granted, refused]
    assert [record.message for record in caplog.records] == ["A node refuses requests of this node"] * 2


def test_refused_voter_change_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    harness = NetworkTransportHarness()
    harness.send(core.RemoveVoterRequest("cluster", replica_key(4)))
    refused = core.ChangeVotersResponse(ErrorCode.INVALID_REQUEST, LeaderHint(), "Two running nodes have the id 4.")
    harness.others.done[-1](membership.encode_remove_response(refused))
    assert dict(fields_of(caplog.records[0]))["reason"] == "Two running nodes have the id 4."


def test_transient_refusal_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    harness = NetworkTransportHarness()
    harness.send(FETCH)
    answer = core.FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, LeaderHint())
    harness.fetches.done[0](replication.encode_fetch_response(answer, "CONTROLLER"))
    assert not caplog.records


def test_close_closes_the_connections() -> None:
    harness = NetworkTransportHarness()
    harness.transport.close()
    assert (harness.fetches.is_closed, harness.others.is_closed) == (True, True)

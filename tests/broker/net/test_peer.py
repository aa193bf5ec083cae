"""Requests to other nodes: order, timeouts, and outcomes when the other node misbehaves."""

import asyncio
import struct
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from broker.net.limits import NetLimits
from broker.net.listening import ListenAddress
from broker.net.peer import (
    NetworkClient,
    PeerRefused,
    PeerTimedOut,
    PeerUnavailable,
    SocketAddress,
    TcpConnect,
    Versioned,
    VersionMismatch,
)
from broker.net.peer_connection import Ending
from broker.net.request import CloseConnection, EncodedResponse, Request
from broker.net.server import Server
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.headers import encode_response
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.messages.vote import VoteRequest
from tests.broker.net.peer_harness import NODE, OTHER, NetworkClientHarness, served
from tests.support.fakes.clock import ManualClock

BEAT = {"BROKER_HEARTBEAT": (0, 1)}


def beat(broker_id: int = 1) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(broker_id=broker_id)


def test_versions_are_requested_once_per_connection() -> None:
    harness = NetworkClientHarness()
    harness.send(beat(1))
    harness.send(beat(2))
    harness.last.accept()
    header, request = harness.last.take()
    assert (header.api_version, header.client_id) == (4, "raft-client-1")
    assert request == ApiVersionsRequest("ottla", "0.1.0")
    assert len(harness.last.requests) == 1, "no request is sent before the version negotiation"
    harness.last.answer(header, served(BROKER_HEARTBEAT=(0, 0)))
    (first, one), (second, two) = harness.last.take(), harness.last.take()
    assert [one, two] == [beat(1), beat(2)]
    assert (first.api_version, second.api_version) == (0, 0)
    harness.last.answer(first, BrokerHeartbeatResponse(is_caught_up=True))
    harness.last.answer(second, BrokerHeartbeatResponse(is_fenced=False))
    assert harness.take_outcomes() == [
        BrokerHeartbeatResponse(is_caught_up=True),
        BrokerHeartbeatResponse(is_fenced=False),
    ]
    assert len(harness.attempts) == 1


def test_served_versions_are_known_while_connected() -> None:
    harness = NetworkClientHarness()
    assert harness.peers.versions(NODE) is None
    harness.send(beat())
    assert harness.peers.versions(NODE) is None
    harness.last.agree(**BEAT)
    assert harness.peers.versions(NODE) == {ApiKey.API_VERSIONS: (0, 4), ApiKey.BROKER_HEARTBEAT: (0, 1)}
    harness.last.protocol.connection_lost(None)
    assert harness.peers.versions(NODE) is None


def test_api_versions_is_retried_in_the_nodes_version() -> None:
    harness = NetworkClientHarness()
    harness.send(beat())
    harness.last.accept()
    header, _ = harness.last.take()
    refusal = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(ApiKey.API_VERSIONS, 0, 2)])
    harness.last.answer(header._replace(api_version=0), refusal)
    header, _ = harness.last.take()
    assert header.api_version == 2
    harness.last.answer(header, served(**BEAT))
    assert harness.last.take()[1] == beat()


@pytest.mark.parametrize(
    ("theirs", "wanted", "sent"), [((0, 1), None, 1), ((0, 0), None, 0), ((0, 2), (0, 1), 1), ((1, 2), (0, 1), 1)]
)
def test_highest_common_version_is_sent(theirs: tuple[int, int], wanted: tuple[int, int] | None, sent: int) -> None:
    harness = NetworkClientHarness()
    built: list[int] = []

    def build(version: int) -> VoteRequest:
        built.append(version)
        return VoteRequest()

    harness.send(Versioned(ApiKey.VOTE, build), versions=wanted)
    harness.last.agree(VOTE=theirs)
    assert harness.last.take()[0].api_version == sent
    assert built == [sent]


def test_missing_common_version_sends_nothing_and_keeps_the_connection() -> None:
    harness = NetworkClientHarness()
    harness.send(VoteRequest(), versions=(2, 2))
    harness.send(beat())
    harness.last.agree(VOTE=(0, 1))
    assert harness.outcomes == [], "outcomes arrive in a later loop iteration"
    too_old, unknown = harness.take_outcomes()
    assert isinstance(too_old, VersionMismatch)
    assert str(too_old) == "node:9093: VOTE is served there in versions 0 to 1, wanted are 2 to 2"
    assert isinstance(unknown, VersionMismatch)
    assert len(harness.last.requests) == 1
    assert not harness.last.transport.is_aborted


def test_request_that_a_version_cannot_express_is_a_mismatch() -> None:
    harness = NetworkClientHarness()
    harness.send(BrokerHeartbeatRequest(broker_id=2**40))
    harness.last.agree(**BEAT)
    (outcome,) = harness.take_outcomes()
    assert isinstance(outcome, VersionMismatch)


def test_unreachable_node_fails_waiting_requests_and_is_retried_later() -> None:
    harness = NetworkClientHarness()
    harness.send(beat(1))
    harness.send(beat(2))
    harness.last.fail(Ending("cannot be reached (refused)", is_refusal=True))
    first, second = harness.take_outcomes()
    assert isinstance(first, PeerRefused)
    assert str(second) == "node:9093 cannot be reached (refused)"
    harness.run(1_000)
    assert len(harness.attempts) == 1, "no second connection attempt without requests"


def test_back_off_doubles_from_50_to_500_ms_and_resets_after_success() -> None:
    harness = NetworkClientHarness()
    harness.send(beat(), timeout_ms=60_000)
    for expected_ms in (50, 100, 200, 400, 500, 500):
        harness.last.fail(Ending("refused", is_refusal=True))
        assert_tried_again_after(harness, expected_ms)
    harness.last.agree(**BEAT)
    harness.last.protocol.connection_lost(None)
    assert_tried_again_after(harness, 50)


def assert_tried_again_after(harness: NetworkClientHarness, expected_ms: int) -> None:
    attempts = len(harness.attempts)
    harness.send(beat(), timeout_ms=60_000)
    harness.run(expected_ms - 1)
    assert len(harness.attempts) == attempts
    harness.run(1.01)
    assert len(harness.attempts) == attempts + 1


@pytest.mark.parametrize(("spread", "expected_ms"), [(0.0, 40), (1.0, 60)])
def test_back_off_has_jitter(spread: float, expected_ms: int) -> None:
    harness = NetworkClientHarness(spread)
    harness.send(beat())
    harness.last.fail(Ending("refused", is_refusal=True))
    assert_tried_again_after(harness, expected_ms)


def test_connection_attempt_times_out() -> None:
    harness = NetworkClientHarness(connect_timeout_ms=300)
    harness.send(beat())
    harness.run(301)
    (outcome,) = harness.take_outcomes()
    assert isinstance(outcome, PeerUnavailable)
    assert harness.last.is_cancelled
    harness.last.accept()
    assert harness.last.transport.is_aborted, "the response is late"


def test_negotiation_of_versions_times_out() -> None:
    harness = NetworkClientHarness(connect_timeout_ms=300)
    harness.send(beat())
    harness.last.accept()
    harness.run(301)
    assert isinstance(harness.take_outcomes()[0], PeerUnavailable)
    assert harness.last.transport.is_aborted


def test_missing_response_ends_the_connection_and_its_requests() -> None:
    harness = NetworkClientHarness()
    harness.send(beat(1), timeout_ms=100)
    harness.send(beat(2), timeout_ms=5_000)
    harness.last.agree(**BEAT)
    harness.run(101)
    late, behind = harness.take_outcomes()
    assert isinstance(late, PeerTimedOut)
    assert str(late) == "node:9093 did not answer BROKER_HEARTBEAT within 100 ms"
    assert isinstance(behind, PeerUnavailable)
    assert harness.last.transport.is_aborted


def test_unsent_requests_survive_a_lost_connection() -> None:
    harness = NetworkClientHarness(max_in_flight=1)
    harness.send(beat(1))
    harness.send(beat(2))
    harness.last.agree(**BEAT)
    harness.last.protocol.connection_lost(ConnectionResetError("reset"))
    (sent,) = harness.take_outcomes()
    assert str(sent) == "node:9093 broke the connection (reset)"
    harness.run(51)
    harness.last.agree(**BEAT)
    assert harness.last.take()[1] == beat(2)


def test_waiting_request_times_out_without_ending_the_connection() -> None:
    harness = NetworkClientHarness(max_in_flight=1)
    harness.send(beat(1), timeout_ms=1_000)
    harness.send(beat(2), timeout_ms=100)
    harness.last.agree(**BEAT)
    harness.run(101)
    assert isinstance(harness.take_outcomes()[0], PeerTimedOut)
    header, _ = harness.last.take()
    harness.last.answer(header, BrokerHeartbeatResponse())
    assert harness.take_outcomes() == [BrokerHeartbeatResponse()]
    assert len(harness.last.requests) == 2, "requests that timed out are not sent"


def test_requests_in_flight_are_limited() -> None:
    harness = NetworkClientHarness(max_in_flight=2)
    for number in range(4):
        harness.send(beat(number))
    harness.last.agree(**BEAT)
    assert len(harness.last.requests) == 3
    header, _ = harness.last.take()
    harness.last.answer(header, BrokerHeartbeatResponse())
    assert len(harness.last.requests) == 4


def test_waiting_requests_are_limited() -> None:
    harness = NetworkClientHarness(max_waiting=1)
    harness.send(beat(1))
    harness.send(beat(2))
    (outcome,) = harness.take_outcomes()
    assert isinstance(outcome, PeerUnavailable)
    assert "too many" in str(outcome)


def test_node_that_does_not_read_is_sent_no_more() -> None:
    harness = NetworkClientHarness()
    harness.send(beat(1))
    harness.last.agree(**BEAT)
    harness.last.protocol.pause_writing()
    harness.send(beat(2))
    assert len(harness.last.requests) == 2
    harness.last.protocol.resume_writing()
    assert len(harness.last.requests) == 3


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -5),
        struct.pack(">ii", 4, 2),
        struct.pack(">iibh", 7, 99, 0, 0),
        b"HTTP/1.1 400 Bad Request\r\n",
        struct.pack(">i", 0),
    ],
    ids=["huge", "negative", "cut short", "wrong correlation id", "not Kafka", "empty"],
)
@pytest.mark.parametrize("agreed", [False, True], ids=["versions", "answer"])
def test_malformed_response_ends_the_connection(garbage: bytes, agreed: bool, caplog: pytest.LogCaptureFixture) -> None:
    harness = NetworkClientHarness()
    harness.send(beat())
    if agreed:
        harness.last.agree(**BEAT)
    else:
        harness.last.accept()
    harness.last.send(garbage)
    (outcome,) = harness.take_outcomes()
    assert isinstance(outcome, PeerUnavailable)
    assert harness.last.transport.is_aborted
    assert "node violated the protocol" in caplog.text


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.booleans())
def test_every_request_has_one_outcome_whatever_a_node_sends(chunks: list[bytes], agreed: bool) -> None:
    harness = NetworkClientHarness()
    harness.send(beat(1))
    harness.send(beat(2))
    if agreed:
        harness.last.agree(**BEAT)
    else:
        harness.last.accept()
    for chunk in chunks:
        if not harness.last.transport.is_aborted:
            harness.last.send(chunk)
    harness.run(5_000)
    assert len(harness.take_outcomes()) == 2
    assert harness.loop.live_timers <= 1, "at most the request before the silence"


def test_response_without_request_ends_the_connection() -> None:
    harness = NetworkClientHarness()
    harness.send(beat())
    harness.last.agree(**BEAT)
    header, _ = harness.last.take()
    harness.last.answer(header, BrokerHeartbeatResponse())
    harness.last.answer(header, BrokerHeartbeatResponse())
    assert harness.take_outcomes() == [BrokerHeartbeatResponse()]
    assert harness.last.transport.is_aborted


def test_error_in_api_versions_ends_the_connection() -> None:
    harness = NetworkClientHarness()
    harness.send(beat())
    harness.last.accept()
    header, _ = harness.last.take()
    harness.last.answer(header, ApiVersionsResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert isinstance(harness.take_outcomes()[0], PeerUnavailable)


def test_idle_connection_is_closed_and_forgotten() -> None:
    harness = NetworkClientHarness(max_idle_ms=1_000)
    harness.send(beat())
    harness.last.agree(**BEAT)
    harness.run(900)
    header, _ = harness.last.take()
    harness.last.answer(header, BrokerHeartbeatResponse())
    harness.run(900)
    assert [bool(harness.peers.endpoints), harness.last.transport.is_aborted] == [True, False]
    harness.run(200)
    assert [bool(harness.peers.endpoints), harness.last.transport.is_aborted] == [False, True]
    assert harness.loop.live_timers == 0
    harness.send(beat())
    assert len(harness.attempts) == 2, "the next connection has no back-off"


def test_nodes_do_not_wait_for_one_another() -> None:
    harness = NetworkClientHarness()
    harness.send(beat(1))
    harness.send(beat(2), to=OTHER)
    harness.last.agree(**BEAT)
    header, _ = harness.last.take()
    harness.last.answer(header, BrokerHeartbeatResponse())
    assert harness.take_outcomes() == [BrokerHeartbeatResponse()]


def test_dropped_node_fails_its_requests_and_can_be_contacted_again() -> None:
    harness = NetworkClientHarness()
    harness.send(beat(1))
    harness.last.agree(**BEAT)
    harness.peers.drop(OTHER)
    assert harness.take_outcomes() == []
    harness.peers.drop(NODE)
    assert isinstance(harness.take_outcomes()[0], PeerUnavailable)
    assert harness.last.transport.is_aborted
    harness.send(beat(2))
    harness.last.agree(**BEAT)
    assert harness.last.take()[1] == beat(2)


def test_closed_client_fails_all_requests() -> None:
    harness = NetworkClientHarness(max_in_flight=1)
    harness.send(beat(1))
    harness.send(beat(2))
    harness.last.agree(**BEAT)
    harness.send(beat(3), to=OTHER)
    harness.peers.close()
    harness.send(beat(4))
    assert [type(outcome) for outcome in harness.take_outcomes()] == [PeerUnavailable] * 4
    assert all(attempt.transport.is_aborted or attempt.is_cancelled for attempt in harness.attempts)
    assert harness.loop.live_timers == 0


# Real sockets.


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a test's coroutine on one of the loops."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


class Node:
    """A server that answers ApiVersions and Envelope."""

    def __init__(self) -> None:
        self.envelopes: list[int] = []
        self.server = Server(
            lambda _connection: self._dispatch,
            NetLimits(),
            [ListenAddress("CONTROLLER", "127.0.0.1", 0)],
            clock=ManualClock(),
        )
        self.server.open()
        self.server.start()
        self.endpoint = SocketAddress(*self.server.addresses["CONTROLLER"])

    def _dispatch(self, request: Request) -> EncodedResponse:
        key, version, number, _ = request.header
        if key == ApiKey.API_VERSIONS:
            return encode_response(key, version, number, served(ENVELOPE=(0, 0)))
        self.envelopes.append(len(request.body))
        if len(self.envelopes) > 2:
            raise CloseConnection("had enough")
        return encode_response(key, version, number, EnvelopeResponse(bytes(5_000_000)))


def test_large_messages_pass_both_ways(run: Run) -> None:
    async def scenario() -> None:
        loop, node = asyncio.get_running_loop(), Node()
        peers = NetworkClient(loop, TcpConnect(loop), client_id="1")
        request = EnvelopeRequest(bytes(3_000_000))
        futures = [
            peers.request(node.endpoint, request, EnvelopeResponse, timeout_ms=10_000, versions=None) for _ in range(3)
        ]
        for future in futures[:2]:
            assert len((await future).response_data or b"") == 5_000_000
        with pytest.raises(PeerUnavailable):
            await futures[2]
        assert min(node.envelopes) > 3_000_000
        peers.close()
        await node.server.drain(5.0)

    run(scenario())


def test_refused_port_and_invalid_host_fail_requests(run: Run) -> None:
    async def scenario() -> None:
        loop, node = asyncio.get_running_loop(), Node()
        await node.server.drain(5.0)
        peers = NetworkClient(loop, TcpConnect(loop), client_id="1")
        for endpoint in (node.endpoint, SocketAddress("127.0.0.1", 70_000), SocketAddress("a..b", 1)):
            with pytest.raises(PeerUnavailable, match="cannot be reached"):
                await peers.request(endpoint, beat(), BrokerHeartbeatResponse, timeout_ms=10_000)
        peers.close()

    run(scenario())


def test_cancelled_waiting_request_is_not_sent(run: Run) -> None:
    async def scenario() -> None:
        loop, node = asyncio.get_running_loop(), Node()
        peers = NetworkClient(loop, TcpConnect(loop), client_id="1")
        given_up = peers.request(node.endpoint, EnvelopeRequest(b"1"), EnvelopeResponse, timeout_ms=10_000)
        wanted = peers.request(node.endpoint, EnvelopeRequest(b"2"), EnvelopeResponse, timeout_ms=10_000)
        given_up.cancel()
        await wanted
        assert len(node.envelopes) == 1
        peers.close()
        await node.server.drain(5.0)

    run(scenario())

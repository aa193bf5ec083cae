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
    stage = NetworkClientHarness()
    stage.send(beat(1))
    stage.send(beat(2))
    stage.last.accept()
    header, asked = stage.last.take()
    assert (header.api_version, header.client_id) == (4, "raft-client-1")
    assert asked == ApiVersionsRequest("ottla", "0.1.0")
    assert len(stage.last.requests) == 1, "nothing is sent before versions are agreed on"
    stage.last.answer(header, served(BROKER_HEARTBEAT=(0, 0)))
    (first, one), (second, two) = stage.last.take(), stage.last.take()
    assert [one, two] == [beat(1), beat(2)]
    assert (first.api_version, second.api_version) == (0, 0)
    stage.last.answer(first, BrokerHeartbeatResponse(is_caught_up=True))
    stage.last.answer(second, BrokerHeartbeatResponse(is_fenced=False))
    assert stage.told() == [BrokerHeartbeatResponse(is_caught_up=True), BrokerHeartbeatResponse(is_fenced=False)]
    assert len(stage.attempts) == 1


def test_served_versions_are_known_while_connected() -> None:
    stage = NetworkClientHarness()
    assert stage.peers.versions(NODE) is None
    stage.send(beat())
    assert stage.peers.versions(NODE) is None
    stage.last.agree(**BEAT)
    assert stage.peers.versions(NODE) == {ApiKey.API_VERSIONS: (0, 4), ApiKey.BROKER_HEARTBEAT: (0, 1)}
    stage.last.protocol.connection_lost(None)
    assert stage.peers.versions(NODE) is None


def test_old_node_is_asked_again_in_its_own_api_versions_version() -> None:
    stage = NetworkClientHarness()
    stage.send(beat())
    stage.last.accept()
    header, _ = stage.last.take()
    refusal = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(ApiKey.API_VERSIONS, 0, 2)])
    stage.last.answer(header._replace(api_version=0), refusal)
    header, _ = stage.last.take()
    assert header.api_version == 2
    stage.last.answer(header, served(**BEAT))
    assert stage.last.take()[1] == beat()


@pytest.mark.parametrize(
    ("theirs", "wanted", "sent"), [((0, 1), None, 1), ((0, 0), None, 0), ((0, 2), (0, 1), 1), ((1, 2), (0, 1), 1)]
)
def test_highest_common_version_is_sent(theirs: tuple[int, int], wanted: tuple[int, int] | None, sent: int) -> None:
    stage = NetworkClientHarness()
    built: list[int] = []

    def build(version: int) -> VoteRequest:
        built.append(version)
        return VoteRequest()

    stage.send(Versioned(ApiKey.VOTE, build), versions=wanted)
    stage.last.agree(VOTE=theirs)
    assert stage.last.take()[0].api_version == sent
    assert built == [sent]


def test_missing_common_version_sends_nothing_and_keeps_the_connection() -> None:
    stage = NetworkClientHarness()
    stage.send(VoteRequest(), versions=(2, 2))
    stage.send(beat())
    stage.last.agree(VOTE=(0, 1))
    assert stage.outcomes == [], "outcomes have a turn of the loop of their own"
    too_old, unknown = stage.told()
    assert isinstance(too_old, VersionMismatch)
    assert str(too_old) == "node:9093: VOTE is served there in versions 0 to 1, wanted are 2 to 2"
    assert isinstance(unknown, VersionMismatch)
    assert len(stage.last.requests) == 1
    assert not stage.last.transport.is_aborted


def test_request_that_a_version_cannot_express_is_a_mismatch() -> None:
    stage = NetworkClientHarness()
    stage.send(BrokerHeartbeatRequest(broker_id=2**40))
    stage.last.agree(**BEAT)
    (outcome,) = stage.told()
    assert isinstance(outcome, VersionMismatch)


def test_unreachable_node_fails_waiting_requests_and_is_retried_later() -> None:
    stage = NetworkClientHarness()
    stage.send(beat(1))
    stage.send(beat(2))
    stage.last.fail(Ending("cannot be reached (refused)", is_refusal=True))
    first, second = stage.told()
    assert isinstance(first, PeerRefused)
    assert str(second) == "node:9093 cannot be reached (refused)"
    stage.run(1_000)
    assert len(stage.attempts) == 1, "nobody asked again"


def test_back_off_doubles_from_50_to_500_ms_and_resets_after_success() -> None:
    stage = NetworkClientHarness()
    stage.send(beat(), timeout_ms=60_000)
    for expected_ms in (50, 100, 200, 400, 500, 500):
        stage.last.fail(Ending("refused", is_refusal=True))
        assert_tried_again_after(stage, expected_ms)
    stage.last.agree(**BEAT)
    stage.last.protocol.connection_lost(None)
    assert_tried_again_after(stage, 50)


def assert_tried_again_after(stage: NetworkClientHarness, expected_ms: int) -> None:
    attempts = len(stage.attempts)
    stage.send(beat(), timeout_ms=60_000)
    stage.run(expected_ms - 1)
    assert len(stage.attempts) == attempts
    stage.run(1.01)
    assert len(stage.attempts) == attempts + 1


@pytest.mark.parametrize(("spread", "expected_ms"), [(0.0, 40), (1.0, 60)])
def test_back_off_has_jitter(spread: float, expected_ms: int) -> None:
    stage = NetworkClientHarness(spread)
    stage.send(beat())
    stage.last.fail(Ending("refused", is_refusal=True))
    assert_tried_again_after(stage, expected_ms)


def test_connection_attempt_times_out() -> None:
    stage = NetworkClientHarness(connect_timeout_ms=300)
    stage.send(beat())
    stage.run(301)
    (outcome,) = stage.told()
    assert isinstance(outcome, PeerUnavailable)
    assert stage.last.is_cancelled
    stage.last.accept()
    assert stage.last.transport.is_aborted, "it came too late"


def test_negotiation_of_versions_times_out() -> None:
    stage = NetworkClientHarness(connect_timeout_ms=300)
    stage.send(beat())
    stage.last.accept()
    stage.run(301)
    assert isinstance(stage.told()[0], PeerUnavailable)
    assert stage.last.transport.is_aborted


def test_missing_response_ends_the_connection_and_its_requests() -> None:
    stage = NetworkClientHarness()
    stage.send(beat(1), timeout_ms=100)
    stage.send(beat(2), timeout_ms=5_000)
    stage.last.agree(**BEAT)
    stage.run(101)
    late, behind = stage.told()
    assert isinstance(late, PeerTimedOut)
    assert str(late) == "node:9093 did not answer BROKER_HEARTBEAT within 100 ms"
    assert isinstance(behind, PeerUnavailable)
    assert stage.last.transport.is_aborted


def test_unsent_requests_survive_a_lost_connection() -> None:
    stage = NetworkClientHarness(max_in_flight=1)
    stage.send(beat(1))
    stage.send(beat(2))
    stage.last.agree(**BEAT)
    stage.last.protocol.connection_lost(ConnectionResetError("reset"))
    (sent,) = stage.told()
    assert str(sent) == "node:9093 broke the connection (reset)"
    stage.run(51)
    stage.last.agree(**BEAT)
    assert stage.last.take()[1] == beat(2)


def test_waiting_request_times_out_without_ending_the_connection() -> None:
    stage = NetworkClientHarness(max_in_flight=1)
    stage.send(beat(1), timeout_ms=1_000)
    stage.send(beat(2), timeout_ms=100)
    stage.last.agree(**BEAT)
    stage.run(101)
    assert isinstance(stage.told()[0], PeerTimedOut)
    header, _ = stage.last.take()
    stage.last.answer(header, BrokerHeartbeatResponse())
    assert stage.told() == [BrokerHeartbeatResponse()]
    assert len(stage.last.requests) == 2, "what had timed out was not sent"


def test_requests_in_flight_are_limited() -> None:
    stage = NetworkClientHarness(max_in_flight=2)
    for number in range(4):
        stage.send(beat(number))
    stage.last.agree(**BEAT)
    assert len(stage.last.requests) == 3
    header, _ = stage.last.take()
    stage.last.answer(header, BrokerHeartbeatResponse())
    assert len(stage.last.requests) == 4


def test_waiting_requests_are_limited() -> None:
    stage = NetworkClientHarness(max_waiting=1)
    stage.send(beat(1))
    stage.send(beat(2))
    (outcome,) = stage.told()
    assert isinstance(outcome, PeerUnavailable)
    assert "too many" in str(outcome)


def test_node_that_does_not_read_is_sent_no_more() -> None:
    stage = NetworkClientHarness()
    stage.send(beat(1))
    stage.last.agree(**BEAT)
    stage.last.protocol.pause_writing()
    stage.send(beat(2))
    assert len(stage.last.requests) == 2
    stage.last.protocol.resume_writing()
    assert len(stage.last.requests) == 3


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
    stage = NetworkClientHarness()
    stage.send(beat())
    if agreed:
        stage.last.agree(**BEAT)
    else:
        stage.last.accept()
    stage.last.send(garbage)
    (outcome,) = stage.told()
    assert isinstance(outcome, PeerUnavailable)
    assert stage.last.transport.is_aborted
    assert "node violated the protocol" in caplog.text


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.booleans())
def test_every_request_has_one_outcome_whatever_a_node_sends(chunks: list[bytes], agreed: bool) -> None:
    stage = NetworkClientHarness()
    stage.send(beat(1))
    stage.send(beat(2))
    if agreed:
        stage.last.agree(**BEAT)
    else:
        stage.last.accept()
    for chunk in chunks:
        if not stage.last.transport.is_aborted:
            stage.last.send(chunk)
    stage.run(5_000)
    assert len(stage.told()) == 2
    assert stage.loop.live_timers <= 1, "that of the silence at most"


def test_response_without_request_ends_the_connection() -> None:
    stage = NetworkClientHarness()
    stage.send(beat())
    stage.last.agree(**BEAT)
    header, _ = stage.last.take()
    stage.last.answer(header, BrokerHeartbeatResponse())
    stage.last.answer(header, BrokerHeartbeatResponse())
    assert stage.told() == [BrokerHeartbeatResponse()]
    assert stage.last.transport.is_aborted


def test_error_in_api_versions_ends_the_connection() -> None:
    stage = NetworkClientHarness()
    stage.send(beat())
    stage.last.accept()
    header, _ = stage.last.take()
    stage.last.answer(header, ApiVersionsResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert isinstance(stage.told()[0], PeerUnavailable)


def test_idle_connection_is_closed_and_forgotten() -> None:
    stage = NetworkClientHarness(max_idle_ms=1_000)
    stage.send(beat())
    stage.last.agree(**BEAT)
    stage.run(900)
    header, _ = stage.last.take()
    stage.last.answer(header, BrokerHeartbeatResponse())
    stage.run(900)
    assert [bool(stage.peers.endpoints), stage.last.transport.is_aborted] == [True, False]
    stage.run(200)
    assert [bool(stage.peers.endpoints), stage.last.transport.is_aborted] == [False, True]
    assert stage.loop.live_timers == 0
    stage.send(beat())
    assert len(stage.attempts) == 2, "and there is no back-off after that"


def test_nodes_do_not_wait_for_one_another() -> None:
    stage = NetworkClientHarness()
    stage.send(beat(1))
    stage.send(beat(2), to=OTHER)
    stage.last.agree(**BEAT)
    header, _ = stage.last.take()
    stage.last.answer(header, BrokerHeartbeatResponse())
    assert stage.told() == [BrokerHeartbeatResponse()]


def test_dropped_node_fails_its_requests_and_can_be_contacted_again() -> None:
    stage = NetworkClientHarness()
    stage.send(beat(1))
    stage.last.agree(**BEAT)
    stage.peers.drop(OTHER)
    assert stage.told() == []
    stage.peers.drop(NODE)
    assert isinstance(stage.told()[0], PeerUnavailable)
    assert stage.last.transport.is_aborted
    stage.send(beat(2))
    stage.last.agree(**BEAT)
    assert stage.last.take()[1] == beat(2)


def test_closed_client_fails_all_requests() -> None:
    stage = NetworkClientHarness(max_in_flight=1)
    stage.send(beat(1))
    stage.send(beat(2))
    stage.last.agree(**BEAT)
    stage.send(beat(3), to=OTHER)
    stage.peers.close()
    stage.send(beat(4))
    assert [type(outcome) for outcome in stage.told()] == [PeerUnavailable] * 4
    assert all(attempt.transport.is_aborted or attempt.is_cancelled for attempt in stage.attempts)
    assert stage.loop.live_timers == 0


# On real sockets.


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
        asked = [
            peers.request(node.endpoint, request, EnvelopeResponse, timeout_ms=10_000, versions=None) for _ in range(3)
        ]
        for future in asked[:2]:
            assert len((await future).response_data or b"") == 5_000_000
        with pytest.raises(PeerUnavailable):
            await asked[2]
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

"""Logins of connections between nodes, against simulated nodes on a manual clock."""

from broker.net.peer import PeerUnavailable
from broker.sasl.client.plain import PlainClient
from broker.sasl.client.sasl_login import SaslLogin
from protocol.messages import Message
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.net.peer_harness import NetworkClientHarness

SECRET = "sesame-4"
SERVED = {"BROKER_HEARTBEAT": (0, 1), "SASL_HANDSHAKE": (0, 1), "SASL_AUTHENTICATE": (0, 2)}
ACCEPTED = SaslAuthenticateResponse(error_message=None)


def harness_with_login() -> NetworkClientHarness:
    return NetworkClientHarness(login=SaslLogin("PLAIN", lambda: PlainClient("node", SECRET)))


def log_in(harness: NetworkClientHarness, response: Message = ACCEPTED) -> None:
    """Answer the two requests of a login."""
    header, request = harness.last.take()
    assert (request, header.api_version) == (SaslHandshakeRequest("PLAIN"), 1)
    harness.last.answer(header, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    header, request = harness.last.take()
    assert (request, header.api_version) == (SaslAuthenticateRequest(f"\0node\0{SECRET}".encode()), 2)
    harness.last.answer(header, response)


def unread(harness: NetworkClientHarness) -> list[Message]:
    return [request for _, request in harness.last.requests[harness.last.unread :]]


def test_requests_follow_the_login() -> None:
    harness = harness_with_login()
    harness.send(BrokerHeartbeatRequest(1))
    harness.last.agree(**SERVED)
    assert unread(harness) == [SaslHandshakeRequest("PLAIN")]
    log_in(harness)
    assert unread(harness) == [BrokerHeartbeatRequest(1)]


def test_failed_login_fails_requests_and_backs_off() -> None:
    harness = harness_with_login()
    harness.send(BrokerHeartbeatRequest(1))
    harness.last.agree(**SERVED)
    log_in(harness, SaslAuthenticateResponse(58, "Authentication failed."))
    (outcome,) = harness.take_outcomes()
    assert isinstance(outcome, PeerUnavailable)
    assert str(outcome) == "node:9093 failed the login with PLAIN: Authentication failed"
    assert harness.last.transport.is_aborted
    harness.send(BrokerHeartbeatRequest(2))
    assert len(harness.attempts) == 1
    harness.run(60)
    assert len(harness.attempts) == 2
    harness.last.agree(**SERVED)
    log_in(harness, SaslAuthenticateResponse(58, None))
    harness.send(BrokerHeartbeatRequest(3))
    harness.run(60)
    assert len(harness.attempts) == 2, "the back-off doubles"


def test_mechanism_that_the_node_lacks_is_reported() -> None:
    harness = harness_with_login()
    harness.send(BrokerHeartbeatRequest(1))
    harness.last.agree(**SERVED)
    header, _ = harness.last.take()
    harness.last.answer(header, SaslHandshakeResponse(33, ["SCRAM-SHA-512", "OAUTHBEARER"]))
    (outcome,) = harness.take_outcomes()
    assert "its mechanisms are OAUTHBEARER, SCRAM-SHA-512" in str(outcome)


def test_node_without_sasl_is_reported() -> None:
    harness = harness_with_login()
    harness.send(BrokerHeartbeatRequest(1))
    harness.last.agree(BROKER_HEARTBEAT=(0, 1), SASL_HANDSHAKE=(0, 0))
    (outcome,) = harness.take_outcomes()
    assert "cannot be logged in to: SASL_HANDSHAKE is served there in versions 0 to 0" in str(outcome)


def test_session_is_renewed_between_requests() -> None:
    harness = harness_with_login()
    harness.send(BrokerHeartbeatRequest(1), timeout_ms=20_000)
    harness.last.agree(**SERVED)
    log_in(harness, SaslAuthenticateResponse(session_lifetime_ms=10_000))
    header, _ = harness.last.take()
    harness.run(9_000)
    harness.send(BrokerHeartbeatRequest(2))
    assert unread(harness) == [], "the request in flight is answered first"
    harness.last.answer(header, BrokerHeartbeatResponse())
    assert harness.take_outcomes() == [BrokerHeartbeatResponse()]
    log_in(harness, SaslAuthenticateResponse(session_lifetime_ms=10_000))
    assert unread(harness) == [BrokerHeartbeatRequest(2)]
    harness.last.answer(harness.last.take()[0], BrokerHeartbeatResponse())
    harness.run(8_900)
    harness.send(BrokerHeartbeatRequest(3))
    assert unread(harness) == [BrokerHeartbeatRequest(3)], "90 % of the lifetime have not passed"
    assert len(harness.attempts) == 1


def test_renewal_without_answer_ends_the_connection() -> None:
    harness = harness_with_login()
    harness.send(BrokerHeartbeatRequest(1))
    harness.last.agree(**SERVED)
    log_in(harness, SaslAuthenticateResponse(session_lifetime_ms=10_000))
    harness.last.answer(harness.last.take()[0], BrokerHeartbeatResponse())
    harness.run(9_500)
    harness.send(BrokerHeartbeatRequest(2), timeout_ms=1_000)
    assert unread(harness) == [SaslHandshakeRequest("PLAIN")]
    harness.run(1_000)
    assert harness.last.transport.is_aborted

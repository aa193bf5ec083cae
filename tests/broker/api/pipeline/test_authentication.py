"""Authentication states of a connection (KIP-43, KIP-152, KIP-368)."""

import pytest

from broker.api.pipeline.authentication import (
    ALLOWED_REQUESTS,
    INITIAL_STATES,
    TRANSITIONS,
    AuthenticationEvent,
    AuthenticationState,
    ConnectionAuthentication,
)
from broker.config.listeners import SECURITY_PROTOCOLS
from broker.net.request import CloseConnection
from protocol.api_keys import ApiKey

S, E = AuthenticationState, AuthenticationEvent


def connection(protocol: str = "SASL_SSL", *events: AuthenticationEvent) -> ConnectionAuthentication:
    authentication = ConnectionAuthentication(INITIAL_STATES[protocol])
    for event in events:
        authentication.on(event)
    return authentication


def allows(authentication: ConnectionAuthentication, key: ApiKey) -> bool:
    try:
        authentication.check(key)
    except CloseConnection:
        return False
    return True


def test_every_security_protocol_has_an_initial_state() -> None:
    assert set(INITIAL_STATES) == set(SECURITY_PROTOCOLS)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_connection_without_sasl_begins_authenticated(protocol: str) -> None:
    assert all(allows(connection(protocol), key) for key in ApiKey)


def test_sasl_connection_allows_versions_and_handshake_first() -> None:
    first = connection()
    assert {key for key in ApiKey if allows(first, key)} == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}


def test_versions_are_answered_once_before_authentication() -> None:
    assert not allows(connection("SASL_SSL", E.VERSIONS_ANSWERED), ApiKey.API_VERSIONS)


def test_tokens_follow_the_handshake_until_credentials_are_accepted() -> None:
    exchange = connection("SASL_SSL", E.MECHANISM_CHOSEN)
    assert {key for key in ApiKey if allows(exchange, key)} == {ApiKey.SASL_AUTHENTICATE}
    exchange.on(E.CREDENTIALS_ACCEPTED)
    assert all(allows(exchange, key) for key in ApiKey)


def test_refused_credentials_allow_no_further_request() -> None:
    refused = connection("SASL_SSL", E.MECHANISM_CHOSEN, E.CREDENTIALS_REFUSED)
    assert not any(allows(refused, key) for key in ApiKey)


def test_expired_session_allows_a_new_handshake_alone() -> None:
    expired = connection("SASL_SSL", E.MECHANISM_CHOSEN, E.CREDENTIALS_ACCEPTED, E.SESSION_EXPIRED)
    assert {key for key in ApiKey if allows(expired, key)} == {ApiKey.SASL_HANDSHAKE}
    expired.on(E.MECHANISM_CHOSEN)
    expired.on(E.CREDENTIALS_ACCEPTED)
    assert expired.state is S.AUTHENTICATED


def test_illegal_event_closes_the_connection() -> None:
    with pytest.raises(CloseConnection, match="CREDENTIALS_ACCEPTED is not possible"):
        connection("SASL_SSL", E.CREDENTIALS_ACCEPTED)


def test_every_state_but_failed_can_be_left() -> None:
    assert {state for state, _event in TRANSITIONS} == set(S) - {S.FAILED}
    assert set(ALLOWED_REQUESTS) == set(S) - {S.AUTHENTICATED}

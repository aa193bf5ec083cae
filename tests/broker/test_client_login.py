"""Logins of the blocking client against a scripted broker."""

from collections.abc import Iterator

import pytest

from broker.client import AuthenticationRefused, Client, ClientConfig, ClientError
from protocol.api_keys import ApiKey
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.fakes.fake_broker import FakeBroker

SECRET = "sesame-4"
PROPERTIES = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="alice" password="{SECRET}";',
}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 1}) as fake:
        fake.answer(ApiKey.SASL_HANDSHAKE, lambda _: SaslHandshakeResponse(mechanisms=["PLAIN"]))
        fake.answer(ApiKey.SASL_AUTHENTICATE, lambda _: SaslAuthenticateResponse())
        fake.answer(ApiKey.LIST_GROUPS, lambda _: ListGroupsResponse())
        yield fake


def client_of(broker: FakeBroker) -> Client:
    return Client(ClientConfig.parse(broker.address, PROPERTIES))


def test_client_logs_in_before_its_requests(broker: FakeBroker) -> None:
    with client_of(broker) as client:
        client.metadata()
        client.metadata()
    sent = [request for _, request in broker.requests]
    token = f"\0alice\0{SECRET}".encode()
    assert sent[1:3] == [SaslHandshakeRequest("PLAIN"), SaslAuthenticateRequest(token)]
    assert [type(request) for request in sent[3:]] == [MetadataRequest] * 2


def test_refused_login_is_reported_and_not_retried(broker: FakeBroker) -> None:
    refusal = SaslAuthenticateResponse(58, "Authentication failed: Invalid username or password")
    broker.answer(ApiKey.SASL_AUTHENTICATE, lambda _: refusal)
    with client_of(broker) as client, pytest.raises(AuthenticationRefused) as caught:
        client.retrying(client.metadata)
    sentence = "failed the login with PLAIN: Authentication failed: Invalid username or password."
    assert str(caught.value) == f"{broker.address} {sentence}"
    assert len(broker.received(SaslAuthenticateRequest)) == 1


def test_session_is_renewed_after_pending_responses(broker: FakeBroker) -> None:
    with client_of(broker) as client:
        connection = client.any()
        connection.send(ListGroupsRequest())
        connection.send(ListGroupsRequest())
        connection._renew_at = 0.0  # the session ends soon
        connection.send(ListGroupsRequest())
        for _ in range(3):
            assert connection.receive(ListGroupsResponse) == ListGroupsResponse()
    kinds = [type(request).__name__ for _, request in broker.requests[3:]]
    assert kinds == [
        "ListGroupsRequest",
        "ListGroupsRequest",
        "SaslHandshakeRequest",
        "SaslAuthenticateRequest",
        "ListGroupsRequest",
    ]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"security.protocol": "SASL"}, r"security\.protocol=SASL is unknown; use one of PLAINTEXT, "),
        ({"sasl.mechanism": ""}, r"sasl\.mechanism=GSSAPI is not implemented"),
        ({"sasl.jaas.config": ""}, r"sasl\.jaas\.config is not set"),
    ],
)
def test_unusable_properties_are_refused(changed: dict[str, str], sentence: str) -> None:
    with pytest.raises(ClientError, match=sentence):
        ClientConfig.parse("h:1", PROPERTIES | changed)


def test_secrets_are_no_part_of_a_configurations_text() -> None:
    config = ClientConfig.parse("h:1", PROPERTIES)
    assert SECRET not in repr(config)
    assert SECRET not in repr(config.login())

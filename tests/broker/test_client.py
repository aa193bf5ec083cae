"""The blocking client against scripted brokers: versions, routing, retries, and faulty peers."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from broker.client import (
    Client,
    ClientConfig,
    ClientError,
    Connection,
    ConnectionLost,
    Endpoint,
    UnsupportedVersion,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.fakes.fake_broker import NODE_ID, FakeBroker, HangUp
from tests.support.processes.closed_port import closed_port


class FakeTime:
    """A clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 2}) as fake:
        yield fake


@pytest.fixture
def clock() -> FakeTime:
    return FakeTime()


@pytest.fixture
def client(broker: FakeBroker, clock: FakeTime) -> Iterator[Client]:
    config = ClientConfig.parse(broker.address, {"client.id": "me", "request.timeout.ms": "2000"})
    with Client(config, monotonic=clock.monotonic, sleep=clock.sleep) as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h:1", Endpoint("h", 1)),
        ("h", Endpoint("h", 9092)),
        (" h:9093 ", Endpoint("h", 9093)),
        ("[::1]:9", Endpoint("::1", 9)),
        ("::1", Endpoint("::1", 9092)),
    ],
)
def test_endpoint_parses_host_port_and_ipv6(text: str, expected: Endpoint) -> None:
    assert Endpoint.parse(text) == expected


@pytest.mark.parametrize("text", ["", ":1", "h:", "h:x", "h:0", "h:65536"])
def test_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ClientError):
        Endpoint.parse(text)


def test_endpoint_text_is_its_parsed_form() -> None:
    assert [str(Endpoint.parse(text)) for text in ("h:1", "[::1]:9")] == ["h:1", "[::1]:9"]


def test_config_uses_properties_of_kafka_clients() -> None:
    config = ClientConfig.parse("a:1,b:2", {"request.timeout.ms": "7", "client.id": "x", "retry.backoff.ms": "3"})
    assert (config.bootstrap, config.request_timeout_ms, config.client_id, config.retry_backoff_ms) == (
        (Endpoint("a", 1), Endpoint("b", 2)),
        7,
        "x",
        3,
    )


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_timeout_that_is_not_a_positive_number_is_refused(value: str) -> None:
    with pytest.raises(ClientError, match=r"request\.timeout\.ms"):
        ClientConfig.parse("a:1", {"request.timeout.ms": value})


def test_client_uses_highest_common_version(broker: FakeBroker, client: Client) -> None:
    broker.versions[ApiKey.METADATA] = (0, 5)
    client.metadata()
    header = broker.requests[-1].header
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.METADATA, 5, "me")


def test_caller_can_limit_the_version(broker: FakeBroker, client: Client) -> None:
    client.call(MetadataRequest(topics=None), MetadataResponse, highest=3)
    assert broker.requests[-1].header.api_version == 3


def test_api_versions_falls_back_to_version_0(broker: FakeBroker, client: Client) -> None:
    broker.versions[ApiKey.API_VERSIONS] = (0, 2)
    client.metadata()
    assert broker.requests[0].header.api_version == 0
    assert isinstance(broker.requests[0].request, ApiVersionsRequest)


def test_api_missing_at_the_broker_is_refused_before_sending(client: Client) -> None:
    with pytest.raises(UnsupportedVersion, match="does not serve CreateTopics"):
        client.any().version_of(CreateTopicsRequest.API_KEY)


def test_api_without_common_version_is_refused(broker: FakeBroker, client: Client) -> None:
    broker.versions[ApiKey.FETCH] = (0, 3)
    with pytest.raises(UnsupportedVersion, match="serves Fetch 0 to 3, and this program needs 4 to"):
        client.call(FetchRequest(), FetchResponse)


def test_field_missing_in_the_version_is_refused(broker: FakeBroker, client: Client) -> None:
    broker.answer(ApiKey.LIST_GROUPS, lambda _: ListGroupsResponse(), versions=(0, 3))
    with pytest.raises(UnsupportedVersion, match="ListGroups up to version 3, which lacks"):
        client.call(ListGroupsRequest(types_filter=["classic"]), ListGroupsResponse)


def test_requests_can_be_pipelined(broker: FakeBroker, client: Client) -> None:
    codes = iter([1, 2, 3])
    broker.answer(ApiKey.HEARTBEAT, lambda _: HeartbeatResponse(error_code=next(codes)))
    connection = client.any()
    for _ in range(3):
        connection.send(HeartbeatRequest())
    assert [connection.receive(HeartbeatResponse).error_code for _ in range(3)] == [1, 2, 3]


def test_node_is_found_by_id(broker: FakeBroker, client: Client) -> None:
    assert client.node(NODE_ID).endpoint == Endpoint("127.0.0.1", broker.port)
    assert client.node(NODE_ID) is client.node(NODE_ID)
    assert client.node(NODE_ID) is not client.node(NODE_ID, "another purpose")


def test_unknown_node_id_is_not_available(client: Client) -> None:
    with pytest.raises(KafkaError, match="broker 9 is not a live broker"):
        client.node(9)


@pytest.mark.parametrize("versions", [(0, 3), (0, 6)])
def test_coordinator_is_found_in_old_and_new_versions(
    versions: tuple[int, int], broker: FakeBroker, client: Client
) -> None:
    broker.versions[ApiKey.FIND_COORDINATOR] = versions
    assert client.coordinator("g").endpoint == Endpoint("127.0.0.1", broker.port)
    request = broker.received(FindCoordinatorRequest)[0]
    assert (request.key, request.coordinator_keys) == (("g", []) if versions[1] == 3 else ("", ["g"]))


def test_leaders_of_an_unknown_topic_raise(client: Client) -> None:
    with pytest.raises(KafkaError) as caught:
        client.leaders(["nosuch"])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_transient_errors_are_retried_with_exponential_backoff(
    broker: FakeBroker, client: Client, clock: FakeTime
) -> None:
    answers = iter([ErrorCode.COORDINATOR_NOT_AVAILABLE] * 5)
    found = broker._find_coordinator

    def answer(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        response = found(request)
        response.coordinators[0].error_code = next(answers, ErrorCode.NONE)
        return response

    broker.answer(ApiKey.FIND_COORDINATOR, answer)
    client.retrying(lambda: client.coordinator("g"))
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.0]


def test_other_errors_are_not_retried(client: Client, clock: FakeTime) -> None:
    def refuse() -> None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)

    with pytest.raises(KafkaError):
        client.retrying(refuse)
    assert clock.slept == []


def test_codes_given_by_the_caller_are_retried(client: Client, clock: FakeTime) -> None:
    outcomes = iter([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE])
    client.any()

    def attempt() -> str:
        code = next(outcomes)
        if code:
            raise KafkaError(code)
        return "done"

    assert client.retrying(attempt, frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})) == "done"
    assert len(clock.slept) == 1


def test_retries_end_at_the_api_timeout(client: Client, clock: FakeTime) -> None:
    client.any()

    def refuse() -> None:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)

    with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE"):
        client.retrying(refuse)
    assert 55 < clock.now <= 60


def test_lost_connection_is_reopened(broker: FakeBroker, client: Client, clock: FakeTime) -> None:
    client.metadata()
    broker.hang_up()
    assert client.retrying(lambda: client.metadata(["t"])).topics[0].name == "t"
    assert clock.slept == [0.1]


def test_cluster_that_was_never_reached_is_not_retried(clock: FakeTime) -> None:
    with closed_port() as port:
        config = ClientConfig.parse(f"127.0.0.1:{port}")
        refused = pytest.raises(ConnectionLost, match=f"cannot connect to 127.0.0.1:{port}: Connection refused")
        with Client(config, monotonic=clock.monotonic, sleep=clock.sleep) as client, refused:
            client.retrying(client.any)
    assert clock.slept == []


def test_next_bootstrap_server_is_tried(broker: FakeBroker) -> None:
    with closed_port() as port, Client(ClientConfig.parse(f"127.0.0.1:{port},{broker.address}")) as client:
        assert client.any().endpoint.port == broker.port


def test_secrets_are_no_part_of_a_configurations_text() -> None:
    config = ClientConfig.parse("h:1", {"security.protocol": "SSL", "ssl.keystore.password": "sesame"})
    assert config.tls == (("ssl.keystore.password", "sesame"),)
    assert "sesame" not in repr(config)


def test_unusable_tls_properties_are_refused(broker: FakeBroker) -> None:
    config = ClientConfig.parse(broker.address, {"security.protocol": "SSL", "ssl.truststore.location": "/missing"})
    with Client(config) as client, pytest.raises(ClientError, match=r"^ssl\.truststore\.location cannot be read"):
        client.metadata()


@contextmanager
def peer_with(behaves: Callable[[socket.socket], None]) -> Iterator[Endpoint]:
    """Run a listener whose only connection `behaves` handles in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                behaves(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Endpoint("127.0.0.1", server.getsockname()[1])
        thread.join(5)


def _answer_with(data: bytes) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(data)

    return behave


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not in the Kafka protocol"),
        (b"", "closed the connection"),
        (b"\0\0\0\x20abc", "closed the connection"),
        (b"\xff\xff\xff\xff", "is not in the Kafka protocol"),
        (b"\0\0\0\x05\0\0\0\0\0", "is not in the Kafka protocol"),
    ],
)
def test_peer_that_is_not_a_broker_is_reported(data: bytes, message: str) -> None:
    with peer_with(_answer_with(data)) as endpoint:
        config = ClientConfig.parse(str(endpoint))
        with pytest.raises(ConnectionLost, match=message):
            Connection.open(endpoint, config)


def test_silent_peer_times_out() -> None:
    done = threading.Event()

    def stay_silent(_: socket.socket) -> None:
        done.wait(5)

    with peer_with(stay_silent) as endpoint:
        config = ClientConfig.parse(str(endpoint), {"socket.connection.setup.timeout.ms": "20"})
        with pytest.raises(ConnectionLost, match="did not respond in time"):
            Connection.open(endpoint, config)
        done.set()


def test_connection_closed_without_response_is_reported(broker: FakeBroker, client: Client) -> None:
    def close_connection(_: HeartbeatRequest) -> HeartbeatResponse:
        raise HangUp

    broker.answer(ApiKey.HEARTBEAT, close_connection)
    with pytest.raises(ConnectionLost, match="closed the connection"):
        client.call(HeartbeatRequest(), HeartbeatResponse)


def test_slow_bootstrap_server_is_skipped_while_others_remain(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.client.FIRST_ATTEMPT_TIMEOUT_MS", 50)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = ClientConfig.parse(f"127.0.0.1:{silent.getsockname()[1]},{broker.address}")
        with Client(config) as client:
            assert client.any().endpoint == Endpoint.parse(broker.address)


def test_slow_bootstrap_server_gets_the_full_timeout_if_no_other_responds(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.client.FIRST_ATTEMPT_TIMEOUT_MS", 0)
    with closed_port() as port, Client(ClientConfig.parse(f"127.0.0.1:{port},{broker.address}")) as client:
        assert client.any().endpoint == Endpoint.parse(broker.address)

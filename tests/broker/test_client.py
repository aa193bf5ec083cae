"""The blocking client against scripted brokers: versions, routing, retries, and misbehaving peers."""

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
def test_addresses(text: str, expected: Endpoint) -> None:
    assert Endpoint.parse(text) == expected


@pytest.mark.parametrize("text", ["", ":1", "h:", "h:x", "h:0", "h:65536"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ClientError):
        Endpoint.parse(text)


def test_an_endpoint_is_written_as_it_is_read() -> None:
    assert [str(Endpoint.parse(text)) for text in ("h:1", "[::1]:9")] == ["h:1", "[::1]:9"]


def test_properties_of_kafkas_clients_are_honoured() -> None:
    config = ClientConfig.parse("a:1,b:2", {"request.timeout.ms": "7", "client.id": "x", "retry.backoff.ms": "3"})
    assert (config.bootstrap, config.request_timeout_ms, config.client_id, config.retry_backoff_ms) == (
        (Endpoint("a", 1), Endpoint("b", 2)),
        7,
        "x",
        3,
    )


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_a_time_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(ClientError, match=r"request\.timeout\.ms"):
        ClientConfig.parse("a:1", {"request.timeout.ms": value})


def test_the_highest_common_version_is_used(broker: FakeBroker, client: Client) -> None:
    broker.versions[ApiKey.METADATA] = (0, 5)
    client.metadata()
    header = broker.requests[-1].header
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.METADATA, 5, "me")


def test_a_lower_version_can_be_asked_for(broker: FakeBroker, client: Client) -> None:
    client.call(MetadataRequest(topics=None), MetadataResponse, highest=3)
    assert broker.requests[-1].header.api_version == 3


def test_a_broker_without_our_version_of_api_versions_is_asked_again(broker: FakeBroker, client: Client) -> None:
    broker.versions[ApiKey.API_VERSIONS] = (0, 2)
    client.metadata()
    assert broker.requests[0].header.api_version == 0
    assert isinstance(broker.requests[0].request, ApiVersionsRequest)


def test_an_api_that_is_not_served_is_refused_before_sending(client: Client) -> None:
    with pytest.raises(UnsupportedVersion, match="does not serve CreateTopics"):
        client.any().version_of(CreateTopicsRequest.API_KEY)


def test_no_version_in_common_is_refused(broker: FakeBroker, client: Client) -> None:
    broker.versions[ApiKey.FETCH] = (0, 3)
    with pytest.raises(UnsupportedVersion, match="serves Fetch 0 to 3, and this program needs 4 to"):
        client.call(FetchRequest(), FetchResponse)


def test_what_a_version_cannot_say_is_refused(broker: FakeBroker, client: Client) -> None:
    broker.answer(ApiKey.LIST_GROUPS, lambda _: ListGroupsResponse(), versions=(0, 3))
    with pytest.raises(UnsupportedVersion, match="ListGroups up to version 3, which lacks"):
        client.call(ListGroupsRequest(types_filter=["classic"]), ListGroupsResponse)


def test_requests_can_be_sent_ahead(broker: FakeBroker, client: Client) -> None:
    codes = iter([1, 2, 3])
    broker.answer(ApiKey.HEARTBEAT, lambda _: HeartbeatResponse(error_code=next(codes)))
    connection = client.any()
    for _ in range(3):
        connection.send(HeartbeatRequest())
    assert [connection.receive(HeartbeatResponse).error_code for _ in range(3)] == [1, 2, 3]


def test_a_node_is_found_by_its_id(broker: FakeBroker, client: Client) -> None:
    assert client.node(NODE_ID).endpoint == Endpoint("127.0.0.1", broker.port)
    assert client.node(NODE_ID) is client.node(NODE_ID)
    assert client.node(NODE_ID) is not client.node(NODE_ID, "another purpose")


def test_an_id_that_no_broker_has(client: Client) -> None:
    with pytest.raises(KafkaError, match="broker 9 is not a live broker"):
        client.node(9)


@pytest.mark.parametrize("versions", [(0, 3), (0, 6)])
def test_a_coordinator_is_found_in_old_and_new_versions(
    versions: tuple[int, int], broker: FakeBroker, client: Client
) -> None:
    broker.versions[ApiKey.FIND_COORDINATOR] = versions
    assert client.coordinator("g").endpoint == Endpoint("127.0.0.1", broker.port)
    request = broker.received(FindCoordinatorRequest)[0]
    assert (request.key, request.coordinator_keys) == (("g", []) if versions[1] == 3 else ("", ["g"]))


def test_leaders_refuse_an_unknown_topic(client: Client) -> None:
    with pytest.raises(KafkaError) as caught:
        client.leaders(["nosuch"])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_transient_errors_are_sat_out_with_growing_pauses(broker: FakeBroker, client: Client, clock: FakeTime) -> None:
    answers = iter([ErrorCode.COORDINATOR_NOT_AVAILABLE] * 5)
    found = broker._find_coordinator

    def answer(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        response = found(request)
        response.coordinators[0].error_code = next(answers, ErrorCode.NONE)
        return response

    broker.answer(ApiKey.FIND_COORDINATOR, answer)
    client.retrying(lambda: client.coordinator("g"))
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.0]


def test_other_errors_are_not_tried_again(client: Client, clock: FakeTime) -> None:
    def refuse() -> None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)

    with pytest.raises(KafkaError):
        client.retrying(refuse)
    assert clock.slept == []


def test_codes_named_by_the_caller_are_sat_out_too(client: Client, clock: FakeTime) -> None:
    outcomes = iter([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE])
    client.any()

    def attempt() -> str:
        code = next(outcomes)
        if code:
            raise KafkaError(code)
        return "done"

    assert client.retrying(attempt, frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})) == "done"
    assert len(clock.slept) == 1


def test_retries_end_with_the_api_timeout(client: Client, clock: FakeTime) -> None:
    client.any()

    def refuse() -> None:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)

    with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE"):
        client.retrying(refuse)
    assert 55 < clock.now <= 60


def test_a_lost_connection_is_opened_again(broker: FakeBroker, client: Client, clock: FakeTime) -> None:
    client.metadata()
    broker.hang_up()
    assert client.retrying(lambda: client.metadata(["t"])).topics[0].name == "t"
    assert clock.slept == [0.1]


def test_a_cluster_that_was_never_reached_is_not_waited_for(clock: FakeTime) -> None:
    with closed_port() as port:
        config = ClientConfig.parse(f"127.0.0.1:{port}")
        refused = pytest.raises(ConnectionLost, match=f"cannot connect to 127.0.0.1:{port}: Connection refused")
        with Client(config, monotonic=clock.monotonic, sleep=clock.sleep) as client, refused:
            client.retrying(client.any)
    assert clock.slept == []


def test_the_next_bootstrap_server_is_tried(broker: FakeBroker) -> None:
    with closed_port() as port, Client(ClientConfig.parse(f"127.0.0.1:{port},{broker.address}")) as client:
        assert client.any().endpoint.port == broker.port


def test_security_protocols_that_are_not_there_are_refused(broker: FakeBroker) -> None:
    config = ClientConfig.parse(broker.address, {"security.protocol": "ssl"})
    with Client(config) as client, pytest.raises(ClientError, match=r"security\.protocol=SSL is not implemented"):
        client.any()


@contextmanager
def a_peer_that(behaves: Callable[[socket.socket], None]) -> Iterator[Endpoint]:
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
    ("data", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not in the Kafka protocol"),
        (b"", "closed the connection"),
        (b"\0\0\0\x20abc", "closed the connection"),
        (b"\xff\xff\xff\xff", "is not in the Kafka protocol"),
        (b"\0\0\0\x05\0\0\0\0\0", "is not in the Kafka protocol"),
    ],
)
def test_peers_that_are_no_brokers(data: bytes, complaint: str) -> None:
    with a_peer_that(_answer_with(data)) as endpoint:
        config = ClientConfig.parse(str(endpoint))
        with pytest.raises(ConnectionLost, match=complaint):
            Connection.open(endpoint, config)


def test_a_silent_peer_is_given_up() -> None:
    done = threading.Event()

    def say_nothing(_: socket.socket) -> None:
        done.wait(5)

    with a_peer_that(say_nothing) as endpoint:
        config = ClientConfig.parse(str(endpoint), {"socket.connection.setup.timeout.ms": "20"})
        with pytest.raises(ConnectionLost, match="did not respond in time"):
            Connection.open(endpoint, config)
        done.set()


def test_a_connection_closed_instead_of_an_answer(broker: FakeBroker, client: Client) -> None:
    def hang_up(_: HeartbeatRequest) -> HeartbeatResponse:
        raise HangUp

    broker.answer(ApiKey.HEARTBEAT, hang_up)
    with pytest.raises(ConnectionLost, match="closed the connection"):
        client.call(HeartbeatRequest(), HeartbeatResponse)


def test_a_server_that_does_not_answer_yet_is_not_waited_for_while_there_are_others(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.client.FIRST_ATTEMPT_TIMEOUT_MS", 50)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = ClientConfig.parse(f"127.0.0.1:{silent.getsockname()[1]},{broker.address}")
        with Client(config) as client:
            assert client.any().endpoint == Endpoint.parse(broker.address)


def test_a_slow_server_is_waited_for_if_it_is_the_only_one_left(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.client.FIRST_ATTEMPT_TIMEOUT_MS", 0)
    with closed_port() as port, Client(ClientConfig.parse(f"127.0.0.1:{port},{broker.address}")) as client:
        assert client.any().endpoint == Endpoint.parse(broker.address)

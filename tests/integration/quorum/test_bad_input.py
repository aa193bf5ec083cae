"""Malformed and invalid requests to a controller listener from an ordinary socket.

The controller answers with the protocol's error, or closes the connection and logs one line. The quorum stays intact.
"""

import random
import re
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from broker.quorum.identity import KRaftVersions, ListenerEndpoint
from broker.quorum.messages import (
    AddVoterRequest,
    FetchResponse,
    RemoveVoterRequest,
    Request,
    Response,
)
from broker.quorum.wire.outgoing import outgoing
from protocol.api_keys import ApiKey, request_class, response_class
from protocol.errors import ErrorCode
from protocol.headers import decode_response, encode_request
from protocol.ids import LeaderEpoch, Offset
from protocol.messages import Message, vote
from protocol.messages import fetch as wire_fetch
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.controller_registration import ControllerRegistrationRequest
from protocol.messages.envelope import EnvelopeRequest
from protocol.primitives import METADATA_TOPIC_ID, Uuid
from tests.support.clients.partition_states import until
from tests.support.processes.ottla_node import OttlaNode
from tests.support.quorum_values import (
    log_position,
    make_begin_request,
    make_end_request,
    make_fetch_request,
    make_fetch_snapshot_request,
    make_snapshot_id,
    make_update_voter_request,
    make_vote_request,
    replica_key,
)

pytestmark = pytest.mark.integration

SILENCE_S = 60
FAR_EPOCH = 1_000_000
EPOCH = 1
"""The leader epoch of the node, which wins its first election."""
UNKNOWN_NODE = replica_key(2, Uuid(b"\x11" * 16))
IMPOSTOR = replica_key(1, Uuid(b"\x22" * 16))
LISTENERS = (ListenerEndpoint("CONTROLLER", "127.0.0.1", 9),)


@dataclass(frozen=True)
class Controller:
    """The node, its cluster id, and the API versions of its controller listener."""

    node: OttlaNode
    cluster_id: str
    versions: dict[int, int]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.node.controller_port), timeout=SILENCE_S)

    def ask(self, message: Message, version: int) -> Message:
        """Send one request on its own connection. Raise ConnectionResetError if the node closes the connection."""
        with self.connect() as peer:
            peer.sendall(b"".join(encode_request(message, version, 7, "confused")))
            return decode_response(response_class(message.API_KEY), version, receive(peer))[1]

    def replicate(self, request: Request) -> Response:
        """Send a replica's request in the highest version and return the response."""
        out = outgoing(request, 1_000)
        version = self.versions[out.key]
        return out.read(self.ask(out.build(version), version), "CONTROLLER")

    def lines(self) -> list[str]:
        return self.node.log_text.splitlines()


def receive(peer: socket.socket) -> memoryview:
    (size,) = struct.unpack(">i", receive_exactly(peer, 4))
    return memoryview(receive_exactly(peer, size))


def receive_exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = peer.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the node closed the connection")
        data += piece
    return data


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    with OttlaNode(tmp_path_factory.mktemp("bad-input")) as node:
        asked = Controller(node, "", {})
        served = asked.ask(ApiVersionsRequest("test", "1"), 4)
        assert isinstance(served, ApiVersionsResponse)
        properties = dict(line.split("=", 1) for line in (node.data / "meta.properties").read_text().splitlines()[1:])
        yield Controller(node, properties["cluster.id"], {each.api_key: each.max_version for each in served.api_keys})
        assert "Traceback" not in node.log_text


@pytest.fixture(autouse=True)
def _check_same_leader(controller: Controller) -> Iterator[None]:
    """Check after each test that the node still leads in the same epoch and answers."""
    before = controller_epoch(controller)
    yield
    assert controller_epoch(controller) == before
    assert controller.node.http("/health/ready")[0] == 200


def controller_epoch(controller: Controller) -> str:
    lines = controller.node.http("/metrics")[1].splitlines()
    return next(line for line in lines if line.startswith("kafka_server_raftmetrics_current_epoch"))


HOSTILE = {
    "random bytes": random.Random(7).randbytes(4096),
    "a length of 2 GiB": struct.pack(">i", 2**31 - 1) + b"\0" * 64,
    "a negative length": struct.pack(">i", -5) + b"\0" * 64,
    "an unknown API key": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "a client's API": struct.pack(">ihhih", 10, ApiKey.PRODUCE, 9, 1, -1),
    "a Fetch of clients": struct.pack(">ihhih", 10, ApiKey.FETCH, 4, 1, -1),
    "an unsupported version": struct.pack(">ihhih", 10, ApiKey.VOTE, 99, 1, -1),
    "a Vote that ends too early": struct.pack(">ihhihbb", 12, ApiKey.VOTE, 0, 1, -1, 0, 9),
    "a Vote of a billion topics": struct.pack(">ihhihbb5s", 17, ApiKey.VOTE, 0, 1, -1, 0, 0, b"\xff\xff\xff\xff\x03"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_malformed_request_closes_connection_and_logs_one_line(controller: Controller, kind: str) -> None:
    before = len(controller.lines())
    with controller.connect() as peer:
        peer.sendall(HOSTILE[kind])
        with pytest.raises(ConnectionResetError):
            receive(peer)
    (line,) = until(lambda: controller.lines()[before:])
    assert "broker.net" in line


def wrong_requests(cluster_id: str) -> Iterator[tuple[Request, ErrorCode]]:
    """Yield well-formed requests with one wrong field each, and the expected error."""
    told = make_begin_request(cluster_id, UNKNOWN_NODE.id, 0, None, LISTENERS)
    asked = make_vote_request(cluster_id, 0, UNKNOWN_NODE, None, log_position(0, 0))
    ended = make_end_request(cluster_id, UNKNOWN_NODE.id, 0, (UNKNOWN_NODE,), LISTENERS)
    fetch = make_fetch_request(cluster_id, UNKNOWN_NODE, EPOCH, 0, 0, 0, 1 << 20, 0)
    page = make_fetch_snapshot_request(cluster_id, UNKNOWN_NODE, EPOCH, make_snapshot_id(1_000, 1), 0, 4096)
    update = make_update_voter_request(cluster_id, 0, UNKNOWN_NODE, LISTENERS, KRaftVersions(0, 1))
    everything = (told, asked, ended, fetch, page, update)
    for request in (*everything, RemoveVoterRequest(cluster_id, UNKNOWN_NODE)):
        yield replace(request, cluster_id="another cluster"), ErrorCode.INCONSISTENT_CLUSTER_ID
    for old in (told, asked, ended, replace(fetch, epoch=LeaderEpoch(0)), replace(page, epoch=LeaderEpoch(0)), update):
        yield old, ErrorCode.FENCED_LEADER_EPOCH
    for without in (fetch, page):
        yield replace(without, epoch=LeaderEpoch(-1)), ErrorCode.FENCED_LEADER_EPOCH
    for ahead in (fetch, page, update):
        yield replace(ahead, epoch=LeaderEpoch(FAR_EPOCH)), ErrorCode.UNKNOWN_LEADER_EPOCH
    for last in (told, asked, ended):
        yield replace(last, epoch=LeaderEpoch(2**31 - 1)), ErrorCode.INVALID_REQUEST
    yield replace(asked, epoch=LeaderEpoch(FAR_EPOCH), candidate=IMPOSTOR), ErrorCode.INVALID_REQUEST
    yield replace(asked, epoch=LeaderEpoch(FAR_EPOCH), voter=IMPOSTOR), ErrorCode.INVALID_VOTER_KEY
    yield replace(told, epoch=LeaderEpoch(FAR_EPOCH), leader_id=IMPOSTOR.id), ErrorCode.INVALID_REQUEST
    for own in (fetch, page):
        yield replace(own, replica=IMPOSTOR), ErrorCode.INVALID_REQUEST
    yield replace(fetch, fetch_offset=Offset(-1)), ErrorCode.INVALID_REQUEST
    yield replace(fetch, last_fetched_epoch=LeaderEpoch(FAR_EPOCH)), ErrorCode.INVALID_REQUEST
    yield replace(fetch, max_wait_ms=-1), ErrorCode.INVALID_REQUEST
    for absent in (
        make_snapshot_id(1_000, 1),
        make_snapshot_id(-1, -1),
        make_snapshot_id(2**63 - 1, 2**31 - 1),
        make_snapshot_id(0, 0),
    ):
        yield replace(page, snapshot_id=absent), ErrorCode.SNAPSHOT_NOT_FOUND
    yield AddVoterRequest(cluster_id, replica_key(-1), LISTENERS, ack_when_committed=True), ErrorCode.INVALID_REQUEST
    yield AddVoterRequest(cluster_id, UNKNOWN_NODE, (), ack_when_committed=True), ErrorCode.INVALID_REQUEST


def test_invalid_replica_requests_are_refused_without_effect(controller: Controller) -> None:
    before = controller.lines()
    for request, error in wrong_requests(controller.cluster_id):
        response = controller.replicate(request)
        assert getattr(response, "error", None) is error, request
    assert controller.lines() == before


def test_fetch_beyond_log_end_returns_diverging_epoch(controller: Controller) -> None:
    fetch = make_fetch_request(controller.cluster_id, UNKNOWN_NODE, EPOCH, 2**63 - 1, 1, 0, 1 << 20, 0)
    response = controller.replicate(fetch)
    assert getattr(response, "diverging", None) is not None


def test_unknown_partitions_are_refused(controller: Controller) -> None:
    other = vote.VoteRequest(None, -1, [vote.VoteRequestTopicData("t", [vote.VoteRequestPartitionData()])])
    answer = controller.ask(other, 2)
    assert isinstance(answer, vote.VoteResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    for topic_id, partitions in ((Uuid(b"\x09" * 16), [0]), (METADATA_TOPIC_ID, [1]), (METADATA_TOPIC_ID, [0, 0])):
        wanted = [wire_fetch.FetchPartition(index) for index in partitions]
        fetched = controller.ask(wire_fetch.FetchRequest(topics=[wire_fetch.FetchTopic("", topic_id, wanted)]), 17)
        assert isinstance(fetched, wire_fetch.FetchResponse)
        assert fetched.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("message", "version", "error"),
    [
        (BrokerHeartbeatRequest(broker_id=77, broker_epoch=5), 1, ErrorCode.STALE_BROKER_EPOCH),
        (BrokerHeartbeatRequest(broker_id=1, broker_epoch=5), 1, ErrorCode.STALE_BROKER_EPOCH),
        (ControllerRegistrationRequest(controller_id=-1), 0, ErrorCode.INVALID_REQUEST),
        (EnvelopeRequest(b"", b"", b"\x7f\0\0\1"), 0, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (EnvelopeRequest(b"", b"\0\0\5User\2a\0\0", b"\x7f"), 0, ErrorCode.INVALID_REQUEST),
        (EnvelopeRequest(b"\0", b"\0\0\5User\2a\0\0", b"\x7f\0\0\1"), 0, ErrorCode.UNSUPPORTED_VERSION),
    ],
    ids=lambda value: type(value).__name__,
)
def test_requests_of_unregistered_nodes_are_refused(
    controller: Controller, message: Message, version: int, error: ErrorCode
) -> None:
    assert getattr(controller.ask(message, version), "error_code", None) == error


ATTEMPTS = 15
"""Attempts per API. Each corrupts a byte or two behind the header, or truncates the request."""
_CHANGES_THE_QUORUM = (ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH)
"""Requests with a later epoch depose the leader. Any peer may send them; authorization would prevent it."""


def corrupted_requests(versions: dict[int, int], rng: random.Random) -> Iterator[bytes]:
    for key, version in versions.items():
        if key in _CHANGES_THE_QUORUM:
            continue
        frame = b"".join(encode_request(request_class(key)(), version, 7, "spoilt"))
        for _ in range(ATTEMPTS):
            body = bytearray(frame[4:])
            for _ in range(rng.randint(1, 2)):
                body[rng.randrange(8, len(body))] = rng.choice((0, 1, 2, 127, 128, 255, rng.randrange(256)))
            kept = len(body) - rng.choice((0, 0, 1, 3))
            yield struct.pack(">i", kept) + body[:kept]


def test_corrupted_requests_are_answered_or_close_the_connection(controller: Controller) -> None:
    outcomes = {"answered": 0, "closed": 0}
    for frame in corrupted_requests(controller.versions, random.Random(11)):
        with controller.connect() as peer:
            peer.sendall(frame)
            peer.shutdown(socket.SHUT_WR)
            try:
                receive(peer)
            except ConnectionResetError:
                outcomes["closed"] += 1
            else:
                outcomes["answered"] += 1
    assert min(outcomes.values()) > 20, outcomes
    assert "request failed by a fault" not in controller.node.log_text


def test_disconnected_fetching_replicas_leave_no_connection_behind(controller: Controller) -> None:
    """Send fetches that would wait at the end of the log for a day, and hang up."""
    before = controller.node.rss_anon_bytes()
    for number in range(300):
        fetch = make_fetch_request(controller.cluster_id, replica_key(1_000 + number), EPOCH, 0, 0, 0, 1, 0)
        end = controller.replicate(replace(fetch, fetch_offset=Offset(2**63 - 1), last_fetched_epoch=LeaderEpoch(1)))
        assert isinstance(end, FetchResponse)
        assert end.diverging is not None
        waiting = replace(
            fetch, fetch_offset=end.diverging.end_offset, last_fetched_epoch=LeaderEpoch(1), max_wait_ms=86_400_000
        )
        with controller.connect() as peer:
            peer.sendall(b"".join(encode_request(outgoing(waiting, 1_000).build(17), 17, 7, "impatient")))
    wait_until_alone(controller.node)
    assert controller.node.rss_anon_bytes() - before < 4 << 20


def wait_until_alone(node: OttlaNode) -> None:
    deadline = time.monotonic() + 60
    while open_connections(node):
        assert time.monotonic() < deadline, "connections of disconnected replicas stay open"


def open_connections(node: OttlaNode) -> int:
    found = re.search(r'_connection_count\{[^}]*"CONTROLLER"[^}]*\} ([0-9.]+)', node.http("/metrics")[1])
    assert found is not None
    return int(float(found[1]))

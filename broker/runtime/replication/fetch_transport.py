"""How followers reach their leaders: a connection for each fetcher, since a waiting fetch holds up what follows it.

Requests have the newest shape that followers use; what an older leader understands less of is said here in its way.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from broker.net.peer import Connect, NetworkClient, Outcome, PeerError, PeerSettings, SocketAddress, Versioned
from broker.net.peer_connection import PeerLoop
from protocol.api_keys import ApiKey
from protocol.messages import Message
from protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

M = TypeVar("M", bound=Message)

FETCH_VERSIONS: Final = (13, 17)
"""From the first with topic ids to the last that is meant for followers of partitions."""
LIST_OFFSETS_VERSIONS: Final = (4, 11)
"""Special offsets of tiered logs are refused, each by itself, in versions that do not have them."""
EPOCH_ENDS_VERSIONS: Final = (3, 4)
_REPLICA_STATE_FROM: Final = 15

FRAME_SLACK_BYTES: Final = 104_857_600
"""A batch larger than all limits still gets through; it was taken in a request of at most so many bytes."""


class Unanswered(NamedTuple):
    """A request has no answer."""

    reason: str


FetchDone: TypeAlias = Callable[[FetchResponse | Unanswered], None]
OffsetsDone: TypeAlias = Callable[[ListOffsetsResponse | Unanswered], None]
EpochEndsDone: TypeAlias = Callable[[OffsetForLeaderEpochResponse | Unanswered], None]


class LeaderConnection(Protocol):
    """Requests to one leader, answered in order. `done` is called once each, in a later turn, after `close` too."""

    def fetch(self, request: FetchRequest, done: FetchDone) -> None: ...

    def list_offsets(self, request: ListOffsetsRequest, done: OffsetsDone) -> None: ...

    def epoch_ends(self, request: OffsetForLeaderEpochRequest, done: EpochEndsDone) -> None: ...

    def close(self) -> None:
        """Hang up; what is on its way has no answer."""
        ...


class FetchTransport(Protocol):
    """Opens connections; what cannot be reached shows with the first request."""

    def connect(self, endpoint: SocketAddress, client_id: str) -> LeaderConnection: ...


class NetworkFetchTransport:
    """Implements FetchTransport over TCP.

    `timeout_ms` is `replica.socket.timeout.ms`, `response_max_bytes` `replica.fetch.response.max.bytes`.
    """

    def __init__(self, loop: PeerLoop, connect: Connect, *, timeout_ms: int, response_max_bytes: int) -> None:
        self._loop = loop
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._settings = PeerSettings(
            connect_timeout_ms=min(timeout_ms, PeerSettings().connect_timeout_ms),
            frame_bytes_max=min(response_max_bytes + FRAME_SLACK_BYTES, 2**31 - 1),
        )

    def connect(self, endpoint: SocketAddress, client_id: str) -> LeaderConnection:
        """A connection of its own, opened with the first request and again when it was lost."""
        peers = NetworkClient(self._loop, self._connect, client_id=client_id, settings=self._settings)
        return _NetworkConnection(peers, endpoint, self._timeout_ms)


class _NetworkConnection:
    def __init__(self, peers: NetworkClient, endpoint: SocketAddress, timeout_ms: int) -> None:
        self._peers = peers
        self._endpoint = endpoint
        self._timeout_ms = timeout_ms

    def fetch(self, request: FetchRequest, done: FetchDone) -> None:
        versioned = Versioned(ApiKey.FETCH, partial(fetch_in_version, request))
        self._send(versioned, FETCH_VERSIONS, lambda outcome: done(_answer(outcome, FetchResponse)))

    def list_offsets(self, request: ListOffsetsRequest, done: OffsetsDone) -> None:
        versioned = Versioned(ApiKey.LIST_OFFSETS, lambda _version: request)
        self._send(versioned, LIST_OFFSETS_VERSIONS, lambda outcome: done(_answer(outcome, ListOffsetsResponse)))

    def epoch_ends(self, request: OffsetForLeaderEpochRequest, done: EpochEndsDone) -> None:
        versioned = Versioned(ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda _version: request)
        self._send(versioned, EPOCH_ENDS_VERSIONS, lambda outcome: done(_answer(outcome, OffsetForLeaderEpochResponse)))

    def close(self) -> None:
        self._peers.close()

    def _send(self, request: Versioned, versions: tuple[int, int], done: Callable[[Outcome], None]) -> None:
        self._peers.send(self._endpoint, request, done, timeout_ms=self._timeout_ms, versions=versions)


def fetch_in_version(request: FetchRequest, version: int) -> FetchRequest:
    """Before version 15, a follower tells its id elsewhere, and its epoch not at all (KIP-903)."""
    if version >= _REPLICA_STATE_FROM:
        return request
    return replace(request, replica_id=request.replica_state.replica_id, replica_state=ReplicaState())


def _answer(outcome: Outcome, kind: type[M]) -> M | Unanswered:
    if isinstance(outcome, PeerError):
        return Unanswered(str(outcome))
    assert isinstance(outcome, kind), f"asked for {kind.__name__}, got {type(outcome).__name__}"
    return outcome

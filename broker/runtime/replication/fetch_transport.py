"""The connections of fetchers to leaders: one per fetcher, since a waiting fetch blocks the requests behind it.

Requests have the newest shape that followers use; this module adapts them to the versions of an older leader.
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
"""The versions from the first with topic ids to the last for followers of partitions."""
LIST_OFFSETS_VERSIONS: Final = (4, 11)
"""Versions without the special offsets of tiered logs refuse them per partition."""
EPOCH_ENDS_VERSIONS: Final = (3, 4)
_REPLICA_STATE_FROM: Final = 15

FRAME_SLACK_BYTES: Final = 104_857_600
"""A batch larger than all limits still fits; a producer's request was limited to so many bytes."""


class Unanswered(NamedTuple):
    """The outcome of a request without answer."""

    reason: str


FetchDone: TypeAlias = Callable[[FetchResponse | Unanswered], None]
OffsetsDone: TypeAlias = Callable[[ListOffsetsResponse | Unanswered], None]
EpochEndsDone: TypeAlias = Callable[[OffsetForLeaderEpochResponse | Unanswered], None]


class LeaderConnection(Protocol):
    """Requests to one leader, answered in order. Each `done` is called once, in a later loop iteration, after `close`
    too."""

    def fetch(self, request: FetchRequest, done: FetchDone) -> None: ...

    def list_offsets(self, request: ListOffsetsRequest, done: OffsetsDone) -> None: ...

    def epoch_ends(self, request: OffsetForLeaderEpochRequest, done: EpochEndsDone) -> None: ...

    def close(self) -> None:
        """Close the connection; requests under way have no answer."""
        ...


class FetchTransport(Protocol):
    """Opens connections; an unreachable leader shows with the first request."""

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
        """Return a connection that opens with the first request, and again after it was lost."""
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
    """Adapt a request: before version 15, another field has the replica id, none the broker epoch (KIP-903)."""
    if version >= _REPLICA_STATE_FROM:
        return request
    return replace(request, replica_id=request.replica_state.replica_id, replica_state=ReplicaState())


def _answer(outcome: Outcome, kind: type[M]) -> M | Unanswered:
    if isinstance(outcome, PeerError):
        return Unanswered(str(outcome))
    assert isinstance(outcome, kind), f"requested {kind.__name__}, got {type(outcome).__name__}"
    return outcome

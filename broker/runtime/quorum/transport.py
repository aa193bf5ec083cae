"""Carries what the quorum's core says to other nodes, over connections of its own.

Fetches wait on the leader for records to come, and a node answers one request of a connection after the other. So
fetches have one connection to each node and everything else has another: who asks for a vote, or says that it has won,
must not stand behind a question that the other side has no answer to yet.
"""

from collections.abc import Callable
from typing import Final, Protocol

from broker.logs import EventLog
from broker.net.peer import Done, Outcome, PeerError, PeerRefused, Versioned, VersionMismatch
from broker.net.peer_connection import versions_of
from broker.quorum.identity import SocketAddress
from broker.quorum.messages import FetchRequest, FetchSnapshotRequest, Request, Response, SendFailure
from broker.quorum.wire.outgoing import Outgoing, outgoing
from broker.quorum.wire.shape import MalformedResponse
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

_log: Final = EventLog("broker.quorum")

_NEEDS_AN_OPERATOR: Final = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_VOTER_KEY,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Two clusters, two nodes of one id, a wrong address, an old program: no other attempt will end differently."""


class Connections(Protocol):
    """What this needs of `broker.net.peer.NetworkClient`."""

    def send(
        self, endpoint: SocketAddress, request: Versioned, done: Done, *, timeout_ms: float, versions: tuple[int, int]
    ) -> None: ...

    def close(self) -> None: ...


class NetworkTransport:
    """Implements QuorumTransport. `listener` is the name of the listener under which other nodes are reached."""

    def __init__(self, fetches: Connections, others: Connections, *, listener: str) -> None:
        self._fetches = fetches
        self._others = others
        self._listener = listener
        self._refused: dict[tuple[SocketAddress, ApiKey], ErrorCode] = {}

    def send(
        self,
        to_id: int,
        to: SocketAddress,
        request: Request,
        timeout_ms: int,
        done: Callable[[Response | SendFailure], None],
    ) -> None:
        """See `QuorumTransport`. What goes wrong on the way is a SendFailure."""
        out = outgoing(request, timeout_ms)
        connections = self._fetches if isinstance(request, FetchRequest | FetchSnapshotRequest) else self._others
        connections.send(
            to,
            Versioned(out.key, out.build),
            lambda outcome: done(self._received(to_id, to, out, outcome)),
            timeout_ms=timeout_ms,
            versions=(out.lowest_version, versions_of(out.key).high),
        )

    def close(self) -> None:
        """Hang up; what is under way fails."""
        self._fetches.close()
        self._others.close()

    def _received(self, to_id: int, to: SocketAddress, out: Outgoing, outcome: Outcome) -> Response | SendFailure:
        response = self._read(to_id, out, outcome)
        self._tell(to_id, to, out.key, response.error)
        return response

    def _tell(self, to_id: int, to: SocketAddress, api: ApiKey, error: ErrorCode) -> None:
        """Once for a row of refusals: without the line a quorum that cannot be looks like one that is just slow."""
        if error not in _NEEDS_AN_OPERATOR:
            self._refused.pop((to, api), None)
        elif self._refused.get((to, api)) is not error:
            self._refused[to, api] = error
            _log.warning(
                "A node refuses this one", node=to_id, address=f"{to.host}:{to.port}", api=api.name, error=error.name
            )

    def _read(self, to_id: int, out: Outgoing, outcome: Outcome) -> Response | SendFailure:
        if isinstance(outcome, VersionMismatch):
            return SendFailure(ErrorCode.UNSUPPORTED_VERSION)
        if isinstance(outcome, PeerError):
            return SendFailure(ErrorCode.BROKER_NOT_AVAILABLE, isinstance(outcome, PeerRefused))
        try:
            return out.read(outcome, self._listener)
        except MalformedResponse as error:
            _log.warning("A node answered what was not asked", node=to_id, api=out.key.name, error=str(error))
            return SendFailure(ErrorCode.BROKER_NOT_AVAILABLE)

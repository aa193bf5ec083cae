"""The network transport of the quorum, with separate connections for fetches.

A fetch waits on the leader for records, and a node processes the requests of a connection in order. Fetches therefore
use one connection to each node and all other requests a second one, so that a Vote or BeginQuorumEpoch request does not
wait behind a delayed fetch.
"""

from collections.abc import Callable
from typing import Final, Protocol

from broker.logs import EventLog
from broker.net.peer import Done, Outcome, PeerError, PeerRefused, Versioned, VersionMismatch
from broker.net.peer_connection import versions_of
from broker.quorum.identity import SocketAddress
from broker.quorum.messages import (
    ChangeVotersResponse,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    Response,
    SendFailure,
)
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
"""Errors that retries cannot resolve: different clusters, duplicate node ids, a wrong address, or an old version."""


class Connections(Protocol):
    """The part of `broker.net.peer.NetworkClient` that the transport uses."""

    def send(
        self, endpoint: SocketAddress, request: Versioned, done: Done, *, timeout_ms: float, versions: tuple[int, int]
    ) -> None: ...

    def close(self) -> None: ...


class NetworkTransport:
    """Implements QuorumTransport. `listener` is the name of the listener of other nodes."""

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
        """See `QuorumTransport`. A connection error is a SendFailure."""
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
        """Close the connections; requests in flight fail."""
        self._fetches.close()
        self._others.close()

    def _received(self, to_id: int, to: SocketAddress, out: Outgoing, outcome: Outcome) -> Response | SendFailure:
        response = self._read(to_id, out, outcome)
        self._log_refusal(to_id, to, out.key, response)
        return response

    def _log_refusal(self, to_id: int, to: SocketAddress, api: ApiKey, response: Response | SendFailure) -> None:
        """Log the first of several equal errors, because a misconfigured quorum otherwise looks like a slow one."""
        error = response.error
        if error not in _NEEDS_AN_OPERATOR:
            self._refused.pop((to, api), None)
        elif self._refused.get((to, api)) is not error:
            self._refused[to, api] = error
            reason = response.message if isinstance(response, ChangeVotersResponse) else None
            _log.warning(
                "A node refuses requests of this node",
                node=to_id,
                address=f"{to.host}:{to.port}",
                api=api.name,
                error=error.name,
                reason=reason or error.message,
            )

    def _read(self, to_id: int, out: Outgoing, outcome: Outcome) -> Response | SendFailure:
        if isinstance(outcome, VersionMismatch):
            return SendFailure(ErrorCode.UNSUPPORTED_VERSION)
        if isinstance(outcome, PeerError):
            return SendFailure(ErrorCode.BROKER_NOT_AVAILABLE, isinstance(outcome, PeerRefused))
        try:
            return out.read(outcome, self._listener)
        except MalformedResponse as error:
            _log.warning("A node sent a malformed response", node=to_id, api=out.key.name, error=str(error))
            return SendFailure(ErrorCode.BROKER_NOT_AVAILABLE)

"""Common parts of all messages about the metadata log: the single partition, the errors, and the leader's address.

A response has a top-level error and a partition error. The top-level error is for a wrong cluster or partition; errors
that depend on the state of the log are partition errors.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from broker.quorum.identity import NO_NODE, ListenerEndpoint, Listeners, ReplicaKey, SocketAddress
from broker.quorum.messages import LeaderHint
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages import Message
from protocol.primitives import Uuid

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_PARTITION: Final = 0
TOP_LEVEL: Final = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
"""Errors that are top-level errors in a response."""

P = TypeVar("P")


class WrongPartition(Exception):
    """A request that does not name the metadata log's partition once; `response` is the response to send."""

    def __init__(self, response: Message) -> None:
        super().__init__(response)
        self.response = response


class MalformedResponse(Exception):
    """A response without an error that lacks the requested partition."""


class NodeAddress(Protocol):
    """An entry of a response's NodeEndpoints."""

    node_id: int
    host: str
    port: int


class NamedAddress(Protocol):
    """A listener in a request."""

    name: str
    host: str
    port: int


def named_error(code: int) -> ErrorCode:
    """Return the error of a code; UNKNOWN_SERVER_ERROR for a code from a later version."""
    return ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR


def split_error(error: ErrorCode) -> tuple[ErrorCode, ErrorCode]:
    """Return the top-level error and the partition error."""
    return (error, ErrorCode.NONE) if error in TOP_LEVEL else (ErrorCode.NONE, error)


def only(entries: Sequence[P]) -> P | None:
    """Return the only entry; None if there is not exactly one."""
    return entries[0] if len(entries) == 1 else None


def replica_key(replica_id: int, directory_id: Uuid) -> ReplicaKey | None:
    """Return the replica in a message; None for a negative id."""
    return None if replica_id < 0 else ReplicaKey(BrokerId(replica_id), directory_id)


def leader_of(leader_id: int, epoch: int, addresses: Sequence[NodeAddress], listener: str) -> LeaderHint:
    """Return the leader in a response, with its address under the listener of the request."""
    found = tuple(ListenerEndpoint(listener, each.host, each.port) for each in addresses if each.node_id == leader_id)
    return LeaderHint(
        BrokerId(leader_id if leader_id >= 0 else NO_NODE), LeaderEpoch(epoch), found if leader_id >= 0 else ()
    )


def address_of(leader: LeaderHint, listener: str) -> SocketAddress | None:
    """Return the leader's address under the listener of the request; None if unknown."""
    if leader.leader_id < 0:
        return None
    return next((each.endpoint for each in leader.listeners if each.name.upper() == listener.upper()), None)


def listeners_of(entries: Sequence[NamedAddress]) -> Listeners:
    """Return the listeners in a request."""
    return tuple(ListenerEndpoint(each.name, each.host, each.port) for each in entries)

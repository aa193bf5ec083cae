"""What all messages about the metadata log have in common: its one partition, its errors' place, the leader's address.

An answer has room for an error twice: for the request as a whole and for the partition. The first is for requests that
are not about this cluster or this partition at all; everything that the log's state decides stands at the partition.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from broker.quorum.identity import NO_NODE, ListenerEndpoint, Listeners, ReplicaKey, SocketAddress
from broker.quorum.messages import LeaderHint
from protocol.errors import ErrorCode
from protocol.messages import Message
from protocol.primitives import Uuid

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_PARTITION: Final = 0
TOP_LEVEL: Final = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
"""Errors of the core and of those around it that concern the request as a whole."""

P = TypeVar("P")


class WrongPartition(Exception):
    """A request about anything but the metadata log's one partition; `response` answers it."""

    def __init__(self, response: Message) -> None:
        super().__init__(response)
        self.response = response


class MalformedResponse(Exception):
    """A response without error that does not say what was asked."""


class NodeAddress(Protocol):
    """An entry of a response's NodeEndpoints."""

    node_id: int
    host: str
    port: int


class NamedAddress(Protocol):
    """A listener as requests name it."""

    name: str
    host: str
    port: int


def named_error(code: int) -> ErrorCode:
    """The error of a code; a code of a version to come is one that nobody expects."""
    return ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR


def split_error(error: ErrorCode) -> tuple[ErrorCode, ErrorCode]:
    """(error of the request, error of the partition)."""
    return (error, ErrorCode.NONE) if error in TOP_LEVEL else (ErrorCode.NONE, error)


def only(entries: Sequence[P]) -> P | None:
    """The one entry; None if there is none, or a second."""
    return entries[0] if len(entries) == 1 else None


def replica_key(replica_id: int, directory_id: Uuid) -> ReplicaKey | None:
    """The replica that a message names; None where it names none."""
    return None if replica_id < 0 else ReplicaKey(replica_id, directory_id)


def leader_of(leader_id: int, epoch: int, addresses: Sequence[NodeAddress], listener: str) -> LeaderHint:
    """The leader that a response names, with its address under the listener by which the response was got."""
    found = tuple(ListenerEndpoint(listener, each.host, each.port) for each in addresses if each.node_id == leader_id)
    return LeaderHint(leader_id if leader_id >= 0 else NO_NODE, epoch, found if leader_id >= 0 else ())


def address_of(leader: LeaderHint, listener: str) -> SocketAddress | None:
    """Where the leader listens under the name of the listener that the request came in on; None if not known."""
    if leader.leader_id < 0:
        return None
    return next((each.endpoint for each in leader.listeners if each.name.upper() == listener.upper()), None)


def listeners_of(entries: Sequence[NamedAddress]) -> Listeners:
    """The listeners that a request names."""
    return tuple(ListenerEndpoint(each.name, each.host, each.port) for each in entries)

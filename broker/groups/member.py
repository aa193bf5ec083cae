"""A member of a classic group."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from broker.coordination.reply import Reply
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from protocol.messages.sync_group import SyncGroupResponse


class SupportedProtocol(NamedTuple):
    """An assignment protocol that a member supports, with the member's metadata for it."""

    name: str
    metadata: bytes


def supported_protocols(protocols: Iterable[JoinGroupRequestProtocol]) -> tuple[SupportedProtocol, ...]:
    """Return a request's protocols in the client's order of preference; the first of two with the same name counts."""
    by_name: dict[str, SupportedProtocol] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, SupportedProtocol(protocol.name, protocol.metadata))
    return tuple(by_name.values())


@lazy_dataclass(slots=True)
class ClassicGroupMember:
    """A consumer (or Connect worker …) in a group.

    `instance_id` names a static member (KIP-345). `is_new` holds until the first JoinGroup is answered: until then the
    member does not know its id and cannot send heartbeats. At most one of the replies is open.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[SupportedProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_reply: Reply[JoinGroupResponse] | None = None
    sync_reply: Reply[SyncGroupResponse] | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def awaits_join(self) -> bool:
        return self.join_reply is not None

    @property
    def awaits_sync(self) -> bool:
        return self.sync_reply is not None

    @property
    def is_session_suspended(self) -> bool:
        """Whether the member needs no heartbeats now: a request of it is parked, and it was in the group before."""
        return not self.is_new and (self.awaits_join or self.awaits_sync)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for the protocol; empty when it does not support the protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str | None:
        """Return the member's preferred candidate; None when it supports none of them."""
        return next((each.name for each in self.protocols if each.name in candidates), None)

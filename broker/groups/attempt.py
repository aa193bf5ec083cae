"""An attempt to join a group: a JoinGroup request with its caller and reply."""

from broker.coordination.reply import Reply
from broker.groups.answers import join_refused
from broker.groups.caller import Caller
from broker.groups.classic import ClassicGroup
from broker.groups.member import ClassicGroupMember, SupportedProtocol, supported_protocols
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


def requires_known_member_id(api_version: int) -> bool:
    """Whether a new member must retry with the member id that it is given (KIP-394)."""
    return api_version >= 4


def can_skip_assignment(api_version: int) -> bool:
    """Whether a leader understands that it must not assign partitions (KIP-814)."""
    return api_version >= 9


@lazy_dataclass(frozen=True, slots=True)
class JoinAttempt:
    """The data of a JoinGroup request. `member_id` is empty for a client that has none yet."""

    group_id: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: tuple[SupportedProtocol, ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int
    reason: str
    caller: Caller
    reply: Reply[JoinGroupResponse]

    @classmethod
    def of(cls, request: JoinGroupRequest, caller: Caller, reply: Reply[JoinGroupResponse]) -> "JoinAttempt":
        """Build the attempt. In version 0 the session timeout is also the rebalance timeout."""
        has_one_timeout = caller.api_version == 0
        return cls(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            supported_protocols(request.protocols),
            request.session_timeout_ms if has_one_timeout else request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.reason or "not provided",
            caller,
            reply,
        )

    def new_member(self, member_id: str) -> ClassicGroupMember:
        """Return the member that this attempt creates."""
        return ClassicGroupMember(
            member_id,
            self.instance_id,
            self.caller.client_id,
            self.caller.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            is_new=True,
        )

    def park(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Update the member and park the reply. An earlier parked JoinGroup of the member gets an error."""
        group.answer_join(member, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        group.update(member, self.protocols)
        member.rebalance_timeout_ms = self.rebalance_timeout_ms
        member.session_timeout_ms = self.session_timeout_ms
        group.park_join(member, self.reply)

    def refuse(self, error: ErrorCode, member_id: str = "") -> None:
        """Respond with an error."""
        self.reply.complete(join_refused(error, member_id))

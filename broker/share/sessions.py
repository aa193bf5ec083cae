"""Share sessions: the partitions that a member fetches from one broker, and the order of its requests (KIP-932).

A session belongs to a connection. It ends when the member closes it, when a request with epoch 0 replaces it, or with
its connection.
"""

from collections.abc import Iterable
from dataclasses import field
from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1

TopicPartitionId = tuple[Uuid, int]
"""Topic id and partition index."""


class ShareMember(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


@lazy_dataclass(slots=True, eq=False)
class ShareSession:
    """One session. `epoch` is that of the next request; `connection_id` names the connection it belongs to."""

    member: ShareMember
    connection_id: str
    epoch: int = 1
    partitions: dict[TopicPartitionId, None] = field(default_factory=dict)

    def advance(self) -> None:
        """Expect the next request; the epoch after the highest one is 1."""
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def take_turn(self) -> list[TopicPartitionId]:
        """Return the partitions; each request begins with another one, so that all have their turn."""
        if not self.partitions:
            return []
        listed = list(self.partitions)
        turn = self.epoch % len(listed)
        return listed[turn:] + listed[:turn]


class ShareFetchSession(NamedTuple):
    """The session part of ShareFetch."""

    member: ShareMember
    epoch: int
    connection_id: str
    added: tuple[TopicPartitionId, ...]
    forgotten: tuple[TopicPartitionId, ...]
    has_acknowledgements: bool


class ShareSessions:
    """The sessions of a broker: `limit` of them at most (`group.share.max.share.sessions`)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[ShareMember, ShareSession] = {}
        self._group_sizes: dict[str, int] = {}
        self.partition_count = 0
        """The partitions of all sessions."""
        self.evictions = 0
        """Sessions that ended with their connection."""

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session here."""
        return group_id in self._group_sizes

    def fetch(self, request: ShareFetchSession) -> ShareSession | ErrorCode:
        """Open, continue or find the session of a ShareFetch. A session to be closed is found and not changed."""
        if request.epoch == INITIAL_EPOCH:
            return self._open(request)
        session = self._find(request.member, request.epoch)
        if isinstance(session, ErrorCode) or request.epoch == FINAL_EPOCH:
            return session
        former = len(session.partitions)
        for key in request.forgotten:
            session.partitions.pop(key, None)
        session.partitions.update(dict.fromkeys(request.added))
        self.partition_count += len(session.partitions) - former
        session.advance()
        return session

    def acknowledge(self, member: ShareMember, epoch: int) -> ShareSession | ErrorCode:
        """Continue or find the session of a ShareAcknowledge, which can open none."""
        if epoch == INITIAL_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session = self._find(member, epoch)
        if isinstance(session, ShareSession) and epoch != FINAL_EPOCH:
            session.advance()
        return session

    def close(self, member: ShareMember) -> ShareSession | None:
        """Remove the session of a member; the caller releases the member's records."""
        return self._remove(member)

    def disconnect(self, connection_id: str, members: Iterable[ShareMember]) -> list[ShareSession]:
        """Remove the sessions of `members` that still belong to a connection that is gone, and return them."""
        ended: list[ShareSession] = []
        for member in members:
            session = self._sessions.get(member)
            if session is not None and session.connection_id == connection_id:
                self._remove(member)
                self.evictions += 1
                ended.append(session)
        return ended

    def _open(self, request: ShareFetchSession) -> ShareSession | ErrorCode:
        if request.has_acknowledgements:
            return ErrorCode.INVALID_REQUEST
        member = request.member
        self._remove(member)
        if len(self._sessions) >= self._limit:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = ShareSession(member, request.connection_id, partitions=dict.fromkeys(request.added))
        self._sessions[member] = session
        self._group_sizes[member.group_id] = self._group_sizes.get(member.group_id, 0) + 1
        self.partition_count += len(session.partitions)
        return session

    def _find(self, member: ShareMember, epoch: int) -> ShareSession | ErrorCode:
        session = self._sessions.get(member)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch not in (session.epoch, FINAL_EPOCH):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        return session

    def _remove(self, member: ShareMember) -> ShareSession | None:
        session = self._sessions.pop(member, None)
        if session is not None:
            self.partition_count -= len(session.partitions)
            self._group_sizes[member.group_id] -= 1
            if not self._group_sizes[member.group_id]:
                del self._group_sizes[member.group_id]
        return session

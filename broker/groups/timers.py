"""Timers of groups: their causes, and the keys by which a newer timer replaces an older one."""

from typing import NamedTuple

from broker.coordination.timers import TimerQueue
from broker.groups.classic import ClassicGroup
from broker.groups.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from broker.groups.consumer.timers import ConsumerGroupCause
from broker.groups.member import ClassicGroupMember
from broker.groups.share.timers import ShareSessionExpired
from broker.groups.streams.timers import StreamsGroupCause


class SessionExpired(NamedTuple):
    """A member, pending or not, has sent no request for its session timeout."""

    group_id: str
    member_id: str


class InitialDelayOver(NamedTuple):
    """The delay for the first members of an empty group is over; a further delay may take `remaining_ms`."""

    group_id: str
    delay_ms: int
    remaining_ms: int


class JoinPhaseOver(NamedTuple):
    """The rebalance timeout for JoinGroup is over."""

    group_id: str


class SyncPhaseOver(NamedTuple):
    """The rebalance timeout for SyncGroup is over."""

    group_id: str
    generation: int


class ExpiryDue(NamedTuple):
    """Expired offsets must be removed; `remaining` are the groups not yet checked in this round."""

    remaining: tuple[str, ...] = ()
    is_new_round: bool = True


class DeletedTopicsDue(NamedTuple):
    """Offsets of deleted topics must be removed, once all offsets are replayed."""

    topics: frozenset[str]


GroupCause = (
    SessionExpired
    | InitialDelayOver
    | JoinPhaseOver
    | SyncPhaseOver
    | ExpiryDue
    | DeletedTopicsDue
    | ConsumerGroupCause
    | StreamsGroupCause
    | ShareSessionExpired
)

_EXPIRY_KEY = "expiry"


class GroupTimers:
    """Schedules the causes above; one timer per member session, one per group and phase, one for expiry."""

    def __init__(self, queue: TimerQueue[GroupCause]) -> None:
        self.queue = queue

    def renew_session(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Start the member's session timeout anew."""
        self._start_session(group.group_id, member.member_id, member.session_timeout_ms)

    def start_first_session(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Start the timeout of a new member, which has no JoinGroup response yet."""
        self._start_session(group.group_id, member.member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)

    def start_pending_session(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Start the timeout for a pending member to rejoin with the id that it was given."""
        self._start_session(group.group_id, member_id, timeout_ms)

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        self.queue.cancel(_session_key(group.group_id, member_id))

    def start_initial_delay(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        self.queue.schedule(
            _join_key(group.group_id), delay_ms, InitialDelayOver(group.group_id, delay_ms, remaining_ms)
        )

    def start_join_phase(self, group: ClassicGroup) -> None:
        self.queue.schedule(_join_key(group.group_id), group.rebalance_timeout_ms, JoinPhaseOver(group.group_id))

    def end_join_phase(self, group: ClassicGroup) -> None:
        self.queue.cancel(_join_key(group.group_id))

    def start_sync_phase(self, group: ClassicGroup) -> None:
        cause = SyncPhaseOver(group.group_id, group.generation)
        self.queue.schedule(_sync_key(group.group_id), group.rebalance_timeout_ms, cause)

    def end_sync_phase(self, group: ClassicGroup) -> None:
        self.queue.cancel(_sync_key(group.group_id))

    def end_all(self, group: ClassicGroup) -> None:
        """End the timers of a group that has become a consumer group. A downgrade would meet them again."""
        for member_id in (*group.members, *group.pending_joins):
            self.end_session(group, member_id)
        self.end_join_phase(group)
        self.end_sync_phase(group)

    def start_expiry(self, delay_ms: int, cause: ExpiryDue) -> None:
        self.queue.schedule(_EXPIRY_KEY, delay_ms, cause)

    def _start_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        self.queue.schedule(_session_key(group_id, member_id), timeout_ms, SessionExpired(group_id, member_id))


# The length prevents equal keys for group "a", member "b c" and group "a b", member "c".
def _session_key(group_id: str, member_id: str) -> str:
    return f"session {len(group_id)} {group_id} {member_id}"


def _join_key(group_id: str) -> str:
    return f"join {group_id}"


def _sync_key(group_id: str) -> str:
    return f"sync {group_id}"

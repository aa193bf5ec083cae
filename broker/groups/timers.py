"""What groups wait for: the causes of timers, and the keys that let a newer timer replace an older one."""

from typing import NamedTuple

from broker.coordination.timers import TimerQueue
from broker.groups.classic import ClassicGroup
from broker.groups.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from broker.groups.member import ClassicGroupMember


class SessionExpired(NamedTuple):
    """No sign of life from a member, pending or not, for its session timeout."""

    group_id: str
    member_id: str


class InitialDelayOver(NamedTuple):
    """The wait for the first members of an empty group is over, or goes on: `remaining_ms` may still be spent."""

    group_id: str
    delay_ms: int
    remaining_ms: int


class JoinPhaseOver(NamedTuple):
    """The members had their rebalance timeout to join again."""

    group_id: str


class SyncPhaseOver(NamedTuple):
    """The members of a generation had their rebalance timeout to send SyncGroup."""

    group_id: str
    generation: int


class ExpiryDue(NamedTuple):
    """Time to look for expired offsets; `remaining` are the groups not yet looked at in this round."""

    remaining: tuple[str, ...] = ()
    is_new_round: bool = True


GroupCause = SessionExpired | InitialDelayOver | JoinPhaseOver | SyncPhaseOver | ExpiryDue

_EXPIRY_KEY = "expiry"


class GroupTimers:
    """Schedules the causes above; one timer per member session, one per group and phase, one for expiry."""

    def __init__(self, queue: TimerQueue[GroupCause]) -> None:
        self.queue = queue

    def renew_session(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Give the member its session timeout from now."""
        self._start_session(group.group_id, member.member_id, member.session_timeout_ms)

    def start_first_session(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Give a member that has not had an answer yet the time new members get."""
        self._start_session(group.group_id, member.member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)

    def start_pending_session(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Give a client that was told its member id the time to come back with it."""
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

    def start_expiry(self, delay_ms: int, cause: ExpiryDue) -> None:
        self.queue.schedule(_EXPIRY_KEY, delay_ms, cause)

    def _start_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        self.queue.schedule(_session_key(group_id, member_id), timeout_ms, SessionExpired(group_id, member_id))


# Lengths keep apart what concatenation would confuse: group "a", member "b c" and group "a b", member "c".
def _session_key(group_id: str, member_id: str) -> str:
    return f"session {len(group_id)} {group_id} {member_id}"


def _join_key(group_id: str) -> str:
    return f"join {group_id}"


def _sync_key(group_id: str) -> str:
    return f"sync {group_id}"

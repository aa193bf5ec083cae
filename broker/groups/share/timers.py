"""Timers of share groups: the sessions of members."""

from typing import Any, NamedTuple

from broker.coordination.timers import TimerQueue


class ShareSessionExpired(NamedTuple):
    """A member has sent no heartbeat for the session timeout."""

    group_id: str
    member_id: str


class ShareGroupTimers:
    """Schedules the cause above, one per member."""

    def __init__(self, queue: TimerQueue[Any]) -> None:
        self._queue = queue

    def renew_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        self._queue.schedule(_key(group_id, member_id), timeout_ms, ShareSessionExpired(group_id, member_id))


# The length prevents equal keys for group "a", member "b c" and group "a b", member "c".
def _key(group_id: str, member_id: str) -> str:
    return f"share-session {len(group_id)} {group_id} {member_id}"

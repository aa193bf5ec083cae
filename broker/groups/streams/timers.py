"""Timers of streams groups: sessions, the time to give up tasks, and the initial rebalance delay."""

from typing import Any, NamedTuple

from broker.coordination.timers import TimerQueue


class StreamsSessionExpired(NamedTuple):
    """A member has sent no heartbeat for the session timeout."""

    group_id: str
    member_id: str


class TaskRevocationOverdue(NamedTuple):
    """A member has not given up tasks within its rebalance timeout; counts if it is still in that epoch."""

    group_id: str
    member_id: str
    member_epoch: int


class StreamsInitialDelayOver(NamedTuple):
    """The delay for the first members of an empty group is over."""

    group_id: str


StreamsGroupCause = StreamsSessionExpired | TaskRevocationOverdue | StreamsInitialDelayOver


class StreamsGroupTimers:
    """Schedules the causes above: at most one of each per member, and one initial delay per group."""

    def __init__(self, queue: TimerQueue[Any]) -> None:
        self._queue = queue

    def renew_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        key = _key("streams-session", group_id, member_id)
        self._queue.schedule(key, timeout_ms, StreamsSessionExpired(group_id, member_id))

    def await_revocation(self, group_id: str, member_id: str, member_epoch: int, timeout_ms: int) -> None:
        key = _key("streams-revocation", group_id, member_id)
        self._queue.schedule(key, timeout_ms, TaskRevocationOverdue(group_id, member_id, member_epoch))

    def end_revocation(self, group_id: str, member_id: str) -> None:
        self._queue.cancel(_key("streams-revocation", group_id, member_id))

    def start_initial_delay(self, group_id: str, delay_ms: int) -> None:
        """Start the delay, unless it runs already."""
        if delay_ms > 0 and not self.is_delayed(group_id):
            self._queue.schedule(_delay_key(group_id), delay_ms, StreamsInitialDelayOver(group_id))

    def is_delayed(self, group_id: str) -> bool:
        """Whether the initial delay of the group runs."""
        return _delay_key(group_id) in self._queue

    def end_initial_delay(self, group_id: str) -> None:
        self._queue.cancel(_delay_key(group_id))

    def end_member(self, group_id: str, member_id: str) -> None:
        """Cancel every timer of the member."""
        for kind in ("streams-session", "streams-revocation"):
            self._queue.cancel(_key(kind, group_id, member_id))


# The length prevents equal keys for group "a", member "b c" and group "a b", member "c".
def _key(kind: str, group_id: str, member_id: str) -> str:
    return f"{kind} {len(group_id)} {group_id} {member_id}"


def _delay_key(group_id: str) -> str:
    return f"streams-initial-delay {group_id}"

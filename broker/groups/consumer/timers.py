"""Timers of consumer groups: sessions, the time to revoke partitions, and the phases of classic members."""

from typing import Any, NamedTuple

from broker.coordination.timers import TimerQueue


class ConsumerSessionExpired(NamedTuple):
    """A member has sent no heartbeat for the session timeout."""

    group_id: str
    member_id: str


class RevocationOverdue(NamedTuple):
    """A member has not given up partitions within its rebalance timeout; counts if it is still in that epoch."""

    group_id: str
    member_id: str
    member_epoch: int


class ClassicJoinOverdue(NamedTuple):
    """A classic member has not rejoined a consumer group within its rebalance timeout."""

    group_id: str
    member_id: str


class ClassicSyncOverdue(NamedTuple):
    """A classic member has sent no SyncGroup within its rebalance timeout."""

    group_id: str
    member_id: str


ConsumerGroupCause = ConsumerSessionExpired | RevocationOverdue | ClassicJoinOverdue | ClassicSyncOverdue


class ConsumerGroupTimers:
    """Schedules the causes above, at most one of each per member."""

    def __init__(self, queue: TimerQueue[Any]) -> None:
        self._queue = queue

    def renew_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        key = _key("consumer-session", group_id, member_id)
        self._queue.schedule(key, timeout_ms, ConsumerSessionExpired(group_id, member_id))

    def await_revocation(self, group_id: str, member_id: str, member_epoch: int, timeout_ms: int) -> None:
        key = _key("consumer-revocation", group_id, member_id)
        self._queue.schedule(key, timeout_ms, RevocationOverdue(group_id, member_id, member_epoch))

    def awaits_revocation(self, group_id: str, member_id: str, member_epoch: int) -> bool:
        """Whether the time to revoke in this epoch runs already."""
        cause = self._queue.cause(_key("consumer-revocation", group_id, member_id))
        return isinstance(cause, RevocationOverdue) and cause.member_epoch == member_epoch

    def end_revocation(self, group_id: str, member_id: str) -> None:
        self._queue.cancel(_key("consumer-revocation", group_id, member_id))

    def await_join(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Start the time to rejoin, unless it runs already."""
        key = _key("consumer-join", group_id, member_id)
        if key not in self._queue:
            self._queue.schedule(key, timeout_ms, ClassicJoinOverdue(group_id, member_id))

    def end_join(self, group_id: str, member_id: str) -> None:
        self._queue.cancel(_key("consumer-join", group_id, member_id))

    def await_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        key = _key("consumer-sync", group_id, member_id)
        self._queue.schedule(key, timeout_ms, ClassicSyncOverdue(group_id, member_id))

    def end_sync(self, group_id: str, member_id: str) -> None:
        self._queue.cancel(_key("consumer-sync", group_id, member_id))

    def end_all(self, group_id: str, member_id: str) -> None:
        """Cancel every timer of the member."""
        for kind in ("consumer-session", "consumer-revocation", "consumer-join", "consumer-sync"):
            self._queue.cancel(_key(kind, group_id, member_id))


# The length prevents equal keys for group "a", member "b c" and group "a b", member "c".
def _key(kind: str, group_id: str, member_id: str) -> str:
    return f"{kind} {len(group_id)} {group_id} {member_id}"

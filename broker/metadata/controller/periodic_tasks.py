"""Periodic tasks of the active controller: fence expired brokers, rebalance leaders, expire tokens, write NoOpRecords.

Times are monotonic milliseconds. A task is an ordinary command; this module decides when it is due.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from broker.metadata.controller.brokers import Brokers
from broker.metadata.controller.delegation_tokens import DelegationTokens
from broker.metadata.controller.leader_and_isr_updates import LeaderAndIsrUpdates
from broker.metadata.controller.partition_changes import Election
from broker.metadata.controller.result import CommandResult, ControllerResult
from broker.metadata.controller.split_changes import split_changes
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.partition_index import PartitionId
from broker.metadata.image.records import VersionedRecord
from protocol.messages.metadata_records import NoOpRecord

PeriodicTask: TypeAlias = Callable[[int], CommandResult[None]]

# One run of an election task writes at most this many records, so that requests are served between runs.
MAX_ELECTIONS_PER_RUN: Final = 1_000
_CONTINUE_AFTER_MS: Final = 10


class PeriodicTasks:
    """The due time of each task; None while a task has nothing to do."""

    def __init__(
        self, state: ControllerState, brokers: Brokers, leader_and_isr: LeaderAndIsrUpdates, tokens: DelegationTokens
    ) -> None:
        self._state = state
        self._brokers = brokers
        self._tokens = tokens
        self._leader_and_isr = leader_and_isr
        self._noop_due_ms: int | None = None
        self._balance_due_ms: int | None = None
        self._unclean_due_ms: int | None = None
        self._tokens_due_ms: int | None = None
        self._leaderless_due_ms: int | None = None

    def arm(self, now_ms: int) -> None:
        """Schedule the tasks of a controller that has become active."""
        settings = self._state.settings
        self._noop_due_ms = now_ms + settings.max_idle_interval_ms if settings.max_idle_interval_ms > 0 else None
        self._balance_due_ms = self._unclean_due_ms = None
        self._leaderless_due_ms = now_ms if self._state.index.leaderless_count else None
        tokens = settings.tokens
        self._tokens_due_ms = None if tokens.secret is None else now_ms + tokens.expiry_check_interval_ms
        self.rearm(now_ms)

    def rearm(self, now_ms: int) -> None:
        """Schedule election tasks after a metadata change, only while there are partitions to elect."""
        settings, index = self._state.settings, self._state.index
        if not settings.auto_leader_rebalance or not index.imbalanced_count:
            self._balance_due_ms = None
        elif self._balance_due_ms is None:
            self._balance_due_ms = now_ms + settings.leader_imbalance_check_interval_ms
        if not index.leaderless_count:
            self._unclean_due_ms = None
        elif self._unclean_due_ms is None:
            self._unclean_due_ms = now_ms + settings.unclean_election_interval_ms

    def next_due_ms(self) -> int | None:
        """Return when `due` is next non-empty unless metadata changes before."""
        times = (
            self._noop_due_ms,
            self._balance_due_ms,
            self._unclean_due_ms,
            self._tokens_due_ms,
            self._leaderless_due_ms,
            self._session_due_ms(),
        )
        return min((time for time in times if time is not None), default=None)

    def due(self, now_ms: int) -> list[PeriodicTask]:
        """Return the tasks that are due, to be executed one after the other."""
        tasks: list[PeriodicTask] = []
        if _is_due(self._session_due_ms(), now_ms):
            tasks.append(self._fence)
        if _is_due(self._leaderless_due_ms, now_ms):
            tasks.append(self._elect_where_leaderless)
        if _is_due(self._balance_due_ms, now_ms):
            tasks.append(self._balance)
        if _is_due(self._unclean_due_ms, now_ms):
            tasks.append(self._elect_uncleanly)
        if _is_due(self._tokens_due_ms, now_ms):
            tasks.append(self._expire_tokens)
        if _is_due(self._noop_due_ms, now_ms):
            tasks.append(self._noop)
        return tasks

    def _session_due_ms(self) -> int | None:
        """Return when the next session expires; brokers leave one at a time, so that requests are not held up."""
        return None if self._state.leaving else self._state.sessions.next_expiry_ms()

    def _fence(self, now_ms: int) -> CommandResult[None]:
        return self._brokers.fence_expired(now_ms=now_ms)

    def _elect_where_leaderless(self, _now_ms: int) -> CommandResult[None]:
        """Elect leaders once after activation: a previous controller may have failed while unfencing a broker."""
        self._leaderless_due_ms = None
        return split_changes(
            self._leader_and_isr.elect_where_leaderless(), lambda records: ControllerResult(records, None, atomic=False)
        )

    def _noop(self, now_ms: int) -> ControllerResult[None]:
        self._noop_due_ms = now_ms + self._state.settings.max_idle_interval_ms
        return ControllerResult([VersionedRecord(NoOpRecord(), 0)], None)

    def _expire_tokens(self, now_ms: int) -> ControllerResult[None]:
        """Remove expired tokens by the log's time, which lags by at most the interval of NoOpRecords."""
        self._tokens_due_ms = now_ms + self._state.settings.tokens.expiry_check_interval_ms
        return self._tokens.sweep(self._state.image.provenance.timestamp_ms)

    def _balance(self, now_ms: int) -> ControllerResult[None]:
        records, more = self._elect_all(self._state.index.imbalanced(), Election.PREFERRED)
        interval = _CONTINUE_AFTER_MS if more else self._state.settings.leader_imbalance_check_interval_ms
        self._balance_due_ms = now_ms + interval
        return ControllerResult(records, None, atomic=False)

    def _elect_uncleanly(self, now_ms: int) -> ControllerResult[None]:
        topics = self._state.image.topics
        allowed = []
        for partition in self._state.index.leaderless():
            topic = topics.by_id(partition.topic_id)
            if topic is not None and self._state.allows_unclean_election(topic.name):
                allowed.append(partition)
        records, more = self._elect_all(allowed, Election.UNCLEAN)
        interval = _CONTINUE_AFTER_MS if more else self._state.settings.unclean_election_interval_ms
        self._unclean_due_ms = now_ms + interval
        return ControllerResult(records, None, atomic=False)

    def _elect_all(self, partitions: list[PartitionId], election: Election) -> tuple[list[VersionedRecord], bool]:
        """Return the records of one run of elections, and whether elections are left."""
        records: list[VersionedRecord] = []
        for partition in partitions:
            record = self._leader_and_isr.elect(partition, election)
            if record is None:
                continue
            if len(records) == MAX_ELECTIONS_PER_RUN:
                return records, True
            records.append(record)
        return records, False


def _is_due(time_ms: int | None, now_ms: int) -> bool:
    return time_ms is not None and time_ms <= now_ms

"""Deletion of a topic's remote log after tiering was disabled (`remote.log.delete.on.disable`, KIP-950).

The leader raises the log start offset to the local log start offset and deletes all remote segments; every later leader
checks whether any are left. A leader that finds a later term deletes nothing (`term_fence.py`). Followers do nothing:
they learn the log start offset from the leader.
"""

from collections.abc import Callable

from broker.logs import EventLog
from broker.runtime.remote_log.expiration import DELETIONS_A_TURN, ExpirationTools
from broker.runtime.remote_log.leadership_term import LeadershipTerm
from broker.runtime.remote_log.log_starts import withdraw_log_start
from broker.runtime.remote_log.segments import PASSING_ERRORS, SegmentRounds
from storage.tiered.errors import RemoteMetadataNotReady
from storage.tiered.stores.backoff import Failures

_log = EventLog("broker.remote")


class RemoteLogDeletionTask:
    """The deletion for one partition during one leadership term; calls `on_done` when no segment is left."""

    def __init__(self, term: LeadershipTerm, tools: ExpirationTools, on_done: Callable[[LeadershipTerm], None]) -> None:
        self._term = term
        self._tools = tools
        self._on_done = on_done
        self._fence = tools.fence
        self._failures = Failures()
        self._rounds = SegmentRounds()

    async def run_once(self) -> float | None:
        """See RecurringTask: delete some segments."""
        if self._term.is_over():
            return None
        try:
            is_done = await self._step()
        except PASSING_ERRORS as error:
            if not isinstance(error, RemoteMetadataNotReady):
                _log.warning("could not delete remote segments of a log", partition=self._term, reason=error)
            return self._failures.next_delay_ms(self._tools.settings().backoff, self._tools.random)
        self._failures.clear()
        if is_done and not self._term.is_over():
            self._on_done(self._term)
        if is_done or self._term.is_over():
            return None
        settings = self._tools.settings()
        return float(settings.task_interval_ms if self._term.is_deposed else settings.backoff.initial_ms)

    async def _step(self) -> bool:
        term, tools = self._term, self._tools
        if not term.may_touch_log() or not await self._fence.may_delete(term):
            return False
        partition = term.partition
        if partition.log.maybe_increment_log_start_offset(partition.log.local_log_start_offset):
            partition.on_log_start_moved()
        metadata, copying = tools.segments.metadata, frozenset(tools.copying())
        segments, _ = self._rounds.next(
            metadata.known(term.id), DELETIONS_A_TURN, lambda segment: segment.id.id not in copying
        )
        if segments:
            await tools.remember_start(partition.log)
        for segment in segments:
            if not await self._fence.may_delete(term):
                return False
            await tools.segments.delete(segment)
        if len(metadata.known(term.id)):
            return False
        await withdraw_log_start(tools.log_starts, tools.pool, term.id, term.epoch)
        return True

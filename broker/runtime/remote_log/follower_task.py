"""Periodic look-up of the highest remote offset of a log, below which local segments may be deleted (KIP-405).

A leader updates the offset after its own copies, and runs the task as well: a missing segment is copied again then.
"""

from collections.abc import Callable

from broker.runtime.remote_log.leadership_term import LeadershipTerm, learn_remote_end
from broker.runtime.remote_log.settings import RemoteLogSettings
from storage.tiered.errors import RemoteMetadataNotReady
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.stores.backoff import Failures


class RemoteFollowerTask:
    """The look-ups for one partition during one leadership term."""

    def __init__(
        self,
        term: LeadershipTerm,
        metadata: RemoteLogMetadataManager,
        settings: Callable[[], RemoteLogSettings],
        random: Callable[[], float],
    ) -> None:
        self._term = term
        self._metadata = metadata
        self._settings = settings
        self._random = random
        self._failures = Failures()

    async def run_once(self) -> float | None:
        """See RecurringTask. Reads memory only."""
        if self._term.is_over():
            return None
        settings = self._settings()
        try:
            if self._term.may_touch_log():
                learn_remote_end(self._term, self._metadata)
        except RemoteMetadataNotReady:
            return self._failures.next_delay_ms(settings.backoff, self._random)
        self._failures.clear()
        return float(settings.task_interval_ms)

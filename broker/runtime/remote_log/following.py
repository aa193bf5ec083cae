"""Learns now and then how far remote storage has a log, so that its segments may leave this disk (KIP-405, follower
task). A leader knows of its own copies at once, and looks too: should anything be missing, it is copied again.
"""

from collections.abc import Callable

from broker.runtime.remote_log.settings import RemoteLogSettings
from broker.runtime.remote_log.tiered_partition import Reign, learn_remote_end
from storage.tiered.errors import RemoteMetadataNotReady
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.stores.backoff import Failures


class RemoteFollowing:
    """The turns of one reign."""

    def __init__(
        self,
        reign: Reign,
        metadata: RemoteLogMetadataManager,
        settings: Callable[[], RemoteLogSettings],
        random: Callable[[], float],
    ) -> None:
        self._reign = reign
        self._metadata = metadata
        self._settings = settings
        self._random = random
        self._failures = Failures()

    async def run_once(self) -> float | None:
        """See RecurringTask. Reads memory only."""
        if self._reign.is_over():
            return None
        settings = self._settings()
        try:
            if self._reign.may_touch_log():
                learn_remote_end(self._reign, self._metadata)
        except RemoteMetadataNotReady:
            return self._failures.next_delay_ms(settings.backoff, self._random)
        self._failures.clear()
        return float(settings.task_interval_ms)

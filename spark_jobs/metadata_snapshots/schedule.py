"""The schedule of snapshots: by KIP-630's conditions, or by time alone. The rule itself is the quorum's."""

from dataclasses import dataclass
from typing import Final

from broker.quorum.snapshots.rules import SnapshotTrigger, TriggerSettings
from spark_jobs.metadata_snapshots.commits import Commit

# Kafka's defaults of metadata.snapshot.min.changed_records.ratio, metadata.log.max.record.bytes.between.snapshots and
# metadata.log.max.snapshot.interval.ms.
MIN_CHANGED_RATIO: Final = 0.5
MIN_BYTES: Final = 20 * 1024 * 1024
INTERVAL_S: Final = 3600.0
_NO_BYTES_ARE_ENOUGH: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Schedule:
    """A stateless rule: its input is in the commit, which outlives the job."""

    settings: TriggerSettings

    @classmethod
    def by_conditions(cls, min_changed_ratio: float = MIN_CHANGED_RATIO, min_bytes: int = MIN_BYTES) -> "Schedule":
        """Return the conditions of a node, which include one hour since the last snapshot if records were committed."""
        interval_ms = int(INTERVAL_S * 1000)
        settings = TriggerSettings(min_changed_ratio=min_changed_ratio, min_bytes=min_bytes, interval_ms=interval_ms)
        return cls(settings)

    @classmethod
    def by_time(cls, seconds: float) -> "Schedule":
        """Return a schedule of every `seconds` seconds, if records were committed."""
        interval_ms = max(1, int(seconds * 1000))
        return cls(TriggerSettings(min_changed_ratio=1.0, min_bytes=_NO_BYTES_ARE_ENOUGH, interval_ms=interval_ms))

    def is_due(self, commit: Commit, since_last_ms: float) -> bool:
        """Whether a snapshot at this commit is due, `since_last_ms` after the last one or the start."""
        if commit.is_open or not commit.end:
            return False
        trigger = SnapshotTrigger(self.settings, 0)
        if commit.snapshot_records >= 0:
            trigger.on_snapshot(commit.snapshot_records, 0)
        trigger.on_log_read(commit.since.bytes)
        trigger.on_changed(commit.since.changed)
        return trigger.is_due(since_last_ms)

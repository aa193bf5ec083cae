"""Planted bugs in the recovery of the metadata log."""

from broker.quorum.settings import Recovered
from broker.runtime.quorum.metadata_log import RaftMetadataLog
from broker.runtime.quorum.metadata_recovery import MetadataRecovery
from broker.runtime.quorum.synced_end import SyncedEndFile
from storage.config import LogConfig
from storage.files import FileSystem
from storage.log import Log
from storage.synced_records import SyncedRecords


class _UncheckedRecovery(MetadataRecovery):
    def _synced_records(self) -> SyncedRecords:
        return SyncedRecords()


class TakesRotForTornTails(RaftMetadataLog):
    """Cuts the log at the first damaged batch, however far below the synced end."""

    @classmethod
    def open(cls, fs: FileSystem, directory: str, config: LogConfig, now_ms: int) -> "RaftMetadataLog":
        recovery = _UncheckedRecovery(fs, directory, config, now_ms)
        recovered = recovery.run()
        return cls(fs, directory, recovery.log, recovery.synced_end, recovered)


class _NeverLowered(SyncedEndFile):
    def lower(self, end: int) -> None:
        """Leave the bound as it is."""


class TruncatesBelowSyncedEnd(RaftMetadataLog):
    """Truncates the log without lowering the recorded synced end."""

    def __init__(
        self, fs: FileSystem, directory: str, log: Log, synced_end: SyncedEndFile, recovered: Recovered
    ) -> None:
        super().__init__(fs, directory, log, synced_end, recovered)
        synced_end.__class__ = _NeverLowered

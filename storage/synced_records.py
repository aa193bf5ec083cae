"""Checks of a log against what is known to have been synced.

A power failure tears the end of a log that was never synced; recovery cuts it off. Rot destroys synced batches
anywhere, and a cut there would lose records that this node has acknowledged. The lower bound of the synced end
distinguishes the two. The checksum of a batch covers neither its base offset nor its leader epoch: below the bound,
offsets must have no gap, and recovery compares the epochs with the checkpointed ones.
"""

from typing import NamedTuple

from protocol.ids import LeaderEpoch
from protocol.records.batch import BatchHeader
from storage.errors import SyncedRecordsLost
from storage.files import join
from storage.segment import LOG_SUFFIX, LogSegment, segment_file_name


class SyncedRecords(NamedTuple):
    """Facts about a log whose offsets have no gaps and whose batches all have a leader epoch.

    `end`: all records below this offset were synced. `max_epoch`: no record from `end` on has a later leader epoch, if
    known; a torn header may show one.
    """

    end: int = 0
    max_epoch: LeaderEpoch | None = None

    def admits(self, header: BatchHeader, expected_offset: int) -> bool:
        """Whether a batch may follow a log that ends at `expected_offset`, by its offset and epoch alone."""
        if header.base_offset != expected_offset or header.leader_epoch < 0:
            return False
        return self.max_epoch is None or header.leader_epoch <= self.max_epoch or expected_offset < self.end

    def check_end(self, directory: str, last: LogSegment | None) -> None:
        """Raise SyncedRecordsLost if the log in `directory` must not end at the present end of `last`, or be empty."""
        if last is None and self.end > 0:
            raise SyncedRecordsLost(join(directory, segment_file_name(0, LOG_SUFFIX)), 0, 0, self.end)
        if last is not None and last.next_offset < self.end:
            raise SyncedRecordsLost(last.path(LOG_SUFFIX), last.size, last.next_offset, self.end)

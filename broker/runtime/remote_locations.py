"""Where in remote storage an offset of a hosted partition is, by the metadata and the partition's own leader epochs.

The same offset may be in several segments, of several histories (KIP-405, scenarios 3 to 5). What counts is the history
of this replica's log; a segment counts as far as it agrees with that.
"""

from typing import NamedTuple

from broker.runtime.partition import Partition
from storage.tiered.errors import RemoteStorageError
from storage.tiered.lineage import NO_OFFSET, Lineage, claimed_remote_offset
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition


class SegmentMissing(RemoteStorageError):
    """An offset should be in remote storage, but no segment is known that has it: perhaps it is not known here yet."""


class Located(NamedTuple):
    """A segment that has the offset asked for, and the last offset up to which it is of the log's history."""

    segment: RemoteSegment
    last_offset: int


class RemoteLocations:
    """Questions about partitions; all raise RemoteMetadataNotReady."""

    def __init__(self, metadata: RemoteLogMetadataManager) -> None:
        self._metadata = metadata

    def locate(self, partition: Partition, offset: int) -> Located:
        """Raises SegmentMissing."""
        lineage = _lineage(partition)
        epoch = lineage.epoch_for(offset)
        segment = None if epoch is None else self._metadata.segment_for(_identity(partition), epoch, offset)
        last_offset = NO_OFFSET if segment is None else lineage.agreed_end(segment)
        if segment is None or last_offset < offset:
            raise SegmentMissing(f"no remote segment of {partition} is known to hold offset {offset} of epoch {epoch}")
        return Located(segment, last_offset)

    def with_aborted(self, partition: Partition, offset: int) -> Located | None:
        """The first segment from `offset` on that may tell of aborted transactions; None if there is none."""
        lineage = _lineage(partition)
        present = lineage.epoch_for(offset)
        if present is not None:
            for epoch, start_offset in lineage.entries:
                if epoch >= present:
                    found = self._with_aborted(partition, lineage, epoch, max(offset, start_offset))
                    if found is not None:
                        return found
        return None

    def _with_aborted(self, partition: Partition, lineage: Lineage, epoch: int, offset: int) -> Located | None:
        while (segment := self._metadata.next_with_aborted(_identity(partition), epoch, offset)) is not None:
            last_offset = lineage.agreed_end(segment)
            if last_offset >= offset:
                return Located(segment, last_offset)
            offset = segment.end_offset + 1
        return None

    def highest_offset(self, partition: Partition) -> int:
        """The last offset of this log that remote storage has; -1 if it has none."""
        identity = _identity(partition)
        return claimed_remote_offset(_lineage(partition), lambda epoch: self._metadata.highest_offset(identity, epoch))


def _identity(partition: Partition) -> TopicIdPartition:
    return TopicIdPartition(partition.topic_id, partition.topic, partition.index)


def _lineage(partition: Partition) -> Lineage:
    log = partition.log
    return Lineage(log.epochs.entries, log.log_end_offset)

"""What became certain of each partition, over all its replicas: the committed batches, as the first leader told.

With unclean elections certainty ends: the leader's log is what counts then, and history begins anew where that log
parts from it. Whoever leads in an older epoch speaks of a past that is no more.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from tests.simulation.replication.disk import ReplicaName
from tests.simulation.watched_disk import LoggedBatch


class Seen(NamedTuple):
    """A replica between two events, as it says of itself."""

    is_leader: bool
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    log_start_offset: int

    @property
    def committed(self) -> tuple[int, int]:
        """What it takes for committed and serves: from its log start to its high watermark."""
        return self.log_start_offset, self.high_watermark


class Written(NamedTuple):
    """What a batch of some epoch at some offset is, wherever it lies. `before` is the batch in front of it, as (epoch,
    base offset); None if it is not known."""

    crc: int
    end_offset: int
    before: tuple[int, int] | None


class History:
    """Of one partition. `generation` grows when what was certain is so no longer."""

    def __init__(self, name: ReplicaName, *, is_clean: bool) -> None:
        self.name = name
        self.is_clean = is_clean
        self.batches: list[LoggedBatch] = []
        self.generation = 0
        self.deleted_to = 0
        """Below it, records were deleted on demand."""
        self.needed_from = 0
        """Below it, a replica need not have records: they were deleted, and no leader has begun anew there since."""
        self.lineage_epoch = -1
        """The leader epoch of the last unclean election."""
        self.is_recovering = False
        """Whether that leader has yet to take up its role."""
        self.written: dict[tuple[int, int], Written] = {}
        """By epoch and base offset: every batch that any replica ever had."""
        self.leaders: dict[int, int] = {}
        """Who led in each epoch."""
        self._idempotent: set[int] = set()

    @property
    def promises(self) -> bool:
        """Whether nothing that was committed may ever go: the topic wants it so, and luck did not run out."""
        return self.is_clean and self.lineage_epoch < 0

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    @property
    def first_needed(self) -> int:
        """The index of the first batch that replicas must have."""
        return bisect_right(self.batches, self.needed_from, key=lambda batch: batch.end_offset)

    @property
    def deleted(self) -> list[LoggedBatch]:
        """What was committed, and need not be there any more."""
        return self.batches[: self.first_needed]

    def note_written(self, batch: LoggedBatch, before: tuple[int, int] | None) -> str | None:
        """A replica has a batch, behind `before` (see Written); what is wrong with that, None if nothing is.

        Where records were deleted, nobody knows or asks what they were.
        """
        key = (batch.epoch, batch.base_offset)
        known = self.written.get(key)
        if known is None:
            self.written[key] = Written(batch.crc, batch.end_offset, before)
            return None
        if (known.crc, known.end_offset) != (batch.crc, batch.end_offset):
            return "with other records than another replica"
        if None not in (before, known.before) and before != known.before and batch.base_offset > self.deleted_to:
            return f"behind {before}, and another replica behind {known.before}"
        if known.before is None and before is not None:
            self.written[key] = known._replace(before=before)
        return None

    def ending_at(self, end_offset: int) -> LoggedBatch | None:
        """The committed batch that ends at an offset."""
        index = bisect_left(self.batches, end_offset, key=lambda batch: batch.end_offset)
        found = self.batches[index] if index < len(self.batches) else None
        return found if found is not None and found.end_offset == end_offset else None

    def at(self, base_offset: int) -> LoggedBatch | None:
        """The committed batch that begins at an offset."""
        index = bisect_left(self.batches, base_offset, key=lambda batch: batch.base_offset)
        found = self.batches[index] if index < len(self.batches) else None
        return found if found is not None and found.base_offset == base_offset else None

    def note_idempotent(self, crc: int) -> bool:
        """A batch of an idempotent producer is committed; False if it was before, and is still needed: a replica that
        began behind what was deleted knows nothing of who sent it."""
        if crc in self._idempotent and all(batch.crc != crc for batch in self.deleted):
            return False
        self._idempotent.add(crc)
        return True

    def delete(self, offset: int) -> None:
        """Whoever may decide it wants nothing below an offset any more."""
        self.deleted_to = max(self.deleted_to, offset)
        self.needed_from = max(self.needed_from, offset)

    def go_back(self, log: Sequence[LoggedBatch], log_start: int, is_idempotent: set[int]) -> list[LoggedBatch]:
        """Only what this log has is certain now, or had before its start; returns what is lost.

        Where the log ends before records that were deleted elsewhere, other records come in their place.
        """
        kept = 0
        have = {batch.base_offset: batch for batch in log}
        for batch in self.batches:
            same = have.get(batch.base_offset)
            if (same is None or not same.is_same(batch)) and batch.end_offset > log_start:
                break
            kept += 1
        lost = self.batches[kept:]
        del self.batches[kept:]
        self._idempotent -= {batch.crc for batch in lost} & is_idempotent
        self.needed_from = min(self.needed_from, self.end)
        self.generation += 1
        return lost

"""The committed batches of each partition, as reported by the first leader that committed them.

An unclean election ends that certainty: the new leader's log counts, and the history continues from the offset at which
that log diverges. State of older leader epochs no longer counts.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from tests.simulation.replication.disk import ReplicaName
from tests.simulation.watched_disk import LoggedBatch


class Seen(NamedTuple):
    """The state that a replica reports between two events."""

    is_leader: bool
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    log_start_offset: int

    @property
    def committed(self) -> tuple[int, int]:
        """Return the range that the replica serves as committed: log start offset to high watermark."""
        return self.log_start_offset, self.high_watermark


class Written(NamedTuple):
    """Content of a batch by epoch and offset, on any replica. `before` is the preceding batch as (epoch, base offset);
    None if unknown.
    """

    crc: int
    end_offset: int
    before: tuple[int, int] | None


class History:
    """History of one partition. `generation` increases when committed records become uncertain."""

    def __init__(self, name: ReplicaName, *, is_clean: bool) -> None:
        self.name = name
        self.is_clean = is_clean
        self.batches: list[LoggedBatch] = []
        self.generation = 0
        self.deleted_to = 0
        """The offset below which records were deleted by DeleteRecords."""
        self.needed_from = 0
        """The offset below which replicas need no records: they were deleted, and no leader has truncated below since.
        """
        self.lineage_epoch = -1
        """The leader epoch of the last unclean election."""
        self.is_recovering = False
        """Whether that leader has not yet applied its role."""
        self.written: dict[tuple[int, int], Written] = {}
        """Every batch that any replica ever had, by epoch and base offset."""
        self.leaders: dict[int, int] = {}
        """The leader of each epoch."""
        self._idempotent: set[int] = set()

    @property
    def promises(self) -> bool:
        """Whether committed records must survive: the topic is configured so, and no fault beyond its guarantees
        occurred.
        """
        return self.is_clean and self.lineage_epoch < 0

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    @property
    def first_needed(self) -> int:
        """Return the index of the first batch that replicas must have."""
        return bisect_right(self.batches, self.needed_from, key=lambda batch: batch.end_offset)

    @property
    def deleted(self) -> list[LoggedBatch]:
        """Return the committed batches that replicas need no longer have."""
        return self.batches[: self.first_needed]

    def note_written(self, batch: LoggedBatch, before: tuple[int, int] | None) -> str | None:
        """Record a batch of a replica after `before` (see Written); return the mismatch, or None.

        Below deleted records, contents are unknown and not compared.
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
        """Return the committed batch that ends at an offset."""
        index = bisect_left(self.batches, end_offset, key=lambda batch: batch.end_offset)
        found = self.batches[index] if index < len(self.batches) else None
        return found if found is not None and found.end_offset == end_offset else None

    def at(self, base_offset: int) -> LoggedBatch | None:
        """Return the committed batch that begins at an offset."""
        index = bisect_left(self.batches, base_offset, key=lambda batch: batch.base_offset)
        found = self.batches[index] if index < len(self.batches) else None
        return found if found is not None and found.base_offset == base_offset else None

    def note_idempotent(self, crc: int) -> bool:
        """Record a committed batch of an idempotent producer; return False for a duplicate of a batch that is still
        needed. A replica that started above deleted records does not know their producers.
        """
        if crc in self._idempotent and all(batch.crc != crc for batch in self.deleted):
            return False
        self._idempotent.add(crc)
        return True

    def has_idempotent(self, crc: int) -> bool:
        """Whether a batch of an idempotent producer was committed."""
        return crc in self._idempotent

    def delete(self, offset: int) -> None:
        """Record a DeleteRecords of an authorized client."""
        self.deleted_to = max(self.deleted_to, offset)
        self.needed_from = max(self.needed_from, offset)

    def go_back(self, log: Sequence[LoggedBatch], log_start: int, is_idempotent: set[int]) -> list[LoggedBatch]:
        """Keep only what this log has, or had before its start, as committed; return the lost batches.

        If the log ends below records deleted elsewhere, other records replace them.
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

"""What a controller command gives: records to append and an answer to hold back until they are committed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from broker.metadata.image.records import VersionedRecord

R = TypeVar("R", covariant=True)

# Most records in one batch, and so the most that may change as one.
MAX_RECORDS_PER_BATCH: Final = 10_000
# What need not change as one is written in smaller batches: whoever follows replays a batch without a pause, and this
# many records take some 20 ms.
RECORDS_PER_SPLIT_BATCH: Final = 1_000


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R]):
    """`records` all take effect together if `atomic`; else they may be split into batches, in order."""

    records: Sequence[VersionedRecord]
    response: R
    atomic: bool = True

    def batches(self) -> list[Sequence[VersionedRecord]]:
        """The records as batches to append, in order."""
        if self.atomic or len(self.records) <= RECORDS_PER_SPLIT_BATCH:
            return [self.records] if self.records else []
        starts = range(0, len(self.records), RECORDS_PER_SPLIT_BATCH)
        return [self.records[start : start + RECORDS_PER_SPLIT_BATCH] for start in starts]


@dataclass(frozen=True, slots=True)
class PartialResult(Generic[R]):
    """The beginning of what a command writes, and the command that goes on from there, to be run a little later.

    Other commands get their turn in between and see what the records did. Whoever leads after a failure knows nothing
    of the rest: what stands in the log after each portion must be a state that somebody will bring to its end.
    """

    records: Sequence[VersionedRecord]
    rest: "Callable[[int], CommandResult[R]]"  # of the time

    def batches(self) -> list[Sequence[VersionedRecord]]:
        """The records as one batch."""
        return [self.records] if self.records else []


CommandResult: TypeAlias = ControllerResult[R] | PartialResult[R]

"""Results of controller commands: records to append, and a response to hold back until they are committed."""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from broker.metadata.image.records import VersionedRecord
from protocol.lazy_dataclass import lazy_dataclass

R = TypeVar("R", covariant=True)
S = TypeVar("S")

# The most records in one batch, and so in one atomic change.
MAX_RECORDS_PER_BATCH: Final = 10_000
# Non-atomic changes are written in smaller batches: a replica replays a batch without a pause, and this many records
# take some 20 ms.
RECORDS_PER_SPLIT_BATCH: Final = 1_000
# The most partitions that one turn creates or deletes, unless one topic has more. This takes some 5 ms,
# and replicas apply one or two parts in a turn.
PARTITIONS_PER_PART: Final = 200


@lazy_dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R]):
    """The records and response of a command. `atomic` records take effect together; others may be split in order."""

    records: Sequence[VersionedRecord]
    response: R
    atomic: bool = True

    def batches(self) -> list[Sequence[VersionedRecord]]:
        """Return the records as batches to append, in order."""
        if self.atomic or len(self.records) <= RECORDS_PER_SPLIT_BATCH:
            return [self.records] if self.records else []
        starts = range(0, len(self.records), RECORDS_PER_SPLIT_BATCH)
        return [self.records[start : start + RECORDS_PER_SPLIT_BATCH] for start in starts]


@lazy_dataclass(frozen=True, slots=True)
class PartialResult(Generic[R]):
    """The first part of a command's records, and the command that continues from there in a later turn.

    Other commands run in between and see the records' effect. The next active controller does not know the rest: the
    log must hold a state after each part from which any controller reaches the end.
    """

    records: Sequence[VersionedRecord]
    rest: "Callable[[int], CommandResult[R]]"  # of the monotonic time in ms

    def batches(self) -> list[Sequence[VersionedRecord]]:
        """Return the records as one batch."""
        return [self.records] if self.records else []


CommandResult: TypeAlias = ControllerResult[R] | PartialResult[R]


def map_response(result: CommandResult[R], finish: Callable[[R], S]) -> CommandResult[S]:
    """Return the result with `finish(response)` in place of the response."""
    if isinstance(result, PartialResult):
        rest = result.rest
        return PartialResult(result.records, lambda now_ms: map_response(rest(now_ms), finish))
    return ControllerResult(result.records, finish(result.response), result.atomic)

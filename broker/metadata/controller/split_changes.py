"""Changes of tens of thousands of partitions, portion by portion: a broker's fate must not make the others wait.

A broker that is being taken out of its partitions counts as `leaving` until the last of them: it is elected nowhere and
joins no in-sync set, although the image has it active. What makes that lasting (the record that fences it, say) is
written last, as Kafka does: if this controller fails before, its successor finds a broker that still has to be fenced,
and will come to fence it for the same reason.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from broker.metadata.controller.result import RECORDS_PER_SPLIT_BATCH, CommandResult, PartialResult
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.records import VersionedRecord

R = TypeVar("R")

# Partitions looked at, changed or not, before others get their turn.
_LOOKS_PER_PORTION: Final = 10 * RECORDS_PER_SPLIT_BATCH

Changes = Iterator[VersionedRecord | None]
"""Decided as they are taken, on the image of that moment; None where nothing is to change."""
Finish = Callable[[list[VersionedRecord]], CommandResult[R]]
"""What to write and answer at the end, behind the last records."""


def split_changes(changes: Changes, finish: Finish[R]) -> CommandResult[R]:
    """All the changes, then the finish; a single result if they are few."""
    records: list[VersionedRecord] = []
    for looks, change in enumerate(changes, 1):
        if change is not None:
            records.append(change)
        if len(records) >= RECORDS_PER_SPLIT_BATCH or looks >= _LOOKS_PER_PORTION:
            return PartialResult(records, lambda _now_ms: split_changes(changes, finish))
    return finish(records)


def split_broker_removal(
    state: ControllerState, broker_id: int, changes: Changes, finish: Finish[R]
) -> CommandResult[R]:
    """As `split_changes`, with the broker leaving meanwhile."""
    is_over = False

    def conclude(records: list[VersionedRecord]) -> CommandResult[R]:
        nonlocal is_over
        is_over = True
        state.leaving.discard(broker_id)
        return finish(records)

    outcome = split_changes(changes, conclude)
    if not is_over:
        state.leaving.add(broker_id)
    return outcome


def retry_after_removal(
    state: ControllerState, broker_id: int, command: Callable[[int], CommandResult[R]]
) -> PartialResult[R] | None:
    """For commands on a broker that is leaving: the same once more, a little later. None if it is not."""
    return PartialResult((), command) if broker_id in state.leaving else None

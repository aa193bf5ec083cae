"""Changes of tens of thousands of partitions in parts, so that one broker event does not hold up other requests.

A broker that is being removed from its partitions is in `ControllerState.leaving` until the last of them: it is not
elected and joins no in-sync set, although the image shows it as active. The record that makes this permanent, such as
the one that fences the broker, is written last, as in Kafka. If this controller fails before, the next one finds a
broker that is still to be fenced, and fences it for the same reason.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from broker.metadata.controller.result import RECORDS_PER_SPLIT_BATCH, CommandResult, PartialResult
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.records import VersionedRecord

R = TypeVar("R")

# The most partitions examined, changed or not, before other commands run.
_LOOKS_PER_PORTION: Final = 10 * RECORDS_PER_SPLIT_BATCH

Changes = Iterator[VersionedRecord | None]
"""Changes, decided on the current image as they are taken; None where a partition does not change."""
Finish = Callable[[list[VersionedRecord]], CommandResult[R]]
"""Return the result that ends the command, given the last records."""


def split_changes(changes: Changes, finish: Finish[R]) -> CommandResult[R]:
    """Return the first part of the changes; `finish` ends the last part. A few changes are a single result."""
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
    """Split the changes that remove a broker from its partitions, and mark the broker as leaving meanwhile."""
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
    """Return a retry of a command on a leaving broker, None if the broker is not leaving."""
    return PartialResult((), command) if broker_id in state.leaving else None

"""Known kinds of bugs of share partitions, planted one at a time.

`PLANTED` names the invariants of which one must fail, and the number of seeds within which it must.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from broker.share.in_flight import Run
from broker.share.partition import PersistedState, SharePartition, ShareUpdate
from broker.share.records import DeliveryBatch, RecordState, ShareLimits
from broker.share_state.state import ShareState
from protocol.errors import ErrorCode
from tests.simulation.replication.campaign import Patch
from tests.simulation.share.coordinator import CoordinatorModel

EVENTS: Final = 2_000

_init = SharePartition.__init__
_settle = SharePartition._settle
_begin = SharePartition._begin
_updated = ShareState.updated


class PlantedShareBug(NamedTuple):
    """A bug, the invariants of which one must fail, and the number of seeds within which it must."""

    patches: Sequence[Patch]
    catchers: Sequence[str]
    seeds: int


def _offer_pending(run: Run) -> bool:
    return run.state is RecordState.AVAILABLE


def _take_any(partition: SharePartition, member_id: str, batch: Any) -> ErrorCode:
    is_known = partition.start_offset <= batch.first and batch.last < partition.end_offset
    runs = partition._in_flight.overlapping(batch.first, batch.last)
    is_acquired = all(run.state is RecordState.ACQUIRED and run.transition is None for run in runs)
    return ErrorCode.NONE if is_known and runs and is_acquired else ErrorCode.INVALID_RECORD_STATE


def _count_at_once(partition: SharePartition, update: ShareUpdate, run: Run, state: RecordState) -> None:
    _begin(partition, update, run, state)
    run.settle(run.state)


def _release_without_limit(partition: SharePartition, update: ShareUpdate, run: Run, state: RecordState) -> None:
    limits = partition.limits
    partition.limits = limits._replace(delivery_limit=1_000)
    _begin(partition, update, run, state)
    partition.limits = limits


def _forget_state(partition: SharePartition, limits: ShareLimits, epoch: int, state: PersistedState) -> None:
    _init(partition, limits, epoch, replace(state, batches=()))


def _skip_gaps(partition: SharePartition, batches: Sequence[DeliveryBatch]) -> None:
    for first, last, state, count in sorted(batches):
        partition._append(first, last, state, count)
    partition._advance()


def _never_roll_back(partition: SharePartition, update: ShareUpdate, *, is_persisted: bool) -> None:
    if is_persisted:
        _settle(partition, update, is_persisted=True)


def _move_start_to_end_of_done(partition: SharePartition) -> None:
    for run in list(partition._in_flight):
        if run.is_done:
            partition._in_flight.drop_below(run.last + 1)
    first = partition._in_flight.first
    partition.start_offset = partition.end_offset if first is None else max(partition.start_offset, first.first)
    partition._available_from = max(partition._available_from, partition.start_offset)


def _take_start_as_it_comes(state: ShareState, epoch: int, start: int, done: int, batches: Iterable[Any]) -> ShareState:
    former = state if start == -1 else replace(state, start_offset=start)
    return _updated(former, epoch, start, done, batches)


def _load_acquired_anew(partition: SharePartition, batches: Sequence[DeliveryBatch]) -> None:
    for first, last, _, _ in sorted(batches):
        if partition.end_offset < first:
            partition._append(partition.end_offset, first - 1, RecordState.AVAILABLE, 0)
        partition._append(first, last, RecordState.AVAILABLE, 0)
    partition._advance()


PLANTED: Final[Mapping[str, PlantedShareBug]] = {
    "records are delivered while their release is being persisted": PlantedShareBug(
        [Patch(Run, "is_available", property(_offer_pending))],
        ("RecordsHaveOneHolder", "NothingIsSkipped", "EverythingIsFinished"),
        10,
    ),
    "members acknowledge records of others": PlantedShareBug(
        [Patch(SharePartition, "_check", _take_any)], ("OnlyHoldersAcknowledge",), 10
    ),
    "locks never elapse": PlantedShareBug(
        [Patch(SharePartition, "expire", lambda partition, now_ms: ShareUpdate())], ("EverythingIsFinished",), 10
    ),
    "acknowledgements count before they are persisted": PlantedShareBug(
        [Patch(SharePartition, "_begin", _count_at_once), Patch(SharePartition, "_queue", lambda *_: None)],
        ("AcknowledgedRecordsStaySo", "RecordsHaveOneHolder", "EverythingIsFinished"),
        10,
    ),
    "releases ignore the delivery limit": PlantedShareBug(
        [Patch(SharePartition, "_begin", _release_without_limit)], ("DeliveriesAreLimited",), 10
    ),
    "a new leader ignores the persisted batches": PlantedShareBug(
        [Patch(SharePartition, "__init__", _forget_state)], ("AcknowledgedRecordsStaySo",), 10
    ),
    "a new leader takes persisted batches for undelivered": PlantedShareBug(
        [Patch(SharePartition, "_load", _load_acquired_anew)], ("AcknowledgedRecordsStaySo",), 10
    ),
    "a new leader skips offsets without persisted state": PlantedShareBug(
        [Patch(SharePartition, "_load", _skip_gaps)], ("NothingIsSkipped",), 10
    ),
    "records of a failed write stay in between": PlantedShareBug(
        [Patch(SharePartition, "_settle", _never_roll_back)], ("EverythingIsFinished",), 10
    ),
    "the start offset passes unfinished records": PlantedShareBug(
        [Patch(SharePartition, "_advance", _move_start_to_end_of_done)], ("NothingIsSkipped",), 10
    ),
    "late writes move the start offset back": PlantedShareBug(
        [Patch(ShareState, "updated", _take_start_as_it_comes)], ("AcknowledgedRecordsStaySo",), 30
    ),
    "writes of former leaders are taken": PlantedShareBug(
        [Patch(CoordinatorModel, "is_fenced", lambda coordinator, epoch: False)],
        ("AcknowledgedRecordsStaySo", "NothingIsSkipped"),
        30,
    ),
}
"""Planted bugs by name."""

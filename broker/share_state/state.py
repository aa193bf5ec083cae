"""The state of one share partition, as the share coordinator keeps it."""

from collections.abc import Iterable
from dataclasses import replace
from heapq import heappop, heappush
from typing import Final, NamedTuple

from protocol.lazy_dataclass import lazy_dataclass

UNCHANGED: Final = -1
"""A start offset or an epoch of a write that leaves the former one in place."""
NO_COUNT: Final = -1
FIRST_LEADER_EPOCH: Final = 0


class StateBatch(NamedTuple):
    """Records from `first_offset` to `last_offset` in one delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """The state of a share partition. `batches` do not overlap, and stand in order.

    `state_epoch` counts initializations, `snapshot_epoch` snapshots. `delivery_complete_count` is the number of records
    in flight that are done with, −1 if unknown. `create_ms` is the time of the last snapshot with new state, and
    `write_ms` of any snapshot.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = NO_COUNT
    batches: tuple[StateBatch, ...] = ()
    create_ms: int = 0
    write_ms: int = 0

    def updated(
        self, leader_epoch: int, start_offset: int, delivery_complete_count: int, batches: Iterable[StateBatch]
    ) -> "ShareState":
        """Apply a write; its batches may overlap the present ones.

        The start offset never goes back within a state epoch: a write that arrives late or twice would otherwise open
        the window for records again whose states are pruned. Apache Kafka takes the offset as it comes.
        """
        start_offset = max(self.start_offset, start_offset)
        return replace(
            self,
            leader_epoch=self.leader_epoch if leader_epoch == UNCHANGED else leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            batches=combined((*self.batches, *batches), start_offset),
        )


def combined(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches without overlaps, from `start_offset` on (−1: all).

    Of two states of a record, that with the higher delivery count is newer; among equals, that with the higher state.
    Equal neighbours are joined. O(n log n).
    """
    waiting = sorted(
        StateBatch(max(first, start_offset), last, state, count)
        for first, last, state, count in batches
        if last >= max(first, start_offset)
    )
    edges = sorted({each.first_offset for each in waiting} | {each.last_offset + 1 for each in waiting})
    result: list[StateBatch] = []
    open_batches: list[tuple[int, int, int]] = []
    position = 0
    for index, first in enumerate(edges[:-1]):
        while position < len(waiting) and waiting[position].first_offset == first:
            _, last, state, count = waiting[position]
            heappush(open_batches, (-count, -state, last))
            position += 1
        while open_batches and open_batches[0][2] < first:
            heappop(open_batches)
        if open_batches:
            count, state, _ = open_batches[0]
            _append(result, StateBatch(first, edges[index + 1] - 1, -state, -count))
    return tuple(result)


def _append(result: list[StateBatch], batch: StateBatch) -> None:
    """Add a batch, or extend the last one if it ends right before and has the same state."""
    last = result[-1] if result else None
    if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
        result[-1] = last._replace(last_offset=batch.last_offset)
    else:
        result.append(batch)

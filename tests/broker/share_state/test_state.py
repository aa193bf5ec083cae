"""States of share partitions: batches without overlaps (`broker.share_state.state`)."""

from itertools import pairwise
from random import Random

import pytest

from broker.share_state.state import ShareState, StateBatch, combined

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def by_offset(batches: list[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    """Return the newest count and state of each record, one by one."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(max(first, start_offset), last + 1):
            found[offset] = max(found.get(offset, (-1, -1)), (count, state))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_combined_batches_hold_the_newest_state_of_each_record(seed: int) -> None:
    random = Random(seed)
    batches = []
    for _ in range(random.randrange(12)):
        first = random.randrange(30)
        last = first + random.randrange(8)
        batches.append(StateBatch(first, last, random.choice([AVAILABLE, ACKNOWLEDGED, ARCHIVED]), random.randrange(3)))
    start_offset = random.choice([-1, 0, 7, 40])
    result = combined(batches, start_offset)
    assert by_offset(list(result), -1) == by_offset(batches, start_offset)
    for former, latter in pairwise(result):
        assert former.last_offset < latter.first_offset
        assert former.last_offset + 1 < latter.first_offset or former[2:] != latter[2:]


def test_later_delivery_replaces_the_middle_of_a_batch() -> None:
    batches = combined([StateBatch(100, 110, AVAILABLE, 1), StateBatch(104, 105, ACKNOWLEDGED, 1)], -1)
    assert batches == (
        StateBatch(100, 103, AVAILABLE, 1),
        StateBatch(104, 105, ACKNOWLEDGED, 1),
        StateBatch(106, 110, AVAILABLE, 1),
    )


def test_late_update_does_not_move_the_start_back() -> None:
    state = ShareState(snapshot_epoch=0, state_epoch=0, leader_epoch=0, start_offset=10)
    assert state.updated(-1, 5, -1, ()).start_offset == 10


def test_update_moves_the_start_and_keeps_what_follows() -> None:
    state = ShareState(snapshot_epoch=2, state_epoch=1, leader_epoch=3, start_offset=100, create_ms=5, write_ms=5)
    state = state.updated(-1, -1, 2, [StateBatch(100, 109, ACKNOWLEDGED, 1), StateBatch(112, 119, AVAILABLE, 1)])
    assert (state.leader_epoch, state.start_offset, state.delivery_complete_count) == (3, 100, 2)
    moved = state.updated(4, 115, 0, [])
    assert (moved.leader_epoch, moved.start_offset, moved.delivery_complete_count) == (4, 115, 0)
    assert moved.batches == (StateBatch(115, 119, AVAILABLE, 1),)
    assert (moved.snapshot_epoch, moved.state_epoch, moved.create_ms) == (2, 1, 5)

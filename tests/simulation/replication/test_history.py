"""Committed batches after an unclean election equal those of the new leader, and equal batches of two replicas are
recognized.
"""

from itertools import pairwise

from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.history import History
from tests.simulation.watched_disk import LoggedBatch


def batches(*offsets: int, epoch: int = 0) -> list[LoggedBatch]:
    """Return consecutive batches, each from one offset to the next."""
    return [LoggedBatch(base, end, epoch, 1000 * epoch + base, end, None, None) for base, end in pairwise(offsets)]


def history(*offsets: int, deleted_to: int = 0) -> History:
    """Return a history with these committed batches."""
    made = History(ReplicaName("t", 0), is_clean=True)
    made.batches = batches(*offsets)
    made.delete(deleted_to)
    return made


def test_batches_missing_on_the_new_leader_are_lost() -> None:
    then = history(0, 3, 5, 9)
    assert then.go_back(batches(0, 3, 5), 0, set()) == batches(5, 9)
    assert (then.end, then.needed_from, then.generation) == (5, 0, 1)


def test_batches_differing_on_the_new_leader_are_lost() -> None:
    then = history(0, 3, 5, 9)
    assert then.go_back(batches(0, 3) + batches(3, 5, 9, epoch=1), 0, set()) == batches(3, 5, 9)
    assert then.end == 3


def test_deleted_batches_below_the_leaders_log_start_are_not_lost() -> None:
    then = history(0, 3, 5, 9, deleted_to=5)
    assert then.go_back(batches(5, 9), 5, set()) == []
    assert (then.end, then.needed_from) == (9, 5)


def test_leader_with_pending_deletion_does_not_restore_records() -> None:
    then = history(0, 3, 5, 9, deleted_to=5)
    assert then.go_back(batches(0, 3, 5, 9), 0, set()) == []
    assert (then.end, then.needed_from) == (9, 5)


def test_leader_with_empty_disk_restarts_below_deleted_records() -> None:
    """A leader with an empty disk must have the records that replace deleted ones."""
    then = history(0, 3, 5, 9, deleted_to=5)
    assert then.go_back([], 0, set()) == batches(0, 3, 5, 9)
    assert (then.end, then.first_needed, then.deleted_to) == (0, 0, 5)
    then.batches = batches(0, 4, epoch=1)
    assert then.batches[then.first_needed :] == batches(0, 4, epoch=1)


def test_lost_idempotent_batches_may_be_retried() -> None:
    then = history(0, 3, 5)
    (first, second) = then.batches
    assert then.note_idempotent(first.crc)
    assert then.note_idempotent(second.crc)
    then.go_back([first], 0, {first.crc, second.crc})
    assert not then.note_idempotent(first.crc)
    assert then.note_idempotent(second.crc)


def test_equal_batches_have_equal_records_and_predecessors() -> None:
    then = history()
    (batch,) = batches(3, 5, epoch=1)
    assert then.note_written(batch, None) is None
    assert then.note_written(batch, (0, 2)) is None
    assert then.note_written(batch._replace(crc=7), (0, 2)) == "with other records than another replica"
    assert then.note_written(batch, (1, 2)) == "behind (1, 2), and another replica behind (0, 2)"


def test_deleted_batches_may_differ() -> None:
    then = history(deleted_to=3)
    for batch in batches(3, 5, 6, epoch=1):
        then.note_written(batch, (0, batch.base_offset - 1))
    first, second = batches(3, 5, 6, epoch=1)
    assert then.note_written(first, (1, 2)) is None
    assert then.note_written(second, (1, 4)) is not None


def test_batches_entirely_below_the_offset_are_deleted() -> None:
    assert history(0, 3, 5, 9, deleted_to=6).deleted == batches(0, 3, 5)


def test_deleted_idempotent_batch_may_be_retried() -> None:
    then = history(0, 3, 5)
    for batch in then.batches:
        assert then.note_idempotent(batch.crc)
    assert not then.note_idempotent(then.batches[0].crc)
    then.delete(3)
    assert then.note_idempotent(then.batches[0].crc)
    assert not then.note_idempotent(then.batches[1].crc)

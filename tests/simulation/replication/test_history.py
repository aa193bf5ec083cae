"""What counts as committed after an unclean election: what the new leader has, and nothing of what it has not; and
when two replicas have the same."""

from itertools import pairwise

from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.history import History
from tests.simulation.watched_disk import LoggedBatch


def batches(*offsets: int, epoch: int = 0) -> list[LoggedBatch]:
    """One after the other, each from an offset to the next."""
    return [LoggedBatch(base, end, epoch, 1000 * epoch + base, end, None, None) for base, end in pairwise(offsets)]


def history(*offsets: int, deleted_to: int = 0) -> History:
    """With these batches committed."""
    made = History(ReplicaName("t", 0), is_clean=True)
    made.batches = batches(*offsets)
    made.delete(deleted_to)
    return made


def test_what_the_leader_lacks_is_lost() -> None:
    then = history(0, 3, 5, 9)
    assert then.go_back(batches(0, 3, 5), 0, set()) == batches(5, 9)
    assert (then.end, then.needed_from, then.generation) == (5, 0, 1)


def test_what_the_leader_has_otherwise_is_lost() -> None:
    then = history(0, 3, 5, 9)
    assert then.go_back(batches(0, 3) + batches(3, 5, 9, epoch=1), 0, set()) == batches(3, 5, 9)
    assert then.end == 3


def test_what_was_deleted_before_the_leaders_start_is_not_missed() -> None:
    then = history(0, 3, 5, 9, deleted_to=5)
    assert then.go_back(batches(5, 9), 5, set()) == []
    assert (then.end, then.needed_from) == (9, 5)


def test_a_leader_that_has_yet_to_delete_changes_nothing_for_others() -> None:
    then = history(0, 3, 5, 9, deleted_to=5)
    assert then.go_back(batches(0, 3, 5, 9), 0, set()) == []
    assert (then.end, then.needed_from) == (9, 5)


def test_a_leader_with_an_empty_disk_begins_anew_below_what_was_deleted() -> None:
    """What comes in the place of deleted records is needed."""
    then = history(0, 3, 5, 9, deleted_to=5)
    assert then.go_back([], 0, set()) == batches(0, 3, 5, 9)
    assert (then.end, then.first_needed, then.deleted_to) == (0, 0, 5)
    then.batches = batches(0, 4, epoch=1)
    assert then.batches[then.first_needed :] == batches(0, 4, epoch=1)


def test_idempotent_batches_that_are_lost_may_come_again() -> None:
    then = history(0, 3, 5)
    (first, second) = then.batches
    assert then.note_idempotent(first.crc)
    assert then.note_idempotent(second.crc)
    then.go_back([first], 0, {first.crc, second.crc})
    assert not then.note_idempotent(first.crc)
    assert then.note_idempotent(second.crc)


def test_a_batch_is_the_same_records_behind_the_same_batch() -> None:
    then = history()
    (batch,) = batches(3, 5, epoch=1)
    assert then.note_written(batch, None) is None
    assert then.note_written(batch, (0, 2)) is None
    assert then.note_written(batch._replace(crc=7), (0, 2)) == "with other records than another replica"
    assert then.note_written(batch, (1, 2)) == "behind (1, 2), and another replica behind (0, 2)"


def test_what_was_deleted_may_differ() -> None:
    then = history(deleted_to=3)
    for batch in batches(3, 5, 6, epoch=1):
        then.note_written(batch, (0, batch.base_offset - 1))
    first, second = batches(3, 5, 6, epoch=1)
    assert then.note_written(first, (1, 2)) is None
    assert then.note_written(second, (1, 4)) is not None


def test_deleted_is_what_lies_wholly_below() -> None:
    assert history(0, 3, 5, 9, deleted_to=6).deleted == batches(0, 3, 5)


def test_a_producers_batch_may_come_again_once_it_was_deleted() -> None:
    then = history(0, 3, 5)
    for batch in then.batches:
        assert then.note_idempotent(batch.crc)
    assert not then.note_idempotent(then.batches[0].crc)
    then.delete(3)
    assert then.note_idempotent(then.batches[0].crc)
    assert not then.note_idempotent(then.batches[1].crc)

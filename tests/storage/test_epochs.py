"""The leader epoch cache (KIP-101): examples, and a model that stores the epoch of every offset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.ids import LeaderEpoch
from storage.directories.checkpoints import LeaderEpochEntry
from storage.epochs import EpochAndOffset, LeaderEpochs
from storage.files import read_file
from tests.protocol.profile import more_examples
from tests.support.fakes.memory_files import MemoryFileSystem


def cache(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(
        MemoryFileSystem(), "epochs", [LeaderEpochEntry(LeaderEpoch(number), at) for number, at in entries]
    )


def test_epochs_end_where_the_next_begins() -> None:
    epochs = cache((1, 0), (3, 10), (5, 25))
    assert epochs.end_offset_for(LeaderEpoch(1), 40) == EpochAndOffset(LeaderEpoch(1), 10)
    assert epochs.end_offset_for(LeaderEpoch(2), 40) == EpochAndOffset(LeaderEpoch(1), 10)
    assert epochs.end_offset_for(LeaderEpoch(3), 40) == EpochAndOffset(LeaderEpoch(3), 25)
    assert epochs.end_offset_for(LeaderEpoch(5), 40) == EpochAndOffset(LeaderEpoch(5), 40)


def test_unknown_epochs_have_no_end_offset() -> None:
    assert cache((1, 0)).end_offset_for(LeaderEpoch(2), 40) == EpochAndOffset(LeaderEpoch(-1), -1)
    assert cache((1, 0)).end_offset_for(LeaderEpoch(-1), 40) == EpochAndOffset(LeaderEpoch(-1), -1)
    assert cache().end_offset_for(LeaderEpoch(0), 40) == EpochAndOffset(LeaderEpoch(-1), -1)


def test_epoch_before_the_first_known_ends_where_that_begins() -> None:
    assert cache((4, 7), (5, 9)).end_offset_for(LeaderEpoch(2), 40) == EpochAndOffset(LeaderEpoch(2), 7)


def test_epoch_for_offset_is_found() -> None:
    epochs = cache((1, 5), (3, 10))
    assert [epochs.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [None, 1, 1, 3, 3]


def test_assigning_the_latest_epoch_again_changes_nothing() -> None:
    epochs = cache((1, 5))
    epochs.assign(LeaderEpoch(1), 8)
    assert epochs.entries == [(1, 5)]
    assert epochs.latest_epoch == 1


def test_new_epoch_drops_contradicting_entries() -> None:
    epochs = cache((1, 5), (2, 10), (4, 20))
    epochs.assign(LeaderEpoch(3), 15)
    assert epochs.entries == [(1, 5), (2, 10), (3, 15)]
    epochs.assign(LeaderEpoch(5), 10)
    assert epochs.entries == [(1, 5), (5, 10)]


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_raise_value_error(entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError):
        cache().assign(LeaderEpoch(entry[0]), entry[1])


def test_truncation_from_start_shortens_an_epoch() -> None:
    epochs = cache((1, 0), (2, 10), (3, 20))
    epochs.truncate_from_start(15)
    assert epochs.entries == [(2, 15), (3, 20)]
    epochs.truncate_from_start(20)
    assert epochs.entries == [(3, 20)]
    epochs.truncate_from_start(5)
    assert epochs.entries == [(3, 20)]


def test_only_changes_are_written() -> None:
    fs = MemoryFileSystem()
    epochs = LeaderEpochs.load(fs, "epochs")
    epochs.save()
    assert not fs.exists("epochs")
    epochs.assign(LeaderEpoch(2), 7)
    epochs.save()
    assert read_file(fs, "epochs") == b"0\n1\n2 7\n"
    assert LeaderEpochs.load(fs, "epochs").entries == [(2, 7)]
    fs.log.clear()
    epochs.assign(LeaderEpoch(2), 9)
    epochs.save()
    assert fs.log == []
    epochs.clear()
    epochs.save()
    assert read_file(fs, "epochs") == b"0\n0\n"


@more_examples
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), max_size=20), st.integers(0, 60), st.integers(0, 60))
def test_epoch_cache_agrees_with_a_list_of_every_offsets_epoch(
    steps: list[tuple[int, int]], end: int, start: int
) -> None:
    epochs, reference, epoch = cache(), list[int](), 0
    for increment, count in steps:
        epoch += increment
        epochs.assign(LeaderEpoch(epoch), len(reference))
        reference += [epoch] * count
    end = min(end, len(reference))
    start = min(start, end)
    epochs.truncate_from_end(end)
    if start < end:
        epochs.truncate_from_start(start)
    assert [epochs.epoch_for_offset(offset) for offset in range(start, end)] == reference[start:end]
    for queried in set(reference[start:end]):
        last = max(offset for offset in range(start, end) if reference[offset] == queried)
        assert epochs.end_offset_for(LeaderEpoch(queried), end) == EpochAndOffset(LeaderEpoch(queried), last + 1)


def test_restored_epochs_are_limited_to_those_below_the_first() -> None:
    history = [
        LeaderEpochEntry(LeaderEpoch(1), 0),
        LeaderEpochEntry(LeaderEpoch(3), 10),
        LeaderEpochEntry(LeaderEpoch(5), 25),
    ]
    lost = cache((3, 18), (5, 25), (6, 30))
    assert lost.restore_below(history)
    assert lost.entries == [(1, 0), (3, 10), (5, 25), (6, 30)]
    begun = cache((3, 10), (6, 30))
    assert begun.restore_below(history)
    assert begun.entries == [(1, 0), (3, 10), (6, 30)]
    assert not begun.restore_below(history), "the history adds nothing"
    assert not cache((1, 5)).restore_below([LeaderEpochEntry(LeaderEpoch(2), 0)]), "a higher epoch cannot be earlier"
    assert not cache().restore_below(history), "an empty cache cannot verify the history"

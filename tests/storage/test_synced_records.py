"""Checks of a log against what is known to have been synced."""

import pytest

from protocol.ids import LeaderEpoch
from protocol.records.batch import parse_header
from storage.synced_records import SyncedRecords
from tests.support.fakes.batches import data_batch


@pytest.mark.parametrize(
    ("base_offset", "epoch", "is_admitted"),
    [(7, 3, True), (7, 5, True), (6, 3, False), (8, 3, False), (7, -1, False), (7, 6, False)],
)
def test_batch_must_follow_the_log_without_a_gap_in_a_known_epoch(
    base_offset: int, epoch: int, is_admitted: bool
) -> None:
    header = parse_header(data_batch([b"x"], base_offset=base_offset, epoch=epoch, timestamp_ms=1))
    known = SyncedRecords(7, LeaderEpoch(5))
    assert known.admits(header, 7) is is_admitted


def test_later_epoch_than_the_quorums_is_admitted_below_the_synced_end() -> None:
    """quorum-state may be older than the log, as after a restore."""
    header = parse_header(data_batch([b"x"], base_offset=7, epoch=6, timestamp_ms=1))
    assert SyncedRecords(8, LeaderEpoch(5)).admits(header, 7)
    assert SyncedRecords().admits(header, 7)

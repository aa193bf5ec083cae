"""Histories and segments (KIP-405, scenarios 3 to 5 and the leadership transition)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.directories.checkpoints import LeaderEpochEntry
from storage.errors import CorruptCheckpoint
from storage.tiered.catalog.lineage import (
    Lineage,
    claimed_remote_offset,
    covered_remote_offset,
    decode_epochs,
    encode_epochs,
    epochs_of,
    without_empty_epochs,
)
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentEpoch, TopicIdPartition

PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\x01"), "t", 0)


def segment(first: int, last: int, *epochs: tuple[int, int], number: int = 0) -> RemoteSegment:
    return RemoteSegment(
        id=RemoteSegmentId(PARTITION, Uuid(number.to_bytes(16, "big"))),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=0,
        broker_id=BrokerId(1),
        event_timestamp_ms=0,
        size_bytes=100,
        leader_epochs=tuple(SegmentEpoch(LeaderEpoch(number), at) for number, at in epochs),
    )


def test_segment_of_the_same_history_belongs_to_the_lineage() -> None:
    lineage = Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(1), 3), (LeaderEpoch(2), 5)], 9)
    assert lineage.holds(segment(0, 2, (0, 0)))
    assert lineage.holds(segment(2, 4, (0, 2), (1, 3)))
    assert lineage.holds(segment(4, 8, (1, 4), (2, 5)))


def test_segment_beyond_the_log_end_is_not_in_the_lineage() -> None:
    assert Lineage([(LeaderEpoch(0), 0)], 9).agreed_end(segment(4, 9, (LeaderEpoch(0), 4))) == 8
    assert not Lineage([(LeaderEpoch(0), 0)], 9).holds(segment(4, 9, (LeaderEpoch(0), 4)))
    assert Lineage([(LeaderEpoch(0), 0)], 9).agreed_end(segment(9, 12, (LeaderEpoch(0), 9))) == -1


def test_scenario_4_segment_counts_up_to_divergence() -> None:
    lineage = Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(1), 1)], 3)
    assert lineage.agreed_end(segment(0, 2, (0, 0))) == 0
    assert lineage.holds(segment(0, 1, (0, 0), (1, 1)))


def test_scenario_5_lineage_excludes_a_lost_leader() -> None:
    lineage = Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(2), 5)], 7)
    assert lineage.holds(segment(0, 3, (0, 0)))
    assert lineage.agreed_end(segment(0, 3, (0, 0), (1, 2))) == 1
    assert lineage.holds(segment(4, 5, (0, 4), (2, 5)))


def test_segment_start_below_the_lineage_is_ignored() -> None:
    """KAFKA-16511: the log start offset lies within a segment with older epochs."""
    lineage = Lineage([(LeaderEpoch(1), 5), (LeaderEpoch(2), 8)], 20)
    assert lineage.holds(segment(0, 9, (0, 0), (1, 4), (2, 8)))
    assert lineage.agreed_end(segment(0, 9, (0, 0), (1, 6), (2, 8))) == -1
    assert lineage.agreed_end(segment(0, 4, (0, 0), (1, 4))) == -1


def test_empty_history_contains_no_segment() -> None:
    assert Lineage([], 0).agreed_end(segment(0, 1, (0, 0))) == -1
    assert Lineage([(LeaderEpoch(7), 0)], 0).start_offset is None


def test_epochs_without_records_are_left_out() -> None:
    assert without_empty_epochs(
        [(LeaderEpoch(0), 0), (LeaderEpoch(1), 4), (LeaderEpoch(2), 4), (LeaderEpoch(3), 9)], 9
    ) == (LeaderEpochEntry(LeaderEpoch(0), 0), LeaderEpochEntry(LeaderEpoch(2), 4))
    assert Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(1), 4), (LeaderEpoch(2), 4)], 9).holds(
        segment(0, 5, (LeaderEpoch(0), 0), (LeaderEpoch(2), 4))
    )
    assert Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(2), 4)], 9).holds(
        segment(0, 5, (LeaderEpoch(0), 0), (LeaderEpoch(1), 4), (LeaderEpoch(2), 4))
    )


def test_segment_epochs_are_clipped_to_the_segment() -> None:
    entries = [(LeaderEpoch(epoch), 3 * epoch) for epoch in range(4)]
    assert epochs_of(entries, 4, 8) == (SegmentEpoch(LeaderEpoch(1), 4), SegmentEpoch(LeaderEpoch(2), 6))
    assert epochs_of(entries, 3, 5) == (SegmentEpoch(LeaderEpoch(1), 3),)
    assert epochs_of([(LeaderEpoch(5), 10)], 8, 12) == (SegmentEpoch(LeaderEpoch(5), 8),)
    assert epochs_of([], 8, 12) == ()


def test_new_leader_resumes_after_last_epoch_with_segments() -> None:
    """KIP-405, "Follower to leader transition": 4 is the highest offset of epoch 1; epochs 2 and 3 have no segments."""
    lineage = Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(1), 3), (LeaderEpoch(2), 6), (LeaderEpoch(3), 7)], 8)
    assert claimed_remote_offset(lineage, lambda epoch: {0: 2, 1: 4}.get(epoch)) == 4


def test_offsets_beyond_epoch_end_are_not_claimed() -> None:
    lineage = Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(2), 5)], 7)
    assert claimed_remote_offset(lineage, lambda epoch: {0: 9}.get(epoch)) == 4
    assert claimed_remote_offset(lineage, lambda epoch: None) == -1
    assert claimed_remote_offset(lineage, lambda epoch: {2: 30}.get(epoch)) == 6


def test_missing_segment_ends_the_coverage() -> None:
    lineage = Lineage([(LeaderEpoch(0), 0)], 30)
    held = {0: segment(0, 9, (0, 0)), 1: segment(10, 14, (0, 10)), 2: segment(17, 22, (0, 17))}

    def segment_for(epoch: int, offset: int) -> RemoteSegment | None:
        return next((one for one in held.values() if one.start_offset <= offset <= one.end_offset), None)

    assert covered_remote_offset(lineage, 12, 22, segment_for) == 14
    assert covered_remote_offset(lineage, 17, 22, segment_for) == 22
    assert covered_remote_offset(lineage, 25, 22, segment_for) == 22
    assert covered_remote_offset(lineage, 15, 22, segment_for) == 14


def test_leader_epochs_are_encoded_as_a_text_checkpoint() -> None:
    assert encode_epochs([(LeaderEpoch(0), 0), (LeaderEpoch(3), 17)]) == b"0\n2\n0 0\n3 17\n"
    assert decode_epochs(b"0\n2\n0 0\n3 17\n") == [
        LeaderEpochEntry(LeaderEpoch(0), 0),
        LeaderEpochEntry(LeaderEpoch(3), 17),
    ]
    assert decode_epochs(encode_epochs([])) == []


@pytest.mark.parametrize("text", [b"", b"0\n1\n", b"0\n1\n1 2 3\n", b"1\n0\n", b"0\n1\nx y\n", b"\xff\n"])
def test_invalid_checkpoint_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_epochs(text)


def histories() -> st.SearchStrategy[tuple[list[int], list[int]]]:
    """Two logs as lists of the epoch of each offset, with a common beginning and no common epoch after it."""
    ours, theirs = st.integers(1, 4).map(lambda n: 2 * n), st.integers(1, 4).map(lambda n: 2 * n + 1)
    return st.tuples(
        st.lists(st.just(0), max_size=6),
        st.lists(ours, max_size=6).map(sorted),
        st.lists(theirs, max_size=6).map(sorted),
    ).map(lambda parts: (parts[0] + parts[1], parts[0] + parts[2]))


def entries_of(log: list[int]) -> list[tuple[LeaderEpoch, int]]:
    return [(LeaderEpoch(epoch), offset) for offset, epoch in enumerate(log) if not offset or log[offset - 1] != epoch]


@given(histories(), st.data())
def test_lineage_agrees_with_a_comparison_by_offset(logs: tuple[list[int], list[int]], data: st.DataObject) -> None:
    ours, theirs = logs
    if not theirs:
        return
    first = data.draw(st.integers(0, len(theirs) - 1))
    last = data.draw(st.integers(first, len(theirs) - 1))
    start = data.draw(st.integers(0, len(ours)))
    lineage = Lineage(((epoch, max(at, start)) for epoch, at in _from(entries_of(ours), start)), len(ours))
    expected = -1
    for offset in range(max(first, start), last + 1):
        if offset >= len(ours) or ours[offset] != theirs[offset]:
            break
        expected = offset
    found = lineage.agreed_end(segment(first, last, *epochs_of(entries_of(theirs), first, last)))
    assert found == expected


def _from(entries: list[tuple[LeaderEpoch, int]], start: int) -> list[tuple[LeaderEpoch, int]]:
    """Return the entries of a log that was trimmed below `start`."""
    kept = [entry for entry in entries if entry[1] > start]
    before = [entry for entry in entries if entry[1] <= start]
    return [*before[-1:], *kept]

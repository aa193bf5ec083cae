"""Expiration of remote segments and the resulting log start offset."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.catalog.lineage import Lineage, epochs_of
from storage.tiered.lifecycle.expiration import (
    DeletionReason,
    ExpirationResult,
    LocalSegmentRange,
    given_up_offsets,
    offset_above_deletions,
)
from storage.tiered.segment_metadata import (
    NO_TIMESTAMP,
    TOOL_BROKER_ID,
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    TopicIdPartition,
)
from tests.support.harnesses.full_scan_expiration import FullScanState, decided, decided_by_scan

PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\x01"), "t", 0)
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
US, OTHER = 1, 2


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def segment(
    number: int,
    first: int,
    last: int,
    *epochs: tuple[int, int],
    state: SegmentState = SegmentState.COPY_FINISHED,
    size: int = 100,
    age_ms: int = 0,
    event_age_ms: int = 0,
    broker: int = OTHER,
) -> RemoteSegment:
    return RemoteSegment(
        id=RemoteSegmentId(PARTITION, uuid(number)),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=NOW_MS - age_ms,
        broker_id=BrokerId(broker),
        event_timestamp_ms=NOW_MS - event_age_ms,
        size_bytes=size,
        leader_epochs=tuple(SegmentEpoch(LeaderEpoch(number), at) for number, at in epochs or [(0, first)]),
        state=state,
    )


def tier(*segments: RemoteSegment, entries: Sequence[tuple[int, int]] = ((0, 0),), end: int = 100) -> FullScanState:
    """An unlimited partition with 500 local bytes from offset 50 on."""
    return FullScanState(
        segments=sorted(segments, key=lambda one: one.start_offset),
        lineage=Lineage([(LeaderEpoch(epoch), at) for epoch, at in entries], end),
        log_start_offset=0,
        local_start_offset=50,
        high_watermark=end,
        local=[LocalSegmentRange(50, 69, 200), LocalSegmentRange(70, 99, 300)],
        retention_ms=-1,
        retention_bytes=-1,
        now_ms=NOW_MS,
        broker_id=US,
        grace_ms=HOUR_MS,
    )


def chosen(expiry: ExpirationResult) -> list[tuple[int, DeletionReason]]:
    return [(int.from_bytes(one.segment.id.id, "big"), one.reason) for one in expiry.deletions]


THREE = (segment(1, 0, 19), segment(2, 20, 39), segment(3, 40, 69))


def test_unlimited_retention_deletes_nothing() -> None:
    expiry = decided(tier(*THREE))
    assert chosen(expiry) == []
    assert (expiry.log_start_offset, expiry.count, expiry.size_bytes) == (0, 3, 300)


def test_segments_expire_by_their_largest_timestamp() -> None:
    old = [replace(one, max_timestamp_ms=NOW_MS - age) for one, age in zip(THREE, (3, 2, 1), strict=True)]
    expiry = decided(replace(tier(*old), retention_ms=1))
    assert chosen(expiry) == [(1, DeletionReason.TIME), (2, DeletionReason.TIME)], (
        "a segment of exactly the retention time is kept"
    )
    assert expiry.log_start_offset == 40


def test_unexpired_segment_protects_later_segments() -> None:
    aged = [replace(one, max_timestamp_ms=NOW_MS - age) for one, age in zip(THREE, (9, 0, 9), strict=True)]
    assert chosen(decided(replace(tier(*aged), retention_ms=5))) == [(1, DeletionReason.TIME)]


def test_segments_are_deleted_while_the_rest_reaches_retention_bytes() -> None:
    """Remote storage has 300 bytes, the local log alone 300 bytes above offset 69."""
    assert chosen(decided(replace(tier(*THREE), retention_bytes=600))) == []
    assert chosen(decided(replace(tier(*THREE), retention_bytes=501))) == []
    assert chosen(decided(replace(tier(*THREE), retention_bytes=500))) == [(1, DeletionReason.SIZE)]
    assert chosen(decided(replace(tier(*THREE), retention_bytes=400))) == [
        (1, DeletionReason.SIZE),
        (2, DeletionReason.SIZE),
    ]


def test_offsets_in_both_tiers_count_once() -> None:
    """A new leader does not know its copied offset; Kafka deleted data within the limit then."""
    before = tier(*THREE)
    assert chosen(decided(replace(before, retention_bytes=600, high_watermark=100))) == []
    all_local = replace(
        before, local=[LocalSegmentRange(0, 69, 300), LocalSegmentRange(70, 99, 300)], local_start_offset=0
    )
    assert chosen(decided(replace(all_local, retention_bytes=600))) == []


def test_overlapping_segments_count_once() -> None:
    """The first upload of every new leader overlaps the last one of its predecessor (KAFKA-15479)."""
    overlapping = (segment(1, 0, 19), segment(2, 10, 39, size=150), segment(3, 40, 69))
    assert chosen(decided(replace(tier(*overlapping), retention_bytes=600))) == []
    assert chosen(decided(replace(tier(*overlapping), retention_bytes=500))) == [(1, DeletionReason.SIZE)]


def test_segments_below_log_start_are_deleted_in_any_history() -> None:
    foreign = segment(9, 5, 15, (7, 5))
    expiry = decided(replace(tier(*THREE, foreign), log_start_offset=25, lineage=Lineage([(LeaderEpoch(0), 25)], 100)))
    assert chosen(expiry) == [(1, DeletionReason.BELOW_LOG_START), (9, DeletionReason.BELOW_LOG_START)]
    assert expiry.log_start_offset == 25


def test_segments_above_high_watermark_are_kept() -> None:
    """The high watermark may lag right after an election."""
    old = [replace(one, max_timestamp_ms=0) for one in THREE]
    expiry = decided(replace(tier(*old), retention_ms=1, high_watermark=39))
    assert expiry.log_start_offset == 20


def later_by(ms: int, before: FullScanState) -> FullScanState:
    """Return a state after a time on both clocks."""
    return replace(before, now_ms=before.now_ms + ms, monotonic_ms=before.monotonic_ms + ms)


def abandoned_after(ms: int, copy: RemoteSegment, step_ms: int = 0) -> list[tuple[int, DeletionReason]]:
    """Return the deletions by a leader that has seen a copy for a time, while the wall clock was stepped."""
    before = tier(*THREE, copy)
    later = later_by(ms, replace(before, copies_seen=decided(before).copies_seen))
    return chosen(decided(replace(later, now_ms=later.now_ms + step_ms)))


class TestLeftovers:
    def test_interrupted_deletion_is_resumed_at_once(self) -> None:
        begun = segment(2, 20, 39, state=SegmentState.DELETE_STARTED)
        assert chosen(decided(tier(THREE[0], begun, THREE[2]))) == [(2, DeletionReason.INTERRUPTED)]

    def test_copy_of_another_broker_is_kept_for_grace_time(self) -> None:
        copy = segment(4, 70, 80, state=SegmentState.COPY_STARTED)
        assert abandoned_after(HOUR_MS - 1, copy) == []
        assert abandoned_after(HOUR_MS, copy) == [(4, DeletionReason.ABANDONED)]

    @pytest.mark.parametrize("step_ms", [-20 * HOUR_MS, -1, 0, 1, 20 * HOUR_MS])
    def test_steps_of_the_wall_clock_neither_delete_a_running_copy_nor_keep_garbage(self, step_ms: int) -> None:
        copy = segment(4, 70, 80, state=SegmentState.COPY_STARTED)
        assert abandoned_after(HOUR_MS - 1, copy, step_ms) == []
        assert abandoned_after(2 * HOUR_MS, copy, step_ms) == [(4, DeletionReason.ABANDONED)]

    def test_copy_is_not_abandoned_when_the_leader_sees_it_first(self) -> None:
        """A copier whose clock is behind looks old at once."""
        assert abandoned_after(0, segment(4, 70, 80, state=SegmentState.COPY_STARTED, event_age_ms=20 * HOUR_MS)) == []

    def test_renewed_copy_is_observed_anew(self) -> None:
        copy = segment(4, 70, 80, state=SegmentState.COPY_STARTED, event_age_ms=HOUR_MS)
        first = decided(tier(*THREE, copy))
        renewed = replace(copy, event_timestamp_ms=NOW_MS)
        later = later_by(HOUR_MS, replace(tier(*THREE, renewed), copies_seen=first.copies_seen))
        assert chosen(decided(later)) == []

    def test_unknown_copy_of_this_broker_is_abandoned(self) -> None:
        ours = segment(4, 70, 80, state=SegmentState.COPY_STARTED, broker=US)
        assert chosen(decided(tier(*THREE, ours))) == [(4, DeletionReason.ABANDONED)]
        assert chosen(decided(replace(tier(*THREE, ours), copying={uuid(4)}))) == []


class TestOutsideOfTheLayout:
    def after_grace(self, before: FullScanState) -> list[tuple[int, DeletionReason]]:
        first = decided(before)
        assert chosen(first) == [], "deletion waits for the grace time"
        later = later_by(HOUR_MS, replace(before, outside_since_ms=first.outside_since_ms))
        assert chosen(decided(replace(later, monotonic_ms=later.monotonic_ms - 1))) == []
        return chosen(decided(later))

    def test_segments_of_truncated_history_are_deleted(self) -> None:
        lost = segment(9, 40, 69, (1, 40))
        assert self.after_grace(tier(*THREE, lost)) == [(9, DeletionReason.UNREFERENCED)]

    def test_segments_beyond_log_end_are_deleted(self) -> None:
        beyond = segment(9, 100, 120)
        assert self.after_grace(tier(*THREE, beyond)) == [(9, DeletionReason.UNREFERENCED)]

    def test_duplicate_segments_are_deleted(self) -> None:
        """Unlimited retention alone would never reclaim overlaps."""
        assert self.after_grace(tier(*THREE, segment(9, 25, 35))) == [(9, DeletionReason.UNREFERENCED)]
        assert self.after_grace(tier(*THREE, segment(9, 15, 45))) == [(2, DeletionReason.UNREFERENCED)]
        assert self.after_grace(tier(*THREE, segment(9, 0, 45))) == [
            (1, DeletionReason.UNREFERENCED),
            (2, DeletionReason.UNREFERENCED),
        ]

    def test_truncated_segment_with_unique_offsets_is_kept(self) -> None:
        """Scenario 4: a segment copied before its leader lost records holds offsets that are not copied again."""
        entries = [(0, 0), (2, 30)]
        first = segment(1, 0, 49)
        second = segment(2, 30, 69, (2, 30))
        before = tier(first, second, entries=entries)
        assert [(link.first, link.last) for link in before.spans()] == [(0, 29), (30, 69)]
        assert self.after_grace(before) == []

    def test_scenario_5_segment_of_lost_leader_is_deleted(self) -> None:
        u1, u2 = segment(1, 0, 3), segment(2, 0, 3, (0, 0), (1, 2))
        u3 = segment(3, 4, 5, (0, 4), (2, 5))
        before = replace(tier(u1, u2, u3, entries=[(0, 0), (2, 5)], end=7), local_start_offset=6, local=[])
        assert self.after_grace(before) == [(2, DeletionReason.UNREFERENCED)]

    def test_segment_back_in_layout_restarts_grace_time(self) -> None:
        duplicate = segment(9, 20, 39, event_age_ms=-1)
        first = decided(tier(*THREE, duplicate))
        assert set(first.outside_since_ms) == {uuid(9)}
        again = replace(tier(THREE[0], duplicate, THREE[2]), outside_since_ms=first.outside_since_ms)
        assert decided(again).outside_since_ms == {}

    def test_unknown_history_deletes_no_segments(self) -> None:
        """Lost leader epochs are restored from local segments alone."""
        before = tier(*THREE, entries=[(0, 50)])
        assert decided(before).outside_since_ms == {}
        assert decided(tier(*THREE, entries=[])).outside_since_ms == {}

    def test_empty_log_with_history_at_its_end_deletes_no_segments(self) -> None:
        """A replica that lost its disk leads: remote storage holds all data."""
        wiped = replace(tier(*THREE, entries=[(5, 0)], end=0), local=[], local_start_offset=0)
        assert decided(wiped).outside_since_ms == {}

    def test_foreign_segments_beyond_empty_log_are_deleted(self) -> None:
        """An unclean leader whose records have all expired and that receives no new ones."""
        across, beyond = segment(8, 95, 104, (1, 95)), segment(9, 105, 120, (1, 105))
        deleted = replace(
            tier(across, beyond, entries=[(2, 100)]), log_start_offset=100, local_start_offset=100, local=[]
        )
        assert self.after_grace(deleted) == [(8, DeletionReason.UNREFERENCED), (9, DeletionReason.UNREFERENCED)]
        assert decided(deleted) == decided_by_scan(deleted)

    def test_fully_remote_log_without_history_deletes_no_segments(self) -> None:
        remote = replace(tier(*THREE, entries=[], end=70), log_start_offset=20, local_start_offset=70, local=[])
        assert decided(remote).outside_since_ms == {}


def test_given_up_mark_stays_until_the_log_starts_above_it() -> None:
    lost = segment(2, 20, 39, state=SegmentState.DELETE_STARTED, size=0, broker=TOOL_BROKER_ID)
    mark = replace(lost, max_timestamp_ms=NO_TIMESTAMP)
    assert mark.is_given_up_mark
    assert not lost.is_given_up_mark
    before = tier(THREE[0], mark, THREE[2])
    assert chosen(decided(before)) == []
    assert chosen(decided(replace(before, log_start_offset=40))) == [
        (1, DeletionReason.BELOW_LOG_START),
        (2, DeletionReason.INTERRUPTED),
    ]
    assert (
        given_up_offsets([mark, replace(mark, start_offset=10, leader_epochs=(SegmentEpoch(LeaderEpoch(0), 10),))], 15)
        == 25
    )


def test_log_start_passes_a_given_up_mark() -> None:
    mark = segment(1, 0, 19, state=SegmentState.DELETE_STARTED, size=0, broker=TOOL_BROKER_ID)
    before = tier(replace(mark, max_timestamp_ms=NO_TIMESTAMP), THREE[1], THREE[2])
    assert decided(before).first_offset == 20
    assert offset_above_deletions(before.known(), 0) == 20


def test_missing_offsets_are_reported() -> None:
    assert decided(tier(*THREE)).first_offset == 0
    assert decided(tier(*THREE[1:])).first_offset == 20
    assert decided(tier()).first_offset == 50
    begun = segment(1, 0, 19, state=SegmentState.COPY_STARTED)
    assert decided(tier(begun, *THREE[1:])).first_offset == 0


def test_log_start_rises_above_begun_deletions() -> None:
    doomed = [replace(each, state=SegmentState.DELETE_STARTED) for each in THREE[:2]]
    assert offset_above_deletions(tier(*doomed, THREE[2]).known(), 0) == THREE[1].end_offset + 1
    assert offset_above_deletions(tier(*THREE).known(), 0) == 0
    assert offset_above_deletions(tier(*doomed[1:], THREE[2]).known(), 0) == 0, (
        "offsets below the deletion are merely missing"
    )
    foreign = tier(*doomed, THREE[2], entries=[(0, 0), (3, 5)])
    assert offset_above_deletions(foreign.known(), 0) == 0, "the segments are outside of the lineage"


@st.composite
def tiers(draw: st.DrawFn) -> FullScanState:
    """Segments copied by two leaders whose logs have a common beginning, and the log of one of them."""
    shared = draw(st.integers(0, 12))
    ours = [0] * shared + [2] * draw(st.integers(1, 12))
    theirs = [0] * shared + [1] * draw(st.integers(1, 12))
    segments = []
    for number in range(draw(st.integers(0, 8))):
        log = draw(st.sampled_from([ours, theirs]))
        first = draw(st.integers(0, len(log) - 1))
        last = draw(st.integers(first, len(log) - 1))
        entries = [(LeaderEpoch(epoch), at) for at, epoch in enumerate(log) if not at or log[at - 1] != epoch]
        epochs = epochs_of(entries, first, last)
        made = segment(number, first, last, *epochs, age_ms=draw(st.integers(0, 9)))
        segments.append(replace(made, compacted_to=draw(st.sampled_from([None, None, 5, 9]))))
    entries = [(LeaderEpoch(epoch), at) for at, epoch in enumerate(ours) if not at or ours[at - 1] != epoch]
    before = tier(*segments, entries=entries, end=len(ours))
    start = draw(st.integers(0, len(ours)))
    local = [LocalSegmentRange(start, len(ours) - 1, 100)] if start < len(ours) else []
    return replace(
        before,
        local_start_offset=start,
        local=local,
        retention_ms=draw(st.integers(-1, 9)),
        retention_bytes=draw(st.integers(-1, 900)),
        grace_ms=draw(st.sampled_from([0, HOUR_MS])),
    )


def readable(before: FullScanState, segments: Sequence[RemoteSegment]) -> set[int]:
    """Return the offsets of the log that some segment holds."""
    return {
        offset for one in segments for offset in range(one.start_offset, before.lineage.agreed_end(one) + 1)
    }  # fmt: skip


@given(tiers())
def test_offsets_above_the_new_log_start_stay_readable(before: FullScanState) -> None:
    expiry = decided(before)
    deleted = {one.segment.id for one in expiry.deletions}
    kept = [one for one in before.segments if one.id not in deleted]
    expected = {offset for offset in readable(before, before.segments) if offset >= expiry.log_start_offset}
    assert expected <= readable(before, kept)


@given(tiers())
def test_layout_serves_every_offset_once(before: FullScanState) -> None:
    links = before.spans()
    offsets = [offset for link in links for offset in range(link.first, link.last + 1)]
    assert offsets == sorted(readable(before, before.segments))


@given(tiers())
def test_layout_prefers_compacted_segments(before: FullScanState) -> None:
    compacted = readable(before, [one for one in before.segments if one.is_compacted])
    for link in before.spans():
        assert all((offset in compacted) is link.segment.is_compacted for offset in range(link.first, link.last + 1))


def test_layout_prefers_further_compacted_duplicate() -> None:
    duplicates = [replace(segment(number, 0, 49), compacted_to=to) for number, to in ((1, None), (2, 50), (3, 90))]
    before = replace(tier(*duplicates), outside_since_ms={uuid(number): NOW_MS - HOUR_MS for number in (1, 2, 3)})
    assert [link.segment for link in before.spans()] == [duplicates[2]]
    assert chosen(decided(before)) == [(1, DeletionReason.UNREFERENCED), (2, DeletionReason.UNREFERENCED)]


def test_segment_with_two_spans_does_not_expire_with_the_first() -> None:
    long = segment(1, 0, 49, age_ms=10)
    middle = replace(segment(2, 10, 29), compacted_to=30)
    expiry = decided(replace(tier(long, middle), retention_ms=5))
    assert chosen(expiry) == []
    assert expiry.log_start_offset == 10


@given(tiers())
def test_size_retention_keeps_at_least_retention_bytes(before: FullScanState) -> None:
    limited = replace(before, retention_ms=-1)
    expiry = decided(limited)
    if expiry.log_start_offset > before.log_start_offset:
        rest = replace(limited, log_start_offset=expiry.log_start_offset, retention_bytes=-1)
        links = rest.spans()
        end = links[-1].last + 1 if links else 0
        local = sum(part.size_bytes for part in before.local if part.base_offset >= end)
        partly = sum(part.size_bytes for part in before.local if part.base_offset < end <= part.end_offset)
        assert sum(link.segment.size_bytes for link in links) + local + partly >= limited.retention_bytes

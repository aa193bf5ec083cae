"""An incrementally maintained layout against a full computation, and its decisions against a full scan."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.catalog.lineage import Lineage, epochs_of
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.catalog.segment_spans import spans_of
from storage.tiered.lifecycle.expiration import ExpirationResult, LocalSegmentRange, decide_expiration
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from tests.support.harnesses.full_scan_expiration import FullScanState, decided_by_scan, learn, settled_chain

PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\x01"), "t", 0)
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
US = 1
STATES = list(SegmentState)


def entries_of(log: list[int]) -> list[tuple[LeaderEpoch, int]]:
    return [(LeaderEpoch(epoch), at) for at, epoch in enumerate(log) if not at or log[at - 1] != epoch]


class History:
    """Two logs with a common beginning; the present one grows and loses its beginning. Remote segments belong to
    either.
    """

    def __init__(self, data: st.DataObject) -> None:
        draw = data.draw
        self._draw = draw
        shared = draw(st.integers(0, 12))
        ours = sorted(draw(st.lists(st.sampled_from([2, 2, 4, 5]), min_size=1, max_size=14)))
        self.logs = [[0] * shared + ours, [0] * shared + [1] * draw(st.integers(1, 12))]
        self.end = draw(st.integers(0, len(self.logs[0])))
        self.log_start = 0
        self.cache = RemoteLogMetadataCache(PARTITION)
        self.made: list[RemoteSegment] = []
        self.outside_since_ms: dict[Uuid, int] = {}
        self.now_ms = NOW_MS

    def lineage(self) -> Lineage:
        """Return the lineage of the present log, cut at the log start."""
        entries = epochs_of(entries_of(self.logs[0]), self.log_start, self.end - 1) if self.log_start < self.end else ()
        return Lineage(entries, self.end)

    def step(self) -> None:
        """Execute a random step."""
        match self._draw(
            st.sampled_from(["copy", "copy", "copy", "event", "event", "grow", "start", "wait", "delete"])
        ):
            case "copy":
                self._copy()
            case "event" if self.made:
                self.update()
            case "grow":
                self.end = self._draw(st.integers(self.end, len(self.logs[0])))
            case "start":
                self.log_start = self._draw(st.integers(self.log_start, self.end))
            case "wait":
                self.now_ms += HOUR_MS // 2
            case "delete" if not self._draw(st.integers(0, 5)):
                self.cache.delete_partition(PartitionDelete(PARTITION, PartitionDeleteState.FINISHED, 0, BrokerId(US)))
                self.made.clear()

    def _copy(self) -> None:
        draw, log = self._draw, self._draw(st.sampled_from(self.logs))
        first = draw(st.integers(0, len(log) - 1))
        last = draw(st.integers(first, min(len(log) - 1, first + 8)))
        number = draw(st.integers(0, 2**16)) << 8 | len(self.made) % 256
        segment = RemoteSegment(
            id=RemoteSegmentId(PARTITION, Uuid(number.to_bytes(16, "big"))),
            start_offset=first,
            end_offset=last,
            max_timestamp_ms=NOW_MS - draw(st.integers(0, 9)),
            broker_id=BrokerId(draw(st.integers(US, 2))),
            event_timestamp_ms=self.now_ms,
            size_bytes=draw(st.integers(1, 300)),
            leader_epochs=tuple(
                SegmentEpoch(LeaderEpoch(number), at) for number, at in epochs_of(entries_of(log), first, last)
            ),
            state=draw(st.sampled_from([SegmentState.COPY_STARTED, *[SegmentState.COPY_FINISHED] * 4])),
            compacted_to=draw(st.sampled_from([None, None, 5, 9])),
        )
        if self.cache.get(segment.id.id) is None:
            learn(self.cache, segment)
            self.made.append(segment)

    def update(self) -> None:
        known = self.cache.get(self._draw(st.sampled_from(self.made)).id.id)
        if known is not None:
            following = min(known.state + self._draw(st.integers(0, 1)), SegmentState.DELETE_FINISHED)
            self.cache.update(SegmentUpdate(known.id, STATES[following], self.now_ms - 1, BrokerId(US)))

    def tier(self) -> FullScanState:
        draw = self._draw
        start = draw(st.integers(self.log_start, self.end))
        return FullScanState(
            segments=self.cache.segments(),
            lineage=self.lineage(),
            log_start_offset=self.log_start,
            local_start_offset=start,
            high_watermark=draw(st.integers(self.log_start, self.end)),
            local=[LocalSegmentRange(start, self.end - 1, 100)] if start < self.end else [],
            retention_ms=draw(st.integers(-1, 9)),
            retention_bytes=draw(st.integers(-1, 900)),
            now_ms=self.now_ms,
            broker_id=US,
            grace_ms=draw(st.sampled_from([0, HOUR_MS])),
            copying={one.id.id for one in self.made[-1:]} if draw(st.booleans()) else (),
            outside_since_ms=self.outside_since_ms,
        )


def comparable(expiry: ExpirationResult) -> ExpirationResult:
    """Return the comparable part of a decision: neither the order of deletions with equal offsets nor the start of
    segments below the log start matters.
    """
    return replace(
        expiry,
        deletions=tuple(sorted(expiry.deletions, key=lambda each: each.segment.id.id)),
        first_offset=max(expiry.first_offset, expiry.log_start_offset),
        outside_since_ms=dict(expiry.outside_since_ms),
    )


def settle(chain: RemoteLogLayout, steps: int) -> None:
    for _ in range(1_000):
        if chain.settle(steps):
            return
    raise AssertionError("the layout does not settle")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_incremental_layout_decides_as_full_scan(data: st.DataObject) -> None:
    history = History(data)
    chain = RemoteLogLayout(history.cache, history.lineage(), history.log_start)
    for _ in range(data.draw(st.integers(1, 14))):
        for _ in range(data.draw(st.integers(1, 4))):
            history.step()
            if data.draw(st.booleans()) and chain.is_of(history.cache):
                chain.settle(data.draw(st.integers(1, 4)))
        lineage = history.lineage()
        if chain.is_of(history.cache) and chain.follows(lineage, history.log_start):
            chain.use(lineage, history.log_start)
        else:
            chain = RemoteLogLayout(history.cache, lineage, history.log_start)
        settle(chain, data.draw(st.integers(1, 4)))
        tier = history.tier()
        assert [link for _, link in chain.spans()] == tier.spans()
        assert chain.size_bytes == sum(link.share_bytes for link in tier.spans())
        expected = decided_by_scan(tier)
        assert comparable(decide_expiration(tier.known(), chain)) == comparable(expected)
        history.outside_since_ms = dict(expected.outside_since_ms)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_bounded_decisions_add_up_to_full_decision(data: st.DataObject) -> None:
    """Decisions limited to a few segments each add up to one unlimited decision."""
    history = History(data)
    for _ in range(30):
        history.step()
    tier = history.tier()
    tier = replace(tier, grace_ms=0, high_watermark=min(tier.high_watermark, history.end - 1))
    expected = decided_by_scan(tier)
    log_start, deleted = tier.log_start_offset, set()
    chain = settled_chain(history.cache, tier.lineage, log_start)
    for _ in range(len(tier.segments) + 1):
        history.log_start = log_start
        lineage = history.lineage()
        chain.use(lineage, log_start)
        settle(chain, 2)
        now = replace(tier, log_start_offset=log_start, lineage=lineage, segments=history.cache.segments())
        expiry = decide_expiration(now.known(), chain, most=1)
        log_start = expiry.log_start_offset
        deleted |= {each.segment.id.id for each in expiry.deletions}
        for segment, _ in expiry.deletions:
            for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
                history.cache.update(SegmentUpdate(segment.id, state, 0, BrokerId(US)))
        if not expiry.is_cut:
            break
    assert log_start == expected.log_start_offset
    assert deleted == {each.segment.id.id for each in expected.deletions}


def test_replaced_layout_does_not_belong_to_the_cache() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    first = settled_chain(cache, Lineage([(LeaderEpoch(0), 0)], 10), 0)
    assert first.is_of(cache)
    second = settled_chain(cache, Lineage([(LeaderEpoch(0), 0)], 10), 0)
    assert second.is_of(cache)
    assert not first.is_of(cache)
    first.close()
    assert second.is_of(cache), "closing a replaced layout keeps its successor attached"
    cache.delete_partition(PartitionDelete(PARTITION, PartitionDeleteState.FINISHED, 0, BrokerId(US)))
    assert not second.is_of(cache)
    assert not second.is_of(RemoteLogMetadataCache(PARTITION))


def test_layout_follows_compatible_histories() -> None:
    chain = settled_chain(
        RemoteLogMetadataCache(PARTITION), Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(2), 30)], 50), 0
    )
    assert chain.follows(Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(2), 30)], 50), 0)
    assert chain.follows(Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(2), 30), (LeaderEpoch(3), 50)], 60), 0), (
        "a later epoch was appended"
    )
    assert chain.follows(Lineage([(LeaderEpoch(0), 10), (LeaderEpoch(2), 30)], 50), 10), "the log start rose"
    assert chain.follows(Lineage([(LeaderEpoch(2), 40), (LeaderEpoch(3), 55)], 60), 40), (
        "the log start rose and an epoch was appended"
    )
    assert not chain.follows(Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(2), 30)], 49), 0), "the log was truncated"
    assert not chain.follows(Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(1), 30)], 50), 0), "the lineage diverges"
    assert not chain.follows(Lineage([(LeaderEpoch(0), 0), (LeaderEpoch(2), 30), (LeaderEpoch(3), 45)], 60), 0), (
        "the log was truncated before the append"
    )


def test_spans_equal_those_of_full_computation() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    for number in range(100):
        segment = RemoteSegment(
            id=RemoteSegmentId(PARTITION, Uuid(number.to_bytes(16, "big"))),
            start_offset=number * 10,
            end_offset=number * 10 + 9,
            max_timestamp_ms=NOW_MS,
            broker_id=BrokerId(US),
            event_timestamp_ms=NOW_MS,
            size_bytes=1,
            leader_epochs=(SegmentEpoch(LeaderEpoch(0), number * 10),),
            state=SegmentState.COPY_FINISHED,
        )
        learn(cache, segment)
    lineage = Lineage([(LeaderEpoch(0), 0)], 1_000)
    chain = settled_chain(cache, lineage, 455, steps=7)
    assert [link for _, link in chain.spans()] == spans_of(cache.segments(), lineage, 455)
    assert len(chain.outside) == 45, "segments below the log start"


def test_segment_whose_first_records_were_deleted_before_its_copy_has_a_span() -> None:
    """The layout meets the segment before it learns that the log start offset has risen into the segment."""
    cache = RemoteLogMetadataCache(PARTITION)
    chain = settled_chain(cache, Lineage([(LeaderEpoch(3), 50), (LeaderEpoch(4), 76)], 140), 50)
    segment = RemoteSegment(
        id=RemoteSegmentId(PARTITION, Uuid(bytes(16))),
        start_offset=70,
        end_offset=85,
        max_timestamp_ms=NOW_MS,
        broker_id=BrokerId(US),
        event_timestamp_ms=NOW_MS,
        size_bytes=1,
        leader_epochs=(SegmentEpoch(LeaderEpoch(4), 70),),
        state=SegmentState.COPY_FINISHED,
    )
    learn(cache, segment)
    present = Lineage([(LeaderEpoch(4), 76)], 140)
    assert chain.follows(present, 76)
    chain.use(present, 76)
    settle(chain, 7)
    assert [link for _, link in chain.spans()] == spans_of(cache.segments(), present, 76)
    assert not chain.outside

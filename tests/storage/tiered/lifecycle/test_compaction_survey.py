"""A compaction pass as estimated stepwise, by a plan, and by a full scan of all spans."""

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.config import LogConfig
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout, SpanFigures
from storage.tiered.catalog.segment_spans import SegmentSpan
from storage.tiered.lifecycle import compaction_survey
from storage.tiered.lifecycle.compaction_survey import CollectedSpans, CompactionSurvey
from storage.tiered.lifecycle.remote_compaction import MAX_SPANS_PER_GROUP, group_segments, plan
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentEpoch
from tests.storage.tiered.catalog.test_remote_log_layout import NOW_MS, PARTITION, History, settle
from tests.support.harnesses.full_scan_expiration import settled_chain

LAGS = st.sampled_from([0, 3, 6, 2**63 - 1])


class SurveyResult(NamedTuple):
    links: list[SegmentSpan]
    beyond: list[SegmentSpan]
    first_dirty: int
    end: int
    dirty_bytes: int
    all_bytes: int
    is_overdue: bool


def full_scan_survey(links: list[SegmentSpan], config: LogConfig, now_ms: int) -> SurveyResult:
    """Return the result of a full scan of all spans, the first of them whole."""
    links = [link._replace(first=link.segment.start_offset) if not at else link for at, link in enumerate(links)]
    ends = [link.last + 1 for link in links]
    holes = (at for at in range(1, len(links)) if links[at].first != ends[at - 1])
    joined = links[: next(holes, len(links))]
    first_dirty = 0
    for at, link in enumerate(joined):  # a span is clean if all earlier spans are compacted up to it
        reached = [max(each.segment.compacted_to or 0, each.first) for each in joined[: at + 1]]
        first_dirty = min(reached)
        if link.last >= first_dirty:
            break
    young_from = now_ms - config.min_compaction_lag_ms
    young = (
        at
        for at, link in enumerate(joined)
        if config.min_compaction_lag_ms and link.last >= first_dirty and link.segment.max_timestamp_ms > young_from
    )
    taken = joined[: next(young, len(joined))]
    dirty = [link for link in taken if link.last >= first_dirty]
    return SurveyResult(
        taken,
        links[len(taken) :],
        first_dirty,
        dirty[-1].last + 1 if dirty else first_dirty,
        sum(link.share_bytes for link in dirty),
        sum(link.share_bytes for link in taken),
        any(link.segment.max_timestamp_ms < now_ms - config.max_compaction_lag_ms for link in dirty),
    )


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_stepwise_survey_equals_full_survey(data: st.DataObject) -> None:
    history = History(data)
    for _ in range(data.draw(st.integers(0, 25))):
        history.step()
    config = LogConfig(min_compaction_lag_ms=data.draw(LAGS), max_compaction_lag_ms=data.draw(LAGS.filter(bool)))
    tier = history.tier()
    chain = settled_chain(history.cache, tier.lineage, tier.log_start_offset)
    expected = full_scan_survey(tier.spans(), config, NOW_MS)
    survey, gathering = CompactionSurvey(config, NOW_MS), CollectedSpans(PARTITION)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compaction_survey, "SPANS_PER_STEP", data.draw(st.integers(1, 3)))
        patched.setattr(compaction_survey, "COLLECTED_PER_STEP", data.draw(st.integers(1, 3)))
        while not survey.step(chain):
            pass
        while not gathering.step(chain):
            pass
    found = plan(gathering, config, NOW_MS)
    links = list(found.spans)
    assert (links[: found.taken], links[found.taken :]) == expected[:2]
    assert (found.first_dirty, found.end) == expected[2:4]
    assert gathering.count_below(found.first_dirty) == sum(link.last < found.first_dirty for link in links)
    assert (survey.count, survey.first_dirty, survey.end) == found[1:]
    assert (survey.dirty_bytes, survey.all_bytes, survey.is_overdue) == expected[4:]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_changing_layout_is_collected_without_overlaps(data: st.DataObject) -> None:
    history = History(data)
    for _ in range(20):
        history.step()
    lineage = history.lineage()
    chain = RemoteLogLayout(history.cache, lineage, history.log_start)
    gathering, survey = CollectedSpans(PARTITION), CompactionSurvey(LogConfig(), NOW_MS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compaction_survey, "SPANS_PER_STEP", 1)
        patched.setattr(compaction_survey, "COLLECTED_PER_STEP", 1)
        is_done = False
        while not is_done:
            settle(chain, 3)
            is_done = gathering.step(chain) & survey.step(chain)
            if history.made and not is_done:
                history.update()
    links = list(gathering)
    assert all(before.last < after.first for before, after in pairwise(links))
    assert all(link.segment.start_offset <= link.first <= link.last for link in links)


def test_span_compacted_below_its_start_is_dirty() -> None:
    """No leader writes such a value; everything before it stays clean."""
    survey = CompactionSurvey(replace(LogConfig(), max_compaction_lag_ms=2**63 - 1), NOW_MS)
    for first, compacted_to in ((0, 20), (10, 5), (20, 30)):
        assert survey.add(SpanFigures(first, first + 9, 1, NOW_MS, compacted_to))
    assert (survey.first_dirty, survey.end, survey.dirty_bytes, survey.all_bytes) == (10, 30, 2, 3)


def test_groups_merge_small_spans_below_local_log() -> None:
    links = [link_of(at * 10, at * 10 + 9, size_bytes=30) for at in range(8)]
    config = LogConfig(segment_bytes=100)
    assert [len(run.spans) for run in group_segments(links, config, 50)] == [3, 2, 1, 1, 1]
    assert [len(run.spans) for run in group_segments(links, config, 1_000)] == [3, 3, 2]
    assert [len(run.spans) for run in group_segments(links, LogConfig(segment_bytes=29), 1_000)] == [1] * 8
    far = [link_of(0, 9, size_bytes=1), link_of(2**31, 2**31 + 9, size_bytes=1)]
    assert [len(run.spans) for run in group_segments(far, config, 2**40)] == [1, 1]
    many = [link_of(at, at, size_bytes=0) for at in range(MAX_SPANS_PER_GROUP + 1)]
    assert [len(run.spans) for run in group_segments(many, config, 2**40)] == [MAX_SPANS_PER_GROUP, 1]


def test_segment_with_later_span_is_not_replaced() -> None:
    """A late copy of a leader reaches beyond the segments that were compacted meanwhile."""
    late, compacted = link_of(0, 29, size_bytes=1), link_of(10, 19, size_bytes=1)
    links = [late._replace(last=9), compacted, late._replace(first=20)]
    (both,) = group_segments(links[:2], LogConfig(), 100)
    assert both.replaced == (compacted.segment,)
    (all_of_them,) = group_segments(links, LogConfig(), 100)
    assert set(all_of_them.replaced) == {late.segment, compacted.segment}


def link_of(first: int, last: int, *, size_bytes: int) -> SegmentSpan:
    segment = RemoteSegment(
        id=RemoteSegmentId(PARTITION, Uuid(first.to_bytes(16, "big"))),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=NOW_MS,
        broker_id=BrokerId(1),
        event_timestamp_ms=NOW_MS,
        size_bytes=size_bytes,
        leader_epochs=(SegmentEpoch(LeaderEpoch(0), first),),
    )
    return SegmentSpan(segment, first, last)

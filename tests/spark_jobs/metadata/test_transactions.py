"""The rows that are folded, wait or are dropped; and the summary of rows."""

import random

import pyarrow as pa
import pytest

from broker.metadata.image.records import InvalidMetadata
from protocol.compiler import encode_bytes
from protocol.ids import LeaderEpoch
from protocol.messages.common_records import KRaftVersionRecord, VotersRecord
from protocol.records.control import ControlType
from protocol.records.quorum_control import ControlState
from spark_jobs.metadata.fold_context import FoldContext, context_of
from spark_jobs.metadata.log_rows import ALL_SECTIONS, FROM_LOG, FROM_SNAPSHOT, rows_of
from spark_jobs.metadata.summary import (
    ControlRow,
    Summary,
    control_after,
    control_from_bytes,
    control_to_bytes,
    merge,
    summarize,
)
from spark_jobs.metadata.transactions import ABORT, BEGIN, END, TransactionMarker, TransactionPlan, plan
from tests.spark_jobs.metadata.logs import FOREVER, EveryHistory, Log


@pytest.mark.parametrize(
    ("markers", "expected"),
    [
        ([], TransactionPlan(100)),
        ([(5, BEGIN), (9, END)], TransactionPlan(100)),
        ([(5, BEGIN), (9, ABORT), (10, BEGIN), (12, ABORT)], TransactionPlan(100, ((5, 9), (10, 12)))),
        ([(9, END), (5, BEGIN), (20, BEGIN)], TransactionPlan(20, (), 20)),
        ([(5, BEGIN), (9, ABORT), (20, BEGIN)], TransactionPlan(20, ((5, 9),), 20)),
        ([(2, BEGIN), (5, BEGIN), (9, END), (100, BEGIN)], TransactionPlan(100)),
    ],
)
def test_plan_lists_aborted_and_open_transactions(markers: list[tuple[int, int]], expected: TransactionPlan) -> None:
    """Plan from offset 3 up to 100; markers outside are ignored."""
    found = plan([TransactionMarker(*each) for each in markers], start=3, end=100)
    assert found == expected
    assert found.is_open == (expected.open_since >= 0)


@pytest.mark.parametrize("markers", [[(5, END)], [(5, ABORT)], [(5, BEGIN), (6, BEGIN)]])
def test_markers_out_of_order_are_refused(markers: list[tuple[int, int]]) -> None:
    with pytest.raises(InvalidMetadata):
        plan([TransactionMarker(*each) for each in markers], start=0, end=100)


@pytest.mark.parametrize("seed", range(3))
def test_merged_summaries_equal_the_summary_of_all_rows(seed: int) -> None:
    log = Log.of(EveryHistory(seed, 60).batches, seed)
    rows = log.rows(0, len(log.batches))
    draw = random.Random(seed)
    cuts = sorted(draw.sample(range(len(rows)), 5))
    parts = [rows.slice(first, end - first) for first, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    draw.shuffle(parts)
    summaries = [Summary.from_json(summarize(part).to_json()) for part in parts]
    whole = summarize(rows)
    assert merge(summaries) == whole
    assert whole.end == log.batches[-1].last_offset + 1
    assert (whole.epoch, whole.timestamp_ms) == (log.batches[-1].epoch, log.batches[-1].timestamp_ms)
    assert whole.records == sum(len(batch.records) for batch in log.batches)
    assert merge([]) == summarize(rows.slice(0, 0)) == Summary()


def test_snapshot_above_the_start_concerns_every_section() -> None:
    log = Log.of(EveryHistory(1, 10).batches, 1)
    rows = pa.Table.from_batches([rows_of(log.data[0], start=0, end=50, origin=FROM_SNAPSHOT)])
    summary = summarize(rows)
    assert summary.sections == ALL_SECTIONS
    assert (summary.end, summary.snapshot_end, summary.records) == (50, 50, 0)
    context, transactions = context_of(summary, start=20, with_changes=False)
    assert (context.replaces, context.snapshot_place, transactions.stable_end) == (True, (49, 1, 1_000), 50)
    context, transactions = context_of(summary, start=50, with_changes=True)
    assert context == FoldContext(50, 50, with_changes=True, snapshot_epoch=LeaderEpoch(1), snapshot_timestamp_ms=1_000)


def kraft_version(offset: int, level: int, origin: int = FROM_LOG) -> ControlRow:
    value = encode_bytes(KRaftVersionRecord(kraft_version=level), 0)
    return ControlRow(offset, ControlType.KRAFT_VERSION, value, origin)


def test_control_records_establish_the_control_state() -> None:
    voters = VotersRecord(voters=[])
    rows = [
        kraft_version(3, 1),
        ControlRow(4, ControlType.KRAFT_VOTERS, encode_bytes(voters, 0), FROM_LOG),
        ControlRow(5, ControlType.LEADER_CHANGE, b"", FROM_LOG),
        ControlRow(6, 99, b"of a later version", FROM_LOG),
    ]
    state = control_after(None, rows)
    assert state == ControlState(1, voters)
    assert control_after(state, []) == state
    assert control_after(state, [kraft_version(8, 2)]) == ControlState(2, voters)
    assert control_after(state, [kraft_version(3, 0)], start=7) == state
    assert control_from_bytes(control_to_bytes(state)) == state
    assert control_from_bytes(control_to_bytes(None)) is None


def test_snapshot_replaces_the_control_state() -> None:
    before = ControlState(1, VotersRecord(voters=[]))
    rows = [kraft_version(3, 5), kraft_version(9, 2, FROM_SNAPSHOT), kraft_version(12, 3)]
    assert control_after(before, rows[:2]) == ControlState(2, None)
    assert control_after(before, rows) == ControlState(3, None)
    assert control_after(before, [rows[1]], start=10) == before


def test_rows_above_the_end_are_ignored() -> None:
    assert summarize(pa.Table.from_batches([rows_of(b"", start=0, end=FOREVER)])) == Summary()

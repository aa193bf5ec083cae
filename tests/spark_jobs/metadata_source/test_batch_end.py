"""The end of a micro-batch, and its division."""

from collections.abc import Iterator

import pytest

from protocol.ids import LeaderEpoch
from protocol.messages.fetch import FetchRequest
from spark_jobs.metadata_source import plan as planning
from spark_jobs.metadata_source.batch_end import TriggerLimit, next_end
from spark_jobs.metadata_source.metadata_log import MetadataLogClient, SnapshotName
from spark_jobs.metadata_source.plan import LogRange, WholeSnapshot, plan, ranges
from spark_jobs.metadata_source.position import NO_EPOCH, MetadataPosition
from tests.spark_jobs.metadata_source.batches import batches
from tests.spark_jobs.metadata_source.conftest import ClientFactory
from tests.support.fakes.served_metadata_log import ServedMetadataLog

START = MetadataPosition(0, NO_EPOCH, "fake")


@pytest.fixture
def served() -> Iterator[ServedMetadataLog]:
    """Serve batches that end at 3, 5, 9, 10, 30."""
    with ServedMetadataLog(batches(3, 2, 4, 1, 20, epochs=[1, 1, 3, 3, 4])) as log:
        yield log


@pytest.fixture
def log(served: ServedMetadataLog, open_client: ClientFactory) -> MetadataLogClient:
    return open_client(served)


def test_micro_batch_without_limit_reaches_the_high_watermark(
    served: ServedMetadataLog, log: MetadataLogClient
) -> None:
    assert next_end(log, START, TriggerLimit()) == MetadataPosition(30, LeaderEpoch(4), "fake")
    served.grow(3)
    assert next_end(log, START, TriggerLimit()) == MetadataPosition(9, LeaderEpoch(3), "fake")


@pytest.mark.parametrize(("rows", "end"), [(1, 3), (3, 3), (4, 5), (5, 5), (6, 9), (10, 10), (11, 30), (99, 30)])
@pytest.mark.parametrize("seen", [1, 100])
def test_row_limit_is_rounded_up_to_whole_batches(
    served: ServedMetadataLog, log: MetadataLogClient, rows: int, end: int, seen: int
) -> None:
    """The probe contains the last batch, or another fetch finds it."""
    served.most = seen
    assert next_end(log, START, TriggerLimit(rows=rows)).offset == end


def test_byte_limit_uses_the_density_of_the_probe(served: ServedMetadataLog, log: MetadataLogClient) -> None:
    whole = sum(map(len, served.batches))
    assert next_end(log, START, TriggerLimit(bytes=whole)).offset == 30
    assert next_end(log, START, TriggerLimit(bytes=whole // 3)).offset == 9
    assert next_end(log, START, TriggerLimit(bytes=1)).offset == 3


@pytest.mark.parametrize("before", [5, 10])
def test_records_after_the_ending_offset_are_ignored(log: MetadataLogClient, before: int) -> None:
    end = next_end(log, START, TriggerLimit(before=before))
    assert end.offset == before
    assert next_end(log, end, TriggerLimit(before=before)) == end


def test_micro_batch_without_new_records_ends_at_its_start(log: MetadataLogClient) -> None:
    there = MetadataPosition(30, LeaderEpoch(4), "fake")
    assert next_end(log, there, TriggerLimit(), 1) == there


def test_tail_needs_one_fetch(served: ServedMetadataLog, log: MetadataLogClient) -> None:
    log.bounds()
    served.broker.requests.clear()
    assert next_end(log, MetadataPosition(10, LeaderEpoch(3), "fake"), TriggerLimit()).offset == 30
    assert len(served.broker.received(FetchRequest)) == 1


def test_lower_high_watermark_of_a_new_leader_ends_the_micro_batch(
    served: ServedMetadataLog, log: MetadataLogClient
) -> None:
    there = MetadataPosition(30, LeaderEpoch(4), "fake")
    served.grow(3)
    assert next_end(log, there, TriggerLimit()) == there


def test_trimmed_log_continues_with_the_snapshot(served: ServedMetadataLog, log: MetadataLogClient) -> None:
    served.trim(3, b"")
    assert next_end(log, START, TriggerLimit()) == MetadataPosition(9, LeaderEpoch(3), "fake")


@pytest.mark.parametrize(
    ("end", "most", "count"), [(0, 4, 0), (1, 4, 1), (100_000, 4, 1), (100_001, 4, 2), (10**7, 4, 4)]
)
def test_ranges_are_adjacent_and_not_too_small(end: int, most: int, count: int) -> None:
    found = ranges(0, end, most)
    assert len(found) == count
    assert [each.start for each in found] == [0, *(each.end for each in found)][: len(found)]
    assert not found or found[-1].end == end


def test_plan_consists_of_ranges(log: MetadataLogClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ROWS_PER_RANGE", 10)
    assert plan(log, START, MetadataPosition(30, LeaderEpoch(4), "fake"), 3) == [
        LogRange(0, 10),
        LogRange(10, 20),
        LogRange(20, 30),
    ]
    assert plan(log, START, START, 3) == []


def test_plan_of_a_trimmed_log_begins_with_the_snapshot(served: ServedMetadataLog, log: MetadataLogClient) -> None:
    served.trim(3, b"")
    snapshot = WholeSnapshot(SnapshotName(9, 3))
    assert plan(log, START, MetadataPosition(30, LeaderEpoch(4), "fake"), 3) == [snapshot, LogRange(9, 30)]
    assert plan(log, START, MetadataPosition(5, LeaderEpoch(1), "fake"), 3) == [snapshot]

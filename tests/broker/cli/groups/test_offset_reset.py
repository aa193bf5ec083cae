"""Computation of reset offsets, without a broker."""

import pytest

from broker.cli.groups.offset_reset import (
    ResetCandidates,
    ResetError,
    ResetSpecification,
    ResetStrategy,
    new_offset,
    parse_datetime_ms,
    parse_duration_ms,
    parse_scope,
    read_plan,
    written_plan,
)
from storage.directories.checkpoints import TopicPartition

T0 = TopicPartition("t", 0)
CANDIDATES = ResetCandidates(earliest=10, latest=50, committed=30, by_time=40)
BLANK = ResetCandidates(earliest=10, latest=50, committed=None, by_time=None)


@pytest.mark.parametrize(
    ("strategy", "number", "candidates", "expected"),
    [
        (ResetStrategy.TO_EARLIEST, 0, CANDIDATES, 10),
        (ResetStrategy.TO_LATEST, 0, CANDIDATES, 50),
        (ResetStrategy.TO_CURRENT, 0, CANDIDATES, 30),
        (ResetStrategy.TO_CURRENT, 0, BLANK, 50),
        (ResetStrategy.BY_TIME, 1, CANDIDATES, 40),
        (ResetStrategy.BY_TIME, 1, BLANK, 50),
        (ResetStrategy.TO_OFFSET, 20, CANDIDATES, 20),
        (ResetStrategy.TO_OFFSET, 5, CANDIDATES, 10),
        (ResetStrategy.TO_OFFSET, 99, CANDIDATES, 50),
        (ResetStrategy.SHIFT_BY, 5, CANDIDATES, 35),
        (ResetStrategy.SHIFT_BY, -25, CANDIDATES, 10),
        (ResetStrategy.SHIFT_BY, 25, CANDIDATES, 50),
        (ResetStrategy.FROM_FILE, 99, CANDIDATES, 50),
    ],
)
def test_new_offset_stays_within_the_partition(
    strategy: ResetStrategy, number: int, candidates: ResetCandidates, expected: int
) -> None:
    assert new_offset(ResetSpecification(strategy, number), T0, candidates) == expected


def test_shift_without_committed_offset_is_refused() -> None:
    with pytest.raises(ResetError, match="Cannot shift offset for partition t-0"):
        new_offset(ResetSpecification(ResetStrategy.SHIFT_BY, 1), T0, BLANK)


@pytest.mark.parametrize(
    ("text", "expected"), [("t", ("t", None)), ("t:0", ("t", [0])), ("t:0,2", ("t", [0, 2])), ("a:b:1", ("a:b", [1]))]
)
def test_scope_parses_topic_and_partitions(text: str, expected: tuple[str, list[int] | None]) -> None:
    assert parse_scope(text) == expected


def test_scope_with_non_numeric_partitions_is_refused() -> None:
    with pytest.raises(ResetError, match="TOPIC:0,1,2"):
        parse_scope("t:a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("2020-01-01T00:00:00.000", 1577836800000),
    ],
)
def test_datetime_without_zone_is_utc(text: str, expected: int) -> None:
    assert parse_datetime_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1S", 1000),
        ("PT0.5S", 500),
        ("PT1M", 60_000),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1DT1S", 86_401_000),
        ("-PT1S", -1000),
        ("PT-1S", -1000),
    ],
)
def test_duration_parses_to_ms(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "PT1D", "P1DT"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ResetError):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "today", "2020-13-01T00:00:00"])
def test_invalid_datetime_is_refused(text: str) -> None:
    with pytest.raises(ResetError):
        parse_datetime_ms(text)


@pytest.mark.parametrize("groups", [["g"], ["g", "h"]])
def test_written_plan_can_be_read(groups: list[str]) -> None:
    plan = {group: {T0: 1, TopicPartition("u", 3): 7} for group in groups}
    assert read_plan(written_plan(plan), groups) == plan


def test_plan_cells_may_be_quoted() -> None:
    assert read_plan(['"t",0,5', ""], ["g"]) == {"g": {T0: 5}}


@pytest.mark.parametrize("line", ["t,0", "t,x,1", "t,0,-1", "g,t,0,1,2", "h,t,0,1"])
def test_invalid_plan_is_refused(line: str) -> None:
    with pytest.raises(ResetError, match="line 1 of the file"):
        read_plan([line], ["g"])

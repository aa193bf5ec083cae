"""The report: ratios, medians with spreads, files of the contract, and the page with the lost rows first."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks.groups import GROUPS, LIMIT_S, MINUTES_RUNS, RUNS, Ask, Group, share_of_runs
from tests.benchmarks.report.files import GroupResult, Report, read, write
from tests.benchmarks.report.page import write_page
from tests.benchmarks.report.plots import advantages
from tests.benchmarks.report.reasons import reason_for
from tests.benchmarks.report.rows import USER, Row, of_runs, once

RATE, COST = "produce 1 KB", "produce 1 KB, broker CPU"
FIGURES = {RATE: ("MB/s", "higher"), COST: ("ms/MB", "lower")}
SLOW = once("rebalance of 500 members", 3.0, 2.0, "s", "lower")
ALONE = once("read alone", 900.0, None, "MB/s", "higher")


@pytest.fixture
def rows() -> list[Row]:
    ours = [{RATE: rate, COST: 2.0, COST + USER: 1.0} for rate in (300.0, 500.0, 400.0)]
    theirs = [{RATE: rate, COST: 4.0, COST + USER: 3.0} for rate in (200.0, 100.0, 250.0)]
    return of_runs(FIGURES, {"ottla": ours, "kafka": theirs})


@pytest.fixture
def report(rows: list[Row]) -> Report:
    return Report({"Python": "3.13"}, [GroupResult("One node", rows, 60.0), GroupResult("Groups", [SLOW, ALONE], 30.0)])


def test_figures_are_medians_with_lowest_and_highest_run(rows: list[Row]) -> None:
    assert (rows[0].ottla, rows[0].ottla_spread, rows[0].kafka, rows[0].kafka_spread) == (
        400.0,
        (300.0, 500.0),
        200.0,
        (100.0, 250.0),
    )


def test_user_share_of_processor_time_is_kept_by_broker(rows: list[Row]) -> None:
    assert rows[0].user is None
    assert rows[1].user == {"ottla": 0.5, "kafka": 0.75}


@pytest.mark.parametrize(
    ("row", "ratio", "advantage"),
    [
        (once("rate", 30.0, 20.0, "1/s", "higher"), 1.5, 1.5),
        (once("time", 30.0, 20.0, "s", "lower"), 1.5, 1 / 1.5),
        (once("alone", 30.0, None, "s", "lower"), None, None),
        (once("zero", 30.0, 0.0, "s", "lower"), None, None),
    ],
)
def test_ratio_is_of_figures_and_advantage_knows_the_better_direction(
    row: Row, ratio: float | None, advantage: float | None
) -> None:
    assert row.ratio == ratio
    assert row.advantage == advantage


def test_files_hold_the_contract_and_can_be_read_again(report: Report, tmp_path: Path) -> None:
    table = write(report, tmp_path)
    listed = json.loads((tmp_path / "report.json").read_text())
    assert [set(each) for each in listed] == [{"name", "ottla", "kafka", "unit", "ratio", "better"}] * 4
    assert (tmp_path / "report.md").read_text() == table
    assert "| rebalance of 500 members | 3.0 | 2.0 | s | 1.5 | lower |" in table
    assert read(tmp_path) == report


def test_table_names_a_failed_group(tmp_path: Path) -> None:
    table = write(Report({}, [GroupResult("TLS", [], 1.0, "AssertionError: no record")]), tmp_path)
    assert "TLS: failed: AssertionError: no record" in table


def test_page_begins_with_the_rows_on_which_kafka_is_better(report: Report, tmp_path: Path) -> None:
    text = write_page(report, tmp_path).read_text()
    lost, groups = text.split("## One node")
    assert f"| rebalance of 500 members | 3 s | 2 s | 1.5 | {reason_for('rebalance').reason}" in lost
    assert "produce 1 KB" not in lost
    assert f"| {COST} | 2 / 50% | 4 / 75% | ms/MB | 0.5 | lower |" in groups
    assert f"| {RATE} | 400 (300–500) | 200 (100–250) | MB/s | 2.0 | higher |" in groups
    assert "| read alone | 900 |  | MB/s |  | higher |" in groups
    assert (tmp_path / "images" / "benchmark-one-node.svg").exists()


def test_plot_is_the_same_for_the_same_rows(rows: list[Row]) -> None:
    plot = advantages("One node", rows)
    assert plot == advantages("One node", rows)
    assert RATE in plot
    assert "2.00" in plot


def test_a_group_that_fails_keeps_the_rows_before_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_late(_ask: Ask) -> Iterator[Row]:
        yield SLOW
        raise ConnectionRefusedError("the broker is gone")

    written: list[Report] = []
    monkeypatch.setattr(bench, "GROUPS", (Group("Groups", fails_late, is_quick=True, minutes=1),))
    monkeypatch.setattr(bench, "kafka_unavailable", lambda: None)
    monkeypatch.setattr(bench, "facts", lambda _kind: {})
    monkeypatch.setattr(bench, "write", written.append)

    report = bench.run(Ask("rebalance", 1))

    assert [(group.rows, group.failure) for group in report.groups] == [
        ([SLOW], "ConnectionRefusedError: the broker is gone")
    ]
    assert written == [report]


def _seconds(groups: Sequence[Group]) -> float:
    return 60 * sum(group.minutes for group in groups)


def test_the_plan_of_a_whole_run_fits_into_the_limit() -> None:
    assert share_of_runs(0.0, [], GROUPS) == 1.0
    assert _seconds(GROUPS) < LIMIT_S


def test_a_slow_host_lowers_the_runs_of_long_workloads_only() -> None:
    done, ahead = GROUPS[:3], GROUPS[3:]
    on_time = Ask(share=share_of_runs(_seconds(done), done, ahead))
    late = Ask(share=share_of_runs(1.4 * _seconds(done), done, ahead))
    too_late = Ask(share=share_of_runs(2 * LIMIT_S, done, ahead))
    assert [each.runs_or(MINUTES_RUNS) for each in (on_time, late, too_late)] == [3, 2, 2]
    assert [each.runs_or(RUNS) for each in (on_time, late, too_late)] == [5, 5, 5]
    assert [each.runs_or(1) for each in (on_time, late, too_late)] == [1, 1, 1]


def test_asked_runs_do_not_depend_on_the_time() -> None:
    assert Ask(runs=3, share=0.1).runs_or(RUNS) == 3
    assert Ask(quick=True, share=0.1).runs_or(RUNS) == 1


def test_page_names_the_counted_runs(rows: list[Row], report: Report, tmp_path: Path) -> None:
    text = write_page(report, tmp_path).read_text()
    assert rows[0].runs == 3
    assert "The group took 1.0 min; counted runs of a row: 3." in text
    assert "The group took 0.5 min; counted runs of a row: 1." in text

"""The parts of the page for small, large and unusual clusters."""

from datetime import UTC, date, datetime, timedelta

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

from pyspark.sql import Row

from spark_jobs.metadata_tables.report import (
    MAX_BARS,
    MAX_BROKERS,
    MAX_ROWS,
    balance_plot,
    growth_plot,
    shrinks_plot,
    table_of,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_page_of_an_empty_history_reports_it() -> None:
    for part in (growth_plot([], NOW), shrinks_plot([]), balance_plot([]), table_of([])):
        assert part == "<p class=note>None.</p>"


def test_names_are_escaped_in_the_page() -> None:
    page = table_of([Row(topic="<script>alert(1)</script>", missing=[1, 2], since=None)])
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "<td>1, 2</td><td></td>" in page


def test_long_table_reports_its_truncation() -> None:
    rows = [Row(topic=f"t{number}") for number in range(MAX_ROWS + 1)]
    assert f"t{MAX_ROWS - 1}" in table_of(rows)
    assert f"t{MAX_ROWS}" not in table_of(rows)
    assert f"Only the first {MAX_ROWS} rows are shown." in table_of(rows)
    assert "Only" not in table_of(rows[:-1])


def test_growth_is_drawn_up_to_now() -> None:
    local = NOW.astimezone().replace(tzinfo=None)
    page = growth_plot([Row(hour=local - timedelta(hours=2), topics=1, partitions=3)], NOW)
    for label in (">topics<", ">partitions<", ">time (UTC)<", 'aria-label="Number of topics and partitions over time"'):
        assert label in page


def test_plot_colours_the_brokers_that_lost_most_replicas() -> None:
    days = [date(2026, 1, 31) - timedelta(days=ago) for ago in (0, 9)]
    rows = [Row(day=day, broker=broker, shrinks=broker) for day in days for broker in range(1, 101)]
    page = shrinks_plot(rows)
    assert ">broker 100<" in page
    assert f">broker {100 - MAX_BROKERS}<" not in page
    for label in (">others<", ">replicas that left<", ">day (UTC)<"):
        assert label in page


def test_plot_shows_the_brokers_that_lead_most_partitions() -> None:
    page = balance_plot([Row(broker=broker, leads=1000 - broker, preferred=7) for broker in range(1, 101)])
    assert f">{MAX_BARS}<" in page
    assert f">{MAX_BARS + 1}<" not in page
    assert "100 brokers lead 94950 partitions, each from 900 to 999." in page
    assert f"The {MAX_BARS} brokers with the most partitions are shown." in page
    assert "Shown" not in balance_plot([Row(broker=1, leads=2, preferred=2)])

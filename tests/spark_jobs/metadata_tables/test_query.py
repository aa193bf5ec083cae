"""The query command as far as it needs no Spark."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

from spark_jobs.metadata_tables.query import main, parameters_of
from spark_jobs.metadata_tables.views import QUERIES


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_command_without_query_lists_the_examples() -> None:
    result = run()
    assert result.exit_code == 0
    lines = result.output.splitlines()
    for file in QUERIES.glob("*.sql"):
        at = next(number for number, line in enumerate(lines) if line.split(" ")[0] == file.stem)
        assert lines[at + 1].startswith("    "), "each example has a description"
    assert "cluster_at_offset --param offset=…" in lines


def test_parameters_of_a_query_are_found() -> None:
    text = "-- at :never\nSELECT a::int, 'x :y', '10:30' FROM t WHERE b = :topic AND c < :offset OR d = :topic"
    assert parameters_of(text) == ["offset", "topic"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["who_changed_this", "--tables", "x"], 2, "The query needs --param topic=…"),
        (["who_changed_that", "--tables", "x"], 2, "There is no example who_changed_that; there are broker_absences,"),
        (["leader_moves"], 2, "Missing option '--tables'"),
        (["leader_moves", "--sql", "SELECT 1", "--tables", "x"], 2, "exclude each other"),
        (["leader_moves", "--tables", "ftp://x"], 1, "--tables: "),
    ],
)
def test_wrong_usage_is_reported(arguments: list[str], code: int, message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, message in result.output) == (code, True), result.output


def test_missing_tables_are_reported_and_not_created(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        result = run("leader_moves", "--tables", str(place))
        assert result.exit_code == 1
        assert f"{place} has no tables." in result.output
    assert list(tmp_path.iterdir()) == []

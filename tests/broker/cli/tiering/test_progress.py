"""Progress is for people who look on, and never in the way of what is printed."""

import pytest

from broker.cli.tiering.progress import with_progress


def test_nothing_is_said_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(with_progress([1, 2], "partitions")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_count_that_goes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert list(with_progress([1, 2], "partitions")) == [1, 2]
    said = capsys.readouterr().err.split("\r\x1b[K")
    assert said == ["", "partitions: …", "", "partitions: 1", "", "partitions: 2", ""]

"""Progress of long operations: shown on a terminal only, and cleared before other output."""

import pytest

from broker.cli.tiering.progress import with_progress


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(with_progress([1, 2], "partitions")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_terminal_shows_a_count_and_clears_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert list(with_progress([1, 2], "partitions")) == [1, 2]
    output = capsys.readouterr().err.split("\r\x1b[K")
    assert output == ["", "partitions: …", "", "partitions: 1", "", "partitions: 2", ""]

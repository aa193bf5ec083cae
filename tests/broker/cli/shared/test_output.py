"""Output of commands to pipes and terminals."""

import pytest

from broker.cli.shared import output


def test_pipe_gets_columns(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_columns(["A", "B"], [["1", 2], ["long one", 3]], ["{:<5}", "{}"])
    assert capsys.readouterr().out == "A     B\n1     2\nlong one 3\n"


def test_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    output.print_columns(["A", "B"], [["[bold]", 2], ["long one", 3]], ["{:<5}", "{}"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["A", "B"], ["[bold]", "2"], ["long", "one", "3"]]


@pytest.mark.parametrize(("terminal", "text"), [(False, '{"a": "ü"}\n'), (True, '{\n  "a": "ü"\n}\n')])
def test_json_is_indented_on_a_terminal(
    terminal: bool, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: terminal)
    output.print_json({"a": "ü"})
    assert capsys.readouterr().out == text

"""Finding commands, exit codes, and failures that are one sentence."""

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from broker.cli import main as main_module
from broker.cli.catalogue import COMMANDS, NOT_IMPLEMENTED, Command
from broker.cli.main import cli, run
from broker.cli.shared.failure import CommandFailed


@pytest.fixture
def broken_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of a test's own, found as the real ones are."""
    for name in ("fails", "bug", "interrupted", "talks"):
        monkeypatch.setitem(COMMANDS, name, Command("main", f"_test_{name}", "A test's command."))

    @click.command()
    def fails() -> None:
        raise CommandFailed("It cannot be done.")

    @click.command()
    def bug() -> None:
        raise KeyError("nobody expected this")

    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    @click.command()
    def talks() -> None:
        raise BrokenPipeError

    for command in (fails, bug, interrupted, talks):
        monkeypatch.setattr(main_module, f"_test_{command.name}", command, raising=False)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"Usage: ottla {command}" in capsys.readouterr().out


def test_the_list_of_commands_shows_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert not any(f"  {name} " in out for name in NOT_IMPLEMENTED)


@pytest.mark.parametrize("command", list(NOT_IMPLEMENTED))
def test_what_has_not_landed_refuses_in_one_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--bootstrap-server", "h:1", "describe", "--status"]) == 1
    err = capsys.readouterr().err
    assert f"`ottla {command}` is not implemented" in err
    assert err.count("\n") == 1


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by the words that call it."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        yield from leaves(child, (*path, name))


def test_whatever_prints_data_prints_it_as_json_too() -> None:
    without = {
        path
        for path, command in leaves(cli)
        if not any("--json" in parameter.opts for parameter in command.params) and "-producer" not in path
    }
    run_nodes, change_something = {"start", "cluster"}, {"storage format", "features upgrade", "features downgrade"}
    change_something |= {"features disable", "metadata-quorum add-controller", "metadata-quorum remove-controller"}
    change_something |= {"remote create-bucket"}
    assert without == run_nodes | change_something


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic"]) == 2
    assert "topic" in capsys.readouterr().err


@pytest.mark.usefixtures("broken_commands")
def test_a_failure_is_one_sentence_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fails"]) == 1
    assert capsys.readouterr() == ("", "Error: It cannot be done.\n")


@pytest.mark.usefixtures("broken_commands")
def test_a_bug_is_one_sentence_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bug"]) == 1
    assert "KeyError: 'nobody expected this' (a bug in ottla" in capsys.readouterr().err


@pytest.mark.usefixtures("broken_commands")
def test_a_bug_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TRACEBACK", "1")
    with pytest.raises(KeyError):
        run(["bug"])


@pytest.mark.usefixtures("broken_commands")
def test_an_interrupt_is_no_failure_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["interrupted"]) == 130
    assert capsys.readouterr().err.strip() == ""


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m broker dump-log --help | head -c 1"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert "Traceback" not in result.stderr


def test_start_imports_neither_client_nor_tables() -> None:
    code = (
        "import sys, broker.__main__, broker.cli.start\n"
        "print([m for m in ('rich', 'broker.client', 'boto3', 'aiokafka', 'asyncio') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ottla ")

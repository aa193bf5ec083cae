"""Lookup of commands, exit codes and error messages."""

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from broker.build_form import build_form
from broker.cli import main as main_module
from broker.cli.catalogue import COMMANDS, Command
from broker.cli.main import cli, run
from broker.cli.shared.failure import CommandFailed


@pytest.fixture
def broken_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register test commands in the catalogue."""
    for name in ("fails", "bug", "interrupted", "chatty"):
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
    def chatty() -> None:
        raise BrokenPipeError

    for command in (fails, bug, interrupted, chatty):
        monkeypatch.setattr(main_module, f"_test_{command.name}", command, raising=False)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"Usage: ottla {command}" in capsys.readouterr().out


def test_help_lists_implemented_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


def leaf_commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is not a group, with its path."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        yield from leaf_commands(child, (*path, name))


def test_every_command_that_prints_data_has_json() -> None:
    without = {
        path
        for path, command in leaf_commands(cli)
        if not any("--json" in parameter.opts for parameter in command.params) and "-producer" not in path
    }
    run_nodes, benchmarks = {"start"}, {"producer-perf", "consumer-perf", "perf-consumer", "share-consumer-perf"}
    prints_json_anyway, prints_a_script = {"verifiable-consumer", "verifiable-share-consumer"}, {"completion"}
    change_something = {"storage format", "features upgrade", "features downgrade"}
    change_something |= {"features disable", "metadata-quorum add-controller", "metadata-quorum remove-controller"}
    change_something |= {
        "cluster unregister",
        "kafka-cluster unregister",
        "remote create-bucket",
        "transactions abort",
        "streams-application-reset",
        "transactions forceTerminateTransaction",
    }
    assert without == run_nodes | benchmarks | change_something | prints_json_anyway | prints_a_script


def test_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic"]) == 2
    assert "topic" in capsys.readouterr().err


@pytest.mark.usefixtures("broken_commands")
def test_failure_prints_a_message_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fails"]) == 1
    assert capsys.readouterr() == ("", "Error: It cannot be done.\n")


@pytest.mark.usefixtures("broken_commands")
def test_bug_prints_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bug"]) == 1
    assert "KeyError: 'nobody expected this' (a bug in ottla" in capsys.readouterr().err


@pytest.mark.usefixtures("broken_commands")
def test_traceback_variable_raises_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TRACEBACK", "1")
    with pytest.raises(KeyError):
        run(["bug"])


@pytest.mark.usefixtures("broken_commands")
def test_interrupt_exits_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["interrupted"]) == 130
    assert capsys.readouterr().err.strip() == ""


def test_broken_pipe_prints_no_traceback() -> None:
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


def test_node_imports_no_library_of_features_that_are_off() -> None:
    """Tokens, TLS, remote storage, the console and OpenTelemetry come with the settings that need them."""
    code = (
        "import sys, broker.app, protocol.records.record_code\n"
        "unused = ('jwt', 'cryptography', 'urllib.request', 'http.client', 'importlib.metadata', 'email', 'decimal', "
        "'javaproperties', 'yaml', 'rich', 'boto3', 'aiokafka', 'opentelemetry', 'broker.client', 'broker.console', "
        "'broker.tls.listener', 'storage.tiered.stores.s3')\n"
        "print([m for m in unused if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("ottla ")
    assert printed.endswith(f", {build_form()})\n")

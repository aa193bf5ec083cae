"""`ottla metadata-shell`: Kafka's kafka-metadata-shell, which also works on a live cluster here."""

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator

import click

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import DEFAULT_BOOTSTRAP, json_option
from broker.cli.shared.output import print_json
from broker.cli.shared.session import session
from broker.cli.shell.commands import Shell, ShellError, ShellExit
from broker.cli.shell.nodes import DirectoryNode, root
from broker.cli.shell.sources import LiveMetadata, load_file

PROMPT = ">> "


@click.command(
    "metadata-shell",
    short_help="Browse the metadata of a cluster as a tree of files.",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)
@click.option("--snapshot", "-s", metavar="FILE", help="A snapshot file, *.checkpoint.")
@click.option("--bootstrap-server", metavar="HOST:PORT[,…]", help=f"A live cluster. [default: {DEFAULT_BOOTSTRAP}]")
@click.option("--command-config", metavar="FILE", type=click.Path(), help="Properties of the client.")
@json_option
@click.argument("command", nargs=-1)
def metadata_shell(
    snapshot: str | None,
    bootstrap_server: str | None,
    command_config: str | None,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Browse the metadata of a cluster as a tree of files (kafka-metadata-shell).

    Run COMMAND (ls, cat, find, tree …; `help` lists them), or prompt for commands. On a live cluster, each command
    reads the latest metadata.
    """
    if snapshot is not None and bootstrap_server is not None:
        raise click.UsageError("--snapshot and --bootstrap-server exclude each other.")
    if as_json and not command:
        raise click.UsageError("--json requires a COMMAND.")
    with _tree(snapshot, bootstrap_server or DEFAULT_BOOTSTRAP, command_config) as tree:
        shell = Shell(tree)
        if command:
            _run_one(shell, command, as_json=as_json)
        else:
            _run_all(shell)


@contextlib.contextmanager
def _tree(snapshot: str | None, bootstrap: str, command_config: str | None) -> Iterator[Callable[[], DirectoryNode]]:
    """Open the metadata; each call of the result returns the current tree."""
    if snapshot is not None:
        fixed = root(load_file(snapshot))
        yield lambda: fixed
        return
    with session(bootstrap, command_config) as client:
        live = LiveMetadata(client)

        def current() -> DirectoryNode:
            live.catch_up()
            return root(live.image)

        yield current


def _run_one(shell: Shell, command: tuple[str, ...], *, as_json: bool) -> None:
    """Run one command. Raises CommandFailed."""
    try:
        if as_json:
            print_json(shell.document(command))
            return
        for line in shell.run(command):
            click.echo(line)
    except ShellError as error:
        raise CommandFailed(str(error)) from error
    except ShellExit:
        return


def _run_all(shell: Shell) -> None:
    """Run commands from the terminal or, without prompts, from a pipe. Continue after a failed command."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        _complete_with(shell)
        click.echo("[ Ottla metadata shell: `help` lists the commands. ]")
    while True:
        try:
            words = shlex.split(input(PROMPT if is_terminal else ""))
            if words:
                for line in shell.run(words):
                    click.echo(line)
        except ValueError as error:  # shlex: an unclosed quotation
            click.echo(f"{error}.", err=True)
        except ShellError as error:
            click.echo(str(error), err=True)
        except (EOFError, ShellExit):
            return


def _complete_with(shell: Shell) -> None:
    """Complete paths with the tab key, if readline is available."""
    try:
        import readline
    except ImportError:
        return
    readline.set_completer_delims(" \t\n'\"")
    readline.set_completer(lambda text, state: [*shell.complete(text), None][state])
    readline.parse_and_bind("tab: complete")

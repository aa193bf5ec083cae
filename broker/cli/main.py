"""`ottla COMMAND …`: finds the command, runs it, and turns its outcome into an exit code.

Exit codes: 0 success, 1 failure with a message on stderr, 2 wrong usage. Tracebacks are printed only if
OTTLA_TRACEBACK is set in the environment.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import cast

import click

from broker.cli.catalogue import COMMANDS
from broker.cli.completion.command import COMPLETE_VARIABLE, PROGRAM
from broker.cli.completion.names import complete_names_in

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

HELP_WIDTH = 110


class _LazyGroup(click.Group):
    """Group that imports a command on lookup; short help texts come from the catalogue."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        entry = COMMANDS[cmd_name]
        command = cast(click.Command, getattr(import_module(f"broker.cli.{entry.module}"), entry.attribute))
        if COMPLETE_VARIABLE in os.environ:
            complete_names_in(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.about) for name, command in COMMANDS.items()])


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print version, commit and form of the build and end the program, where the option is given."""
    if not wanted or context.resilient_parsing:
        return
    from broker.build_commit import build_commit
    from broker.build_form import build_form, release

    click.echo(f"ottla {release()} (commit {build_commit()}, {build_form()})")
    context.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
              help="Show the version, its commit and whether it is compiled, and exit.")  # fmt: skip
def cli() -> None:
    """A Kafka-compatible broker and its tools."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return the exit code."""
    try:
        result = cli.main(list(arguments), prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        error.show()
        return EXIT_USAGE
    except click.ClickException as error:
        _print_error(error.format_message())
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _discard_output()
    except Exception as error:
        if os.environ.get("OTTLA_TRACEBACK"):
            raise
        _print_error(f"{type(error).__name__}: {error} (a bug in ottla; set OTTLA_TRACEBACK=1 for the traceback)")
        return EXIT_FAILURE
    return result if isinstance(result, int) else 0


def _print_error(sentence: str) -> None:
    click.echo(f"Error: {sentence}", err=True)


def _discard_output() -> int:
    """Redirect stdout to /dev/null after a broken pipe (`| head`), so that flushing at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILURE


def main() -> None:
    """Run the program."""
    sys.exit(run(sys.argv[1:]))

"""Options that several commands share, and checks of options: exactly one action, and options that require another."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def client_options(command: F) -> F:
    """Add --bootstrap-server and --command-config, as `bootstrap_server` and `command_config`."""
    command = click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(),
        help="Properties of the client: request.timeout.ms, default.api.timeout.ms, client.id ….",
    )(command)
    return click.option(
        "--bootstrap-server",
        metavar="HOST:PORT[,…]",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        help="One or more brokers of the cluster.",
    )(command)


def json_option(command: F) -> F:
    """Add --json, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(command)


def one_action(given: Mapping[str, bool]) -> str:
    """Return the action that is set. Raises UsageError for none or several, as Kafka's tools do."""
    chosen = [name for name, is_set in given.items() if is_set]
    if len(chosen) != 1:
        names = [f"--{name}" for name in given]
        raise click.UsageError(f"Command must include exactly one action: {', '.join(names[:-1])} or {names[-1]}")
    return chosen[0]


def forbid(given: Mapping[str, object], unless: str) -> None:
    """Raise UsageError for an option that is given without the option it requires."""
    for name, value in given.items():
        if value not in (None, False, (), ""):
            raise click.UsageError(f"--{name} requires {unless}.")


def key_value(text: str, option: str) -> tuple[str, str]:
    """Parse "k=v" to a pair. Raises UsageError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.UsageError(f"{option}: {text!r} is not NAME=VALUE.")
    return key.strip(), value

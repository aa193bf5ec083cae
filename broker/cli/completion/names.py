"""Completion of topic and group names from the cluster that the command line names."""

from collections.abc import Callable
from typing import Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from broker.cli.shared.failure import CommandFailed

TIMEOUT_MS: Final = 1000
"""Time limit of each step. A shell waits for the completion, so an unreachable cluster must not hold it up."""

_LIMITS: Final = dict.fromkeys(
    ("socket.connection.setup.timeout.ms", "request.timeout.ms", "default.api.timeout.ms"), str(TIMEOUT_MS)
)
_SERVERS: Final = ("bootstrap_server", "server", "brokers")

Names = Callable[[str, str | None], list[str]]
"""Function that returns names, for bootstrap servers and a file of client properties."""


def complete_names_in(command: click.Command) -> None:
    """Let the options of the command that take a topic or a group complete it."""
    kinds: dict[str, Names] = {"--topic": _topics, "--topics": _topics, "--group": _groups, "--group-id": _groups}
    for parameter in command.params:
        for option, names in kinds.items():
            if option in parameter.opts:
                parameter._custom_shell_complete = _completer(names)


def _completer(names: Names) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        servers = _given_servers(context)
        if servers is None:
            return []
        try:
            found = names(servers, context.params.get("command_config"))
        except (CommandFailed, OSError):
            return []  # A shell has no place for an error; the command itself will report it.
        return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]

    return complete


def _given_servers(context: click.Context | None) -> str | None:
    """Return the bootstrap servers of the command line, which may stand before an action; None without them."""
    while context is not None:
        for name in _SERVERS:
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                return str(context.params[name])
        context = context.parent
    return None


def _topics(servers: str, config: str | None) -> list[str]:
    from broker.cli.shared.session import session  # local imports: a command loads the client only when it needs it

    with session(servers, config, _LIMITS) as client:
        return [topic.name or "" for topic in client.metadata().topics]


def _groups(servers: str, config: str | None) -> list[str]:
    from broker.cli.groups.view import listed_groups
    from broker.cli.shared.session import session

    with session(servers, config, _LIMITS) as client:
        return [group.group_id for group in listed_groups(client, (), ())]

"""The options of a tool of Kafka, read from its help, and those of our command."""

import re
from collections.abc import Iterator
from typing import Final

import click

from broker.cli.main import cli
from tests.support.kafka.kafka_commands import KafkaCommand
from tests.support.kafka.tool_runner import KafkaTools

_OPTION: Final = re.compile(r"^\s*(?:\* )?(?:-\w(?: [A-Z_]+)?, )?(--[a-z][\w.-]*)", re.MULTILINE)
_ACTIONS: Final = re.compile(r"\{([a-zA-Z,-]+)\}")
_OF_EVERY_TOOL: Final = {"--help", "--version"}
"""`ottla --version` serves all commands."""


def options_of_kafka(tools: KafkaTools, command: KafkaCommand) -> set[str]:
    """Return the options in the help of a tool and of its actions."""
    help_option = "--bogus" if command.main.endswith("EndToEndLatency") else "--help"
    arguments = (help_option,) * (6 if help_option == "--bogus" else 1)
    shown = tools.usage(command.main, *arguments)
    text = shown.out + shown.err
    if (actions := _ACTIONS.search(text)) is not None:
        for action in actions[1].split(","):
            shown = tools.usage(command.main, action, "--help")
            text += shown.out + shown.err
    return set(_OPTION.findall(text)) - _OF_EVERY_TOOL


def options_of_ours(name: str) -> set[str]:
    """Return the options of our command and of its actions."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return set(_options(command))


def _options(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from (option for option in parameter.opts if option.startswith("--"))
    if isinstance(command, click.Group):
        for action in command.commands.values():
            yield from _options(action)

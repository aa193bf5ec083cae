"""Settings of a started node that hold passwords: in a private file, since all users see command lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.cli.node.private_file import properties_text, write_private
from broker.cli.shared.failure import CommandFailed
from broker.config.exposure import is_secret
from broker.config.load import parse_override
from broker.supervisor.layout import start_command

SECRETS_FILE: Final = "ottla-secrets.properties"
"""File in a node's directory with the settings that hold passwords."""


def split_secrets(settings: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split KEY=VALUE texts into those that anybody may see and those with passwords."""
    secret = [each for each in settings if is_secret(each.partition("=")[0].strip())]
    return [each for each in settings if each not in secret], secret


def node_command(directory: Path, settings: Sequence[str]) -> tuple[str, ...]:
    """Return the command of a node, whose passwords are in a file of its directory."""
    public, secret = split_secrets(settings)
    return start_command(public, directory / SECRETS_FILE if secret else None)


def write_secrets(directory: Path, settings: Sequence[str]) -> None:
    """Write the passwords among the settings for the node; remove the file of a former start. Raises CommandFailed."""
    path = directory / SECRETS_FILE
    secret = split_secrets(settings)[1]
    try:
        path.unlink(missing_ok=True)
        if secret:
            directory.mkdir(parents=True, exist_ok=True)
            write_private(path, properties_text(dict(parse_override(each) for each in secret)))
    except OSError as error:
        raise CommandFailed(f"cannot use {path}: {error.strerror}.") from error

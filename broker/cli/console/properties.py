"""Properties given as NAME=VALUE options and in files, with the escapes that shells make hard to type."""

from collections.abc import Iterable

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import key_value
from broker.cli.shared.session import read_properties

_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\0": "\0"}


def gather(file: str | None, options: Iterable[str], option_name: str) -> dict[str, str]:
    """The properties of the file, then those of the options on top. Raises UsageError, CommandFailed."""
    return read_properties(file) | dict(key_value(option, option_name) for option in options)


def is_true(properties: dict[str, str], key: str, default: bool = False) -> bool:
    """A boolean property. Raises CommandFailed for a value that is neither true nor false."""
    text = properties.get(key, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise CommandFailed(f"{key}={properties[key]} is neither true nor false.")
    return text == "true"


def separator(properties: dict[str, str], key: str, default: str) -> bytes:
    """A separator, in which a typed `\\t` is a tab. Raises CommandFailed for an empty one."""
    text = properties.get(key, default)
    for escape, meant in _ESCAPES.items():
        text = text.replace(escape, meant)
    if not text:
        raise CommandFailed(f"{key} must not be empty.")
    return text.encode()


def number(properties: dict[str, str], key: str, default: int) -> int:
    """A whole number. Raises CommandFailed."""
    text = properties.get(key, str(default)).strip()
    try:
        return int(text)
    except ValueError as error:
        raise CommandFailed(f"{key}={text} is not a whole number.") from error

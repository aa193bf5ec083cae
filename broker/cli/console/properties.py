"""Properties from NAME=VALUE options and files, with escapes for control characters."""

from collections.abc import Iterable

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import key_value
from broker.cli.shared.session import read_properties

_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\0": "\0"}


def gather(file: str | None, options: Iterable[str], option_name: str) -> dict[str, str]:
    """Return the properties of the file, overridden by the options. Raises UsageError or CommandFailed."""
    return read_properties(file) | dict(key_value(option, option_name) for option in options)


def is_true(properties: dict[str, str], key: str, default: bool = False) -> bool:
    """Return a boolean property. Raises CommandFailed for a value that is neither true nor false."""
    text = properties.get(key, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise CommandFailed(f"{key}={properties[key]} is neither true nor false.")
    return text == "true"


def separator(properties: dict[str, str], key: str, default: str) -> bytes:
    """Return a separator, in which `\\t` means a tab. Raises CommandFailed for an empty one."""
    text = properties.get(key, default)
    for escape, meant in _ESCAPES.items():
        text = text.replace(escape, meant)
    if not text:
        raise CommandFailed(f"{key} must not be empty.")
    return text.encode()


def number(properties: dict[str, str], key: str, default: int) -> int:
    """Return an integer property. Raises CommandFailed."""
    text = properties.get(key, str(default)).strip()
    try:
        return int(text)
    except ValueError as error:
        raise CommandFailed(f"{key}={text} is not a whole number.") from error

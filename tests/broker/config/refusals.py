"""The outcome of a configuration check as a value."""

from collections.abc import Callable

from broker.config.errors import ConfigError


def refused_key(check: Callable[[], object]) -> str | None:
    """Return the key that the check refuses, or None if it accepts everything."""
    try:
        check()
    except ConfigError as error:
        return error.key
    return None

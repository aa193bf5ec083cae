"""Config values in the syntax of kafka-configs: "k1=v1,k2=[a,b],k3=". Pure text."""

import re

_SEPARATOR = re.compile(r",(?=[^\]]*(?:\[|$))")
"""A comma outside brackets."""


def parse_additions(text: str) -> dict[str, str]:
    """Parse "k1=v1,k2=[a,b]" to a dict; brackets around a value are dropped. Raises ValueError."""
    pairs: dict[str, str] = {}
    for part in _SEPARATOR.split(text):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{part!r} is not NAME=VALUE.")
        pairs[key.strip()] = _without_brackets(value.strip())
    return pairs


def _without_brackets(value: str) -> str:
    return value[1:-1] if value.startswith("[") and value.endswith("]") else value


def printed_value(value: str | None) -> str:
    """Return the value as Kafka prints it: "null" if it is unset or hidden."""
    return "null" if value is None else value

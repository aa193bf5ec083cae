"""How Kafka's config tool writes configs on a command line: "k1=v1,k2=[a,b],k3=". Pure text."""

import re

_SEPARATOR = re.compile(r",(?=[^\]]*(?:\[|$))")
"""A comma that is not inside brackets."""


def parse_additions(text: str) -> dict[str, str]:
    """ "k1=v1,k2=[a,b]" as a dict; brackets around a value are dropped. Raises ValueError."""
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
    """As Kafka prints it: an unset or hidden value is "null"."""
    return "null" if value is None else value

"""Types of configuration values: their numbers on the wire, parsing and rendering.

Follows Kafka's parsing of each type (``ConfigDef.parseType``). Knows no keys.
"""

import re
from collections.abc import Iterator
from enum import IntEnum

Value = bool | int | float | str | tuple[str, ...] | None
"""A parsed setting: LIST is a tuple, STRING, CLASS and PASSWORD are str, an unset key is None."""

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_COMMA = re.compile(r"\s*,\s*")


class ConfigType(IntEnum):
    """Types as DescribeConfigs numbers them (version 3 and later)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def parse_value(kind: ConfigType, text: str) -> Value:
    """Parse ``text`` as a value of ``kind``, without surrounding white space.

    Raise ValueError with the end of a sentence ("must be true or false"), which the caller completes with the key.
    """
    text = text.strip()
    match kind:
        case ConfigType.BOOLEAN:
            return _parse_boolean(text)
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            return _parse_whole_number(text, _BITS[kind])
        case ConfigType.DOUBLE:
            return _parse_decimal_number(text)
        case ConfigType.LIST:
            return tuple(_parse_items(text))
        case _:
            return text


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false")
    return lowered == "true"


def _parse_whole_number(text: str, bits: int) -> int:
    limit = 1 << (bits - 1)
    if _WHOLE_NUMBER.fullmatch(text) is None or len(text) > 20 or not -limit <= int(text) < limit:
        raise ValueError(f"must be a whole number from {-limit} to {limit - 1}")
    return int(text)


def _parse_decimal_number(text: str) -> float:
    if _DECIMAL_NUMBER.fullmatch(text) is None:
        raise ValueError("must be a number")
    return float(text)


def _parse_items(text: str) -> Iterator[str]:
    """Return the items in order, each once."""
    items = _COMMA.split(text) if text else []
    if "" in items:
        raise ValueError("must not have an empty item between its commas")
    return iter(dict.fromkeys(items))


def render_value(value: Value) -> str | None:
    """Return the text form in which Kafka shows a value; None for an unset one."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return _render_double(value)
        case _:
            return str(value)


def _render_double(value: float) -> str:
    """Render a double as Java prints it: an upper-case E before the exponent, without plus sign or leading zeros."""
    mantissa, e, exponent = repr(value).partition("e")
    return f"{mantissa}E{int(exponent)}" if e else mantissa

"""Types of configuration values: their numbers on the wire, and text to value and back.

Owns how Kafka reads a value of each type (``ConfigDef.parseType``). Knows no key.
"""

import re
from collections.abc import Iterator
from enum import IntEnum

Value = bool | int | float | str | tuple[str, ...] | None
"""What a parsed setting holds: LIST is a tuple, STRING, CLASS and PASSWORD are str, unset is None."""

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
    """Reads ``text`` as a value of ``kind``; surrounding white space does not count.

    Raises ValueError with the end of a sentence ("must be true or false") that the caller puts the key before.
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
    """Items in order, each once: a repeated one says nothing new."""
    items = _COMMA.split(text) if text else []
    if "" in items:
        raise ValueError("has an empty item between its commas")
    return iter(dict.fromkeys(items))


def render_value(value: Value) -> str | None:
    """The text form in which Kafka shows a value; None for an unset one."""
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
    """As Java prints doubles: an exponent is an upper-case E without plus sign or leading zeros."""
    mantissa, e, exponent = repr(value).partition("e")
    return f"{mantissa}E{int(exponent)}" if e else mantissa

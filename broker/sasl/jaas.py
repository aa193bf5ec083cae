"""JAAS entries as in `sasl.jaas.config`: `LoginModule controlFlag name="value" …;` (KIP-85)."""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from protocol.lazy_dataclass import lazy_dataclass

CONTROL_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})

_TOKEN: Final = re.compile(
    r"""
      \s+ | //[^\n]* | /\*.*?\*/
    | "(?P<double>(?:[^"\\\n]|\\.)*)"
    | '(?P<single>(?:[^'\\\n]|\\.)*)'
    | (?P<sign>[=;])
    | (?P<word>[^\s=;"'/]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


@lazy_dataclass(frozen=True, slots=True)
class LoginModule:
    """The class name of a login module, and its options, which hold secrets."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Parse one entry. Raise ValueError with a reason that shows nothing of the text."""
    tokens = _tokens(text)
    values = [value for value, is_sign in tokens if not is_sign]
    signs = "".join(value if is_sign else "w" for value, is_sign in tokens)
    if len(values) < 2 or not signs.startswith("ww"):
        raise ValueError("no login module with its control flag is named")
    if values[1].lower() not in CONTROL_FLAGS:
        raise ValueError("the control flag after the login module is missing; use required")
    if not signs.endswith(";") or signs.count(";") != 1:
        raise ValueError("one entry that ends with a semicolon is expected")
    if re.fullmatch("ww(w=w)*;", signs) is None:
        raise ValueError('options have the form name="value"')
    return LoginModule(values[0], dict(zip(values[2::2], values[3::2], strict=True)))


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return the tokens, each with whether it is a sign."""
    tokens: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"character {position + 1} is unexpected or begins a quotation without end")
        position = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            tokens.append((_ESCAPE.sub(_unescape, quoted), False))
        elif found := match["sign"] or match["word"]:
            tokens.append((found, match["sign"] is not None))
    return tokens


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)

"""Standard input as lines, and lines as records in the format of Kafka's LineMessageReader. Bytes throughout."""

import os
import select
from collections.abc import Iterator
from typing import NamedTuple

from broker.cli.console.properties import is_true, separator
from broker.cli.shared.failure import CommandFailed
from protocol.lazy_dataclass import lazy_dataclass

READ_BYTES = 1 << 18
MAX_LINE_BYTES = 64 << 20
"""Limit of a line: longer input is not text, and no broker accepts such a record."""

Header = tuple[str, bytes | None]


class ParsedLine(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[Header]


@lazy_dataclass(frozen=True, slots=True)
class LineFormat:
    """Format "headers<delimiter>key<separator>value"; headers and key are optional."""

    parse_key: bool = False
    parse_headers: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    ignore_error: bool = False

    @classmethod
    def from_properties(cls, properties: dict[str, str]) -> "LineFormat":
        """Build the format. Raises CommandFailed for an unknown or invalid property."""
        unknown = properties.keys() - _KEYS
        if unknown:
            raise CommandFailed(f"property {min(unknown)} is unknown; use {', '.join(sorted(_KEYS))}.")
        marker = properties.get("null.marker")
        return cls(
            parse_key=is_true(properties, "parse.key"),
            parse_headers=is_true(properties, "parse.headers"),
            key_separator=separator(properties, "key.separator", "\t"),
            headers_delimiter=separator(properties, "headers.delimiter", "\t"),
            headers_separator=separator(properties, "headers.separator", ","),
            headers_key_separator=separator(properties, "headers.key.separator", ":"),
            null_marker=None if not marker else marker.encode(),
            ignore_error=is_true(properties, "ignore.error"),
        )

    def parse(self, line: bytes, number: int) -> ParsedLine:
        """Parse line `number` to a record. Raises CommandFailed if a part is missing, unless errors are ignored."""
        headers: list[Header] = []
        key: bytes | None = None
        rest = line
        if self.parse_headers:
            text, found, rest = self._split(rest, self.headers_delimiter, "headers delimiter", number)
            if found and text != self.null_marker:
                headers = self._headers(text, number)
        if self.parse_key:
            text, found, rest = self._split(rest, self.key_separator, "key separator", number)
            key = self._or_null(text) if found else None
        return ParsedLine(key, self._or_null(rest), headers)

    def _split(self, text: bytes, delimiter: bytes, name: str, number: int) -> tuple[bytes, bool, bytes]:
        """Return (before, found, after) the delimiter; without the delimiter, all text is "after"."""
        before, found, after = text.partition(delimiter)
        if found:
            return before, True, after
        if not self.ignore_error:
            raise CommandFailed(f"No {name} found on line number {number}: '{text.decode('utf-8', 'replace')}'")
        return b"", False, text

    def _headers(self, text: bytes, number: int) -> list[Header]:
        headers: list[Header] = []
        for part in text.split(self.headers_separator):
            name, found, value = part.partition(self.headers_key_separator)
            if not found and not self.ignore_error:
                raise CommandFailed(
                    f"No header key separator found in pair '{part.decode('utf-8', 'replace')}' on line number {number}"
                )
            if name == self.null_marker:
                raise CommandFailed(f"Header keys should not be equal to the null marker, on line number {number}")
            headers.append((name.decode("utf-8", "replace"), self._or_null(value) if found else None))
        return headers

    def _or_null(self, text: bytes) -> bytes | None:
        return None if text == self.null_marker else text


_KEYS = frozenset(
    {
        "parse.key",
        "parse.headers",
        "key.separator",
        "headers.delimiter",
        "headers.separator",
        "headers.key.separator",
        "null.marker",
        "ignore.error",
    }
)


def read_lines(descriptor: int, idle_seconds: float) -> Iterator[list[bytes]]:
    """Yield lines of a file descriptor without their ends (LF or CRLF), and an empty list after each idle time.

    Raises CommandFailed for a line of more than MAX_LINE_BYTES.
    """
    pending = b""
    while True:
        if not select.select([descriptor], [], [], idle_seconds)[0]:
            yield []
            continue
        chunk = os.read(descriptor, READ_BYTES)
        if not chunk:
            break
        *lines, pending = (pending + chunk).split(b"\n")
        if len(pending) > MAX_LINE_BYTES:
            raise CommandFailed(f"a line of the input is longer than {MAX_LINE_BYTES} bytes.")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if pending:
        yield [pending.removesuffix(b"\r")]

"""The output of several nodes on the supervisor's own standard output, in whole lines."""

import sys
from typing import BinaryIO

MAX_LINE_BYTES = 1024 * 1024
"""Longest line that is held back for its end; a longer one is passed on in parts."""


class StandardOutput:
    """The output of one node. Lines of different nodes never mix."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = sys.stdout.buffer if stream is None else stream
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Pass on the lines that are complete."""
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            whole, newline, rest = whole + newline + rest, b"\n", b""
        self._rest = rest
        self._pass_on(whole + newline)

    def close(self) -> None:
        """Pass on a last line without an end."""
        if self._rest:
            self._pass_on(self._rest + b"\n")
            self._rest = b""

    def _pass_on(self, data: bytes) -> None:
        if data:
            self._stream.write(data)
            self._stream.flush()

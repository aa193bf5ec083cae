"""The output of a node: copied to its log, and parsed for its HTTP address, readiness and last message."""

import re
from typing import Protocol

MAX_LINE_BYTES = 64 * 1024
"""Longest part of a line that is kept; the last bytes of a longer line count."""

_LEADS = b"This node is the active controller"
_LEADS_NO_LONGER = b"This node is not the active controller any more"
_HTTP = re.compile(rb"HTTP is served url=(\S+)")
_FAILURE_PREFIX = "Error: "
"""Prefix of a command's error message."""


class NodeLog(Protocol):
    """Destination of a node's output, over all of its processes."""

    def write(self, data: bytes) -> None:
        """Take a piece of output, which may end anywhere."""
        ...

    def close(self) -> None:
        """End the log. A later write continues it."""
        ...


class NodeOutput:
    """The output of one process of a node."""

    def __init__(self, node_id: int, log: NodeLog) -> None:
        self._marker = b"[KafkaServer id=%d] started" % node_id
        self._log = log
        self._line = b""
        self._last_line = b""
        self.http_url: str | None = None
        """The HTTP address that the node has logged."""
        self.is_serving = False
        """Whether the node has logged that it serves clients."""
        self.is_active_controller = False
        """Whether the node is the active controller by its latest log line about it."""

    def feed(self, data: bytes) -> None:
        """Process a piece of output, which may end anywhere."""
        self._log.write(data)
        *lines, rest = (self._line + data).split(b"\n")
        for line in lines:
            self._on_line(line)
        self._line = rest[-MAX_LINE_BYTES:]

    @property
    def last_message(self) -> str:
        """The last line with text."""
        words = self._line if self._line.strip() else self._last_line
        return words.decode("utf-8", "replace").strip().removeprefix(_FAILURE_PREFIX) or "no output."

    def _on_line(self, line: bytes) -> None:
        if line.strip():
            self._last_line = line[-MAX_LINE_BYTES:]
        self.is_serving = self.is_serving or self._marker in line
        if (found := _HTTP.search(line)) is not None:
            self.http_url = found[1].decode()
        if _LEADS in line:
            self.is_active_controller = True
        elif _LEADS_NO_LONGER in line:
            self.is_active_controller = False

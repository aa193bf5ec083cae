"""What a node prints, read as it comes: it goes to its log, and says where it is, whether it serves, why it ended."""

import re

from broker.supervisor.bounded_log import BoundedLog

MAX_LINE_BYTES = 64 * 1024
"""A longer line is looked at in pieces; only its last bytes can be the last words."""

_LEADS = b"This node is the active controller"
_LEADS_NO_LONGER = b"This node is not the active controller any more"
_HTTP = re.compile(rb"HTTP is served url=(\S+)")
_FAILURE_PREFIX = "Error: "
"""What a command puts before the sentence it fails with."""


class NodeOutput:
    """One life of a node, as far as it can be heard."""

    def __init__(self, node_id: int, log: BoundedLog) -> None:
        self._marker = b"[KafkaServer id=%d] started" % node_id
        self._log = log
        self._line = b""
        self._last_words = b""
        self.http_url: str | None = None
        """Where the node has said that its HTTP is."""
        self.is_serving = False
        """Whether the node has said that clients are served."""
        self.is_active_controller = False
        """Whether the node said last that it is the active controller."""

    def feed(self, data: bytes) -> None:
        """The next piece of output, cut anywhere."""
        self._log.write(data)
        *lines, rest = (self._line + data).split(b"\n")
        for line in lines:
            self._on_line(line)
        self._line = rest[-MAX_LINE_BYTES:]

    @property
    def last_words(self) -> str:
        """The last line that says something."""
        words = self._line if self._line.strip() else self._last_words
        return words.decode("utf-8", "replace").strip().removeprefix(_FAILURE_PREFIX) or "it said nothing."

    def _on_line(self, line: bytes) -> None:
        if line.strip():
            self._last_words = line[-MAX_LINE_BYTES:]
        self.is_serving = self.is_serving or self._marker in line
        if (found := _HTTP.search(line)) is not None:
            self.http_url = found[1].decode()
        if _LEADS in line:
            self.is_active_controller = True
        elif _LEADS_NO_LONGER in line:
            self.is_active_controller = False

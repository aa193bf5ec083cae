"""The file of the audit log, written by a thread of its own from a bounded queue.

The event loop never waits for the disk. A full queue drops lines; the file and a metric say how many.
"""

import json
import queue
import threading
from collections.abc import Callable
from typing import Final, Protocol

from broker.audit.trail import time_text
from broker.metrics.family import Family, counter

BATCH_LINES: Final = 512
"""Lines that are written at once."""


class AuditFile(Protocol):
    """A file that takes whole lines; see `broker.bounded_log.BoundedLog`."""

    def write(self, data: bytes) -> None:
        """Append complete lines. Blocks."""
        ...

    def close(self) -> None: ...


class AuditWriter:
    """Writes lines in the background. `start`, `put` from the event loop, `stop`."""

    def __init__(self, file: AuditFile, queued_max: int, now_ms: Callable[[], int]) -> None:
        self._file = file
        self._now_ms = now_ms
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._queued_max = queued_max
        self._dropped = 0
        self._reported = 0
        self._thread = threading.Thread(target=self._run, name="ottla-audit", daemon=True)

    @property
    def dropped(self) -> int:
        """The lines that found the queue full."""
        return self._dropped

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Queue a line, or drop it."""
        if self._lines.qsize() >= self._queued_max:
            self._dropped += 1
        else:
            self._lines.put(line)

    def stop(self) -> None:
        """Write what is queued and close the file. Blocks."""
        self._lines.put(None)
        self._thread.join()

    def families(self) -> list[Family]:
        """Return the metric of dropped lines."""
        return [
            counter(
                "ottla_audit_dropped_total",
                "Lines of the audit log that were dropped because its queue was full",
                lambda: self._dropped,
            )
        ]

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._lines.get()]
            while len(batch) < BATCH_LINES and not self._lines.empty():
                batch.append(self._lines.get())
            is_open = None not in batch
            data = b"".join(line for line in batch if line is not None) + self._report()
            if data:
                self._file.write(data)
        self._file.close()

    def _report(self) -> bytes:
        """Return a line about lines that were dropped since the last report."""
        dropped = self._dropped
        if dropped == self._reported:
            return b""
        entry = {"time": time_text(self._now_ms()), "dropped": dropped - self._reported}
        self._reported = dropped
        return json.dumps(entry).encode() + b"\n"

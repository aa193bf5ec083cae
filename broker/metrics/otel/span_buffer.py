"""Spans of requests, and the bounded buffer in which they wait for their export. Knows no OpenTelemetry."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class RequestSpan(NamedTuple):
    """The span of one request. Times in nanoseconds since the epoch."""

    trace_id: int
    span_id: int
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int | float]


class SpanBuffer:
    """Keeps the newest `max_spans` spans, oldest first; `dropped` counts spans that were displaced.

    The oldest spans go first. A receiver that returns then gets the present trouble, and a batch that the receiver
    always refuses leaves in the end.
    """

    def __init__(self, max_spans: int) -> None:
        self._max_spans = max_spans
        self._spans: deque[RequestSpan] = deque()
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, span: RequestSpan) -> None:
        """Add a span, in place of the oldest one if the buffer is full."""
        if len(self._spans) == self._max_spans:
            self._spans.popleft()
            self.dropped += 1
        self._spans.append(span)

    def take(self, most: int) -> list[RequestSpan]:
        """Remove and return the oldest spans, `most` at most. They no longer count for the limit."""
        return [self._spans.popleft() for _ in range(min(most, len(self._spans)))]

    def put_back(self, batch: Sequence[RequestSpan]) -> None:
        """Put spans back that `take` returned. The oldest are dropped if newer ones have taken their room."""
        room = self._max_spans - len(self._spans)
        kept = batch[max(0, len(batch) - room) :]
        self._spans.extendleft(reversed(kept))
        self.dropped += len(batch) - len(kept)

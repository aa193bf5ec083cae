"""Fetches that wait at the leader for records, for a newer high watermark, or for their timeout."""

from collections.abc import Callable
from typing import NamedTuple

from broker.quorum.messages import FetchRequest
from protocol.ids import Offset


class DelayedFetch(NamedTuple):
    """A valid fetch at the log end offset; `deadline` is a monotonic time in ms."""

    token: int
    request: FetchRequest
    deadline: float


class FetchPurgatory:
    """The delayed fetches of a leader, in the order of arrival."""

    def __init__(self) -> None:
        self._delayed: list[DelayedFetch] = []

    def __len__(self) -> int:
        return len(self._delayed)

    def add(self, token: int, request: FetchRequest, deadline: float) -> None:
        self._delayed.append(DelayedFetch(token, request, deadline))

    def take_satisfied(self, log_end: Offset, high_watermark: Offset) -> list[DelayedFetch]:
        """Remove and return the fetches for which there are records or a newer high watermark (KIP-1166)."""
        return self._take(
            lambda each: each.request.fetch_offset < log_end or each.request.high_watermark < high_watermark
        )

    def take_expired(self, now_ms: float) -> list[DelayedFetch]:
        """Remove and return the fetches whose deadline has passed."""
        return self._take(lambda each: each.deadline <= now_ms)

    def take_all(self) -> list[DelayedFetch]:
        """Remove and return all fetches."""
        return self._take(lambda _: True)

    @property
    def deadline(self) -> float | None:
        """The earliest deadline; None if no fetch is delayed."""
        return min((each.deadline for each in self._delayed), default=None)

    def _take(self, is_due: Callable[[DelayedFetch], bool]) -> list[DelayedFetch]:
        due = [each for each in self._delayed if is_due(each)]
        if due:
            self._delayed = [each for each in self._delayed if not is_due(each)]
        return due

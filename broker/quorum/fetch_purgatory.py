"""Fetches that wait at the leader: for records, for news of the high watermark, or until their time is over."""

from collections.abc import Callable
from typing import NamedTuple

from broker.quorum.messages import FetchRequest


class DelayedFetch(NamedTuple):
    """A valid fetch from the log's end; `deadline` is a monotonic time in ms."""

    token: int
    request: FetchRequest
    deadline: float


class FetchPurgatory:
    def __init__(self) -> None:
        self._waiting: list[DelayedFetch] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, token: int, request: FetchRequest, deadline: float) -> None:
        self._waiting.append(DelayedFetch(token, request, deadline))

    def woken(self, log_end: int, high_watermark: int) -> list[DelayedFetch]:
        """Takes those for whom there are records or a newer high watermark (KIP-1166)."""
        return self._take(
            lambda each: each.request.fetch_offset < log_end or each.request.high_watermark < high_watermark
        )

    def expired(self, now_ms: float) -> list[DelayedFetch]:
        """Takes those whose time is over."""
        return self._take(lambda each: each.deadline <= now_ms)

    def all(self) -> list[DelayedFetch]:
        """Takes them all."""
        return self._take(lambda _: True)

    @property
    def deadline(self) -> float | None:
        return min((each.deadline for each in self._waiting), default=None)

    def _take(self, is_due: Callable[[DelayedFetch], bool]) -> list[DelayedFetch]:
        due = [each for each in self._waiting if is_due(each)]
        if due:
            self._waiting = [each for each in self._waiting if not is_due(each)]
        return due

"""The order of answers on one connection, for the time that some of them are not there yet. Pure bookkeeping."""

import asyncio
from collections import deque

from broker.net.request import EncodedResponse, Request
from protocol.primitives import Buffer


class Slot:
    """The place of one request in the order of answers. It keeps the request alive until it is answered."""

    __slots__ = ("answer", "future", "is_cut", "is_done", "request")

    def __init__(
        self, request: Request, future: "asyncio.Future[EncodedResponse] | None" = None, answer: EncodedResponse = None
    ) -> None:
        self.request = request
        self.future = future
        self.answer = answer
        self.is_done = future is None
        self.is_cut = False  # the connection ended first


class ResponseOrder:
    """Slots in the order of requests: `append` a place, `fill` it in any order, `take_ready` in that order.

    `open_bytes` is the size of the requests that are not answered yet, `withheld_bytes` that of the answers that wait
    for an earlier one.
    """

    __slots__ = ("_slots", "open_bytes", "withheld_bytes")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        self.open_bytes = 0
        self.withheld_bytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    def append(self, slot: Slot) -> None:
        """Add the next place, filled or not."""
        self._slots.append(slot)
        if slot.is_done:
            self.withheld_bytes += _size(slot.answer)
        else:
            self.open_bytes += slot.request.size

    def fill(self, slot: Slot, answer: EncodedResponse) -> None:
        """Put an answer into its place."""
        slot.is_done = True
        slot.answer = answer
        self.open_bytes -= slot.request.size
        self.withheld_bytes += _size(answer)

    def take_ready(self) -> list[list[Buffer]]:
        """Remove and return the answers that no open place precedes."""
        ready: list[list[Buffer]] = []
        while self._slots and self._slots[0].is_done:
            answer = self._slots.popleft().answer
            self.withheld_bytes -= _size(answer)
            if answer is not None:
                ready.append(answer)
        return ready

    def cut(self, slot: Slot | None = None) -> None:
        """Remove `slot` and all places after it (all without one), cancelling what is still under way in them."""
        while self._slots:
            last = self._slots.pop()
            last.is_cut = True
            if last.is_done:
                self.withheld_bytes -= _size(last.answer)
            else:
                self.open_bytes -= last.request.size
            if last.future is not None:
                last.future.cancel()
            if last is slot:
                break


def _size(answer: EncodedResponse) -> int:
    return 0 if answer is None else sum(map(len, answer))

"""The order of responses on one connection while some are not ready. Pure bookkeeping."""

import asyncio
from collections import deque

from broker.net.request import EncodedResponse, Request


class ResponseSlot:
    """The place of one request in the order of responses. Keeps the request alive until its response is there."""

    __slots__ = ("future", "is_done", "is_dropped", "request", "response")

    def __init__(
        self,
        request: Request,
        future: "asyncio.Future[EncodedResponse] | None" = None,
        response: EncodedResponse = None,
    ) -> None:
        self.request = request
        self.future = future
        self.response = response
        self.is_done = future is None
        self.is_dropped = False  # the connection ended before the response


class ResponseOrder:
    """Slots in the order of requests: `append` a slot, `fill` slots in any order, `take_ready` in request order.

    `open_bytes` is the size of the requests without response, `withheld_bytes` that of the responses that wait for an
    earlier one.
    """

    __slots__ = ("_slots", "open_bytes", "withheld_bytes")

    def __init__(self) -> None:
        self._slots: deque[ResponseSlot] = deque()
        self.open_bytes = 0
        self.withheld_bytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    def append(self, slot: ResponseSlot) -> None:
        """Add the next slot, filled or not."""
        self._slots.append(slot)
        if slot.is_done:
            self.withheld_bytes += _size(slot.response)
        else:
            self.open_bytes += slot.request.size

    def fill(self, slot: ResponseSlot, response: EncodedResponse) -> None:
        """Put a response into its slot."""
        slot.is_done = True
        slot.response = response
        self.open_bytes -= slot.request.size
        self.withheld_bytes += _size(response)

    def take_ready(self) -> list[ResponseSlot]:
        """Remove and return the slots that no open slot precedes."""
        ready: list[ResponseSlot] = []
        while self._slots and self._slots[0].is_done:
            slot = self._slots.popleft()
            self.withheld_bytes -= _size(slot.response)
            ready.append(slot)
        return ready

    def drop_from(self, slot: ResponseSlot | None = None) -> None:
        """Remove `slot` and all slots after it (all slots without one), and cancel their handlers."""
        while self._slots:
            last = self._slots.pop()
            last.is_dropped = True
            if last.is_done:
                self.withheld_bytes -= _size(last.response)
            else:
                self.open_bytes -= last.request.size
            if last.future is not None:
                last.future.cancel()
            if last is slot:
                break


def _size(response: EncodedResponse) -> int:
    return 0 if response is None else sum(map(len, response))

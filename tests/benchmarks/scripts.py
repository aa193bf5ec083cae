"""Many clients in one thread: each is a generator that yields requests, or seconds to wait, and receives responses."""

import heapq
import itertools
import selectors
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass

from protocol.headers import decode_response, encode_request
from protocol.messages import Message
from tests.benchmarks.wire import Wire

LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Call:
    """A request and the class of its response."""

    request: Message
    version: int
    response: type[Message]


Script = Generator[Call | float, Message | None, None]


@dataclass(slots=True)
class _Client:
    script: Script
    wire: Wire
    call: Call | None = None


class ScriptRunner:
    """Runs scripts to their ends, each with a connection of its own, which is open before the first request."""

    def __init__(self, bootstrap: str, scripts: Iterable[Script]) -> None:
        self._selector = selectors.DefaultSelector()
        self._waiting: list[tuple[float, int, _Client]] = []
        self._numbers = itertools.count()
        self._clients = [_Client(script, Wire(bootstrap)) for script in scripts]
        self._running = len(self._clients)

    def run(self) -> float:
        """Run all scripts; return the time of the first request. Raises AssertionError after LIMIT_S."""
        begun = time.monotonic()
        try:
            for client in self._clients:
                self._selector.register(client.wire.socket, selectors.EVENT_READ, client)
            for client in self._clients:
                self._resume(client, None)
            while self._running:
                assert time.monotonic() < begun + LIMIT_S, f"{self._running} clients have not finished"
                self._round()
        finally:
            self._selector.close()
            for client in self._clients:
                client.wire.socket.close()
        return begun

    def _round(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            self._resume(heapq.heappop(self._waiting)[2], None)
        timeout = max(0.0, self._waiting[0][0] - now) if self._waiting else 1.0
        for key, _ in self._selector.select(timeout):
            client: _Client = key.data
            for frame in client.wire.answers():
                assert client.call is not None
                self._resume(client, decode_response(client.call.response, client.call.version, frame)[1])

    def _resume(self, client: _Client, answer: Message | None) -> None:
        try:
            step = client.script.send(answer)
        except StopIteration:
            self._running -= 1
            return
        if isinstance(step, Call):
            client.call = step
            client.wire.send(b"".join(encode_request(step.request, step.version, 1, "bench")))
        else:
            heapq.heappush(self._waiting, (time.monotonic() + step, next(self._numbers), client))

"""A network that delays, loses and reorders messages, and requests with timeouts on it."""

from collections.abc import Callable
from random import Random
from typing import Final, Generic, TypeAlias, TypeVar

from protocol.errors import ErrorCode
from tests.simulation.world import World

R = TypeVar("R")

Answer: TypeAlias = R | ErrorCode
"""A response, or the error of the request; REQUEST_TIMED_OUT without a response in time."""
Serve: TypeAlias = Callable[[Callable[[Answer[R]], None]], None]
"""Handles a request at its destination, and calls the function that it gets with the response, once or never."""

REQUEST_TIMEOUT_MS: Final = 2_000.0
_USUAL_MS: Final = 12.0
_LATE_MS: Final = 6_000.0


class Request(Generic[R]):
    """A request under way. `abandon` drops it if it was not delivered yet, as the end of a connection does."""

    def __init__(self, on_answer: Callable[[Answer[R]], None]) -> None:
        self._on_answer: Callable[[Answer[R]], None] | None = on_answer
        self.is_abandoned = False

    def answer(self, answer: Answer[R]) -> None:
        """Complete the request; later responses have no effect."""
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(answer)

    def abandon(self) -> None:
        """Stop waiting for the response, and drop the request if it was not delivered yet."""
        self.is_abandoned = True
        self._on_answer = None


class Network:
    """Carries requests and responses. Each is late with probability `late`, and lost with probability `lost`."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self.late = 0.0
        self.lost = 0.0
        self.lost_messages = 0
        self.late_messages = 0

    def send(
        self,
        serve: Serve[R],
        on_answer: Callable[[Answer[R]], None],
        *,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
        may_be_late: bool = True,
    ) -> Request[R]:
        """Send a request; `on_answer` is called once, with REQUEST_TIMED_OUT after the timeout.

        Without `may_be_late`, a request that has timed out is not delivered any more.
        """
        request: Request[R] = Request(on_answer)
        self._world.schedule(timeout_ms, self._time_out, request, may_be_late)

        def deliver() -> None:
            if not request.is_abandoned:
                serve(lambda answer: self._carry(request.answer, answer))

        self._carry(deliver)
        return request

    def _time_out(self, request: Request[R], may_be_late: bool) -> None:
        if not may_be_late:
            request.is_abandoned = True
        request.answer(ErrorCode.REQUEST_TIMED_OUT)

    def _carry(self, deliver: Callable[..., None], *args: object) -> None:
        if self._rng.random() < self.lost:
            self.lost_messages += 1
            return
        delay_ms = 1.0 + self._rng.random() * _USUAL_MS
        if self._rng.random() < self.late:
            self.late_messages += 1
            delay_ms += self._rng.random() * _LATE_MS
        self._world.schedule(delay_ms, deliver, *args)

"""Coroutines of requests whose time on the event loop is measured, for request quotas (KIP-124).

The module stays out of `[tool.ottla.compile]`: `types.coroutine` makes no awaitable of a function that mypyc compiled.
"""

import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

from broker.clock import Clock
from broker.net.request import Request

T = TypeVar("T")


@types.coroutine
def measured(steps: Coroutine[Any, Any, T], request: Request, clock: Clock) -> Generator[Any, Any, T]:
    """Run a coroutine, and add the time of each step on the event loop to the request."""
    step = partial(steps.send, None)
    while True:
        request.begin_step(clock.monotonic_ms())
        try:
            awaited = step()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            request.end_step(clock.monotonic_ms())
        try:
            value = yield awaited
        except BaseException as error:  # noqa: BLE001  cancellation too belongs to the coroutine
            step = partial(steps.throw, error)
        else:
            step = partial(steps.send, value)

"""The load of all nodes, asked for while somebody looks, and rates between two samples."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.clock import Clock
from broker.console.request import Json
from broker.logs import EventLog
from protocol.messages.describe_node import DescribeNodeResponse

PERIOD_S: Final = 2.0
LINGER_MS: Final = 30_000
"""Sampling continues for this time after the last look."""
HISTORY_MS: Final = 600_000
HISTORY_STEP_MS: Final = 5_000

_log: Final = EventLog("broker.console")


class ClusterSample(NamedTuple):
    """The answers of all nodes at one time; `rates` are per second by node and counter."""

    time_ms: int
    nodes: Mapping[int, DescribeNodeResponse]
    rates: Mapping[int, Mapping[str, float]]
    missing: Sequence[Json]
    quorum: Json

    def total(self, counter: str) -> float:
        """Return the sum of a rate over all nodes."""
        return sum(rates.get(counter, 0.0) for rates in self.rates.values())


COUNTERS: Final = (
    "bytes_in",
    "bytes_out",
    "messages_in",
    "requests",
    "cpu_ms",
    "remote_copy_bytes",
    "remote_copy_errors",
    "remote_fetch_bytes",
    "remote_fetch_errors",
)

Observe = Callable[[ClusterSample], object]
Ask = Callable[[], Awaitable[tuple[Mapping[int, DescribeNodeResponse], Sequence[Json], Json]]]


class ClusterSampler:
    """Asks all nodes every two seconds while it is used, and keeps ten minutes of history."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._latest: ClusterSample | None = None
        self._first: asyncio.Future[ClusterSample] | None = None
        self._task: asyncio.Task[None] | None = None
        self._used_at_ms = 0.0
        self._observers: set[Observe] = set()
        self.history: deque[Json] = deque(maxlen=HISTORY_MS // HISTORY_STEP_MS)

    async def sample(self) -> ClusterSample:
        """Return the latest sample, at most a period old."""
        self._use()
        if self._latest is not None:
            return self._latest
        if self._first is None:
            self._first = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._first)

    def observe(self, observer: Observe) -> None:
        """Call `observer` with every sample until `forget`."""
        self._observers.add(observer)
        self._use()

    def forget(self, observer: Observe) -> None:
        """End the calls of an observer."""
        self._observers.discard(observer)

    def close(self) -> None:
        """Stop for good."""
        if self._first is not None:
            self._first.cancel()
        if self._task is not None:
            self._task.cancel()

    def _use(self) -> None:
        self._used_at_ms = self._clock.monotonic_ms()
        if self._task is None or self._task.done():
            self._latest = None
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            await self._sample_while_used()
        except Exception as error:  # noqa: BLE001  the next request begins anew
            _log.error("Sampling of the cluster's nodes failed", error)
            if self._first is not None and not self._first.done():
                self._first.set_exception(error)
                self._first.exception()  # read here: its waiters may have gone
        finally:
            self._latest, self._first = None, None

    async def _sample_while_used(self) -> None:
        loop = asyncio.get_running_loop()
        while self._observers or self._clock.monotonic_ms() - self._used_at_ms < LINGER_MS:
            due = loop.time() + PERIOD_S
            self._take(await self._ask())
            await asyncio.sleep(max(0.0, due - loop.time()))

    def _take(self, answers: tuple[Mapping[int, DescribeNodeResponse], Sequence[Json], Json]) -> None:
        nodes, missing, quorum = answers
        before = {} if self._latest is None else self._latest.nodes
        rates = {id: _rates(before[id], now) for id, now in nodes.items() if id in before}
        sample = ClusterSample(self._clock.now_ms(), nodes, rates, missing, quorum)
        self._latest = sample
        if self._first is not None:
            if not self._first.done():
                self._first.set_result(sample)
            self._first = None
        if rates and (not self.history or sample.time_ms - self.history[-1]["time_ms"] >= HISTORY_STEP_MS - 500):
            self.history.append(
                {
                    "time_ms": sample.time_ms,
                    "bytes_in_per_s": sample.total("bytes_in"),
                    "bytes_out_per_s": sample.total("bytes_out"),
                    "messages_in_per_s": sample.total("messages_in"),
                }
            )
        for observer in list(self._observers):
            observer(sample)


def _rates(before: DescribeNodeResponse, now: DescribeNodeResponse) -> Mapping[str, float]:
    """Return rates per second; none after a restart of the node."""
    elapsed_s = (now.uptime_ms - before.uptime_ms) / 1000
    if elapsed_s <= 0:
        return {}
    return {name: max(0.0, _value(now, name) - _value(before, name)) / elapsed_s for name in COUNTERS}


def _value(node: Any, name: str) -> float:
    return float(getattr(node, name))

"""Faults of the object store during node faults, on a schedule of their own, so that both coincide in every way.

Each store fault is undone before the next one.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.chaos.network import RUN, Link, Network
from tests.chaos.topic import now_ms
from tests.support.processes.s3_proxy import S3Proxy
from tests.support.processes.s3_server import S3Server

REST_S = (2.0, 8.0)
FAILING_SHARE = 0.1
GONE_MAX_S = 60.0


class StoreFault(NamedTuple):
    """A fault of the store. Times are as in events.py."""

    kind: str
    begun_ms: int
    ended_ms: int


class Kind(NamedTuple):
    """A kind of fault: functions that begin and end it, and its range of durations in seconds."""

    name: str
    do: Callable[[], object]
    undo: Callable[[], object]
    lasts_s: tuple[float, float]


class StoreFaults:
    """A thread that injects `kinds` in random order with equal counts. After `stop` the store is healthy.

    `error` is set if the thread ended by an exception.
    """

    def __init__(
        self, kinds: Callable[[], Sequence[Kind]], chance: random.Random, rest_s: tuple[float, float] = REST_S
    ) -> None:
        self.done: list[StoreFault] = []
        self.error: str | None = None
        self._kinds = kinds
        self._random = chance
        self._rest_s = rest_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def join(self) -> None:
        """Wait until the thread ends, by an error or `stop`."""
        self._thread.join()

    def _run(self) -> None:
        try:
            for kind in self._endless_kinds():
                if self._over.wait(self._random.uniform(*self._rest_s)):
                    return
                self._carry_out(kind)
        except (OSError, AssertionError, ValueError) as error:
            self.error = f"store faults were aborted: {error}"

    def _carry_out(self, kind: Kind) -> None:
        begun_ms = now_ms()
        kind.do()
        try:
            self._over.wait(self._random.uniform(*kind.lasts_s))
        finally:
            kind.undo()
        fault = StoreFault(kind.name, begun_ms, now_ms())
        self.done.append(fault)
        print(f"     store {kind.name}, {(fault.ended_ms - begun_ms) / 1000:.1f} s", flush=True)

    def _endless_kinds(self) -> Iterator[Kind]:
        while True:
            kinds = self._kinds()
            yield from self._random.sample(kinds, len(kinds))


def kinds_of(
    proxy: S3Proxy, server: S3Server, network: Network, nodes: Sequence[int], chance: random.Random
) -> Sequence[Kind]:
    """Return the kinds of fault that this machine supports; the partitioned node changes every time."""
    kinds = [
        Kind("failing", lambda: proxy.set_share(FAILING_SHARE), lambda: proxy.set_share(0), (10, 30)),
        Kind("gone", proxy.vanish, proxy.come_back, (5, GONE_MAX_S)),
        Kind("silent", server.pause, server.resume, (1, 15)),
    ]
    if network.refusal is None:
        node = chance.choice(nodes)
        links = [Link(RUN, node)]
        far = f"out of reach of node {node}"
        kinds.append(Kind(far, lambda: network.cut(links), lambda: network.heal(links), (5, 30)))
    return kinds

"""Produce requests at fixed times, regardless of earlier ones; the latency counts from the due time of each.

A client that waits for responses would send less while the broker is slow, and miss the delays.
"""

import contextlib
import select
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.benchmarks.wire import Wire, check_produced, produce_frame

ACKS_ALL = -1
DRAIN_S = 30.0


@dataclass(frozen=True)
class Rate:
    """`records` of `size` bytes in each of `requests` per second, over all partitions."""

    requests: int
    records: int
    size: int = 1000


@dataclass
class Latencies:
    """Latencies in milliseconds, in the order of acknowledgement."""

    milliseconds: list[float] = field(default_factory=list)

    def percentiles(self) -> tuple[float, float]:
        """Return the median and the 99th percentile."""
        hundredths = statistics.quantiles(self.milliseconds, n=100)
        return hundredths[49], hundredths[98]


def produce(
    addresses: Sequence[str], topic: str, rate: Rate, over: threading.Event, *, warm_up_s: float = 0.0
) -> Latencies:
    """Produce to partitions led in turn by `addresses`. End when `over` is set and all is acknowledged.

    The first `warm_up_s` do not count. Raises AssertionError if a record is refused.
    """
    frames = [
        produce_frame(topic, records=rate.records, size=rate.size, acks=ACKS_ALL, partition=number)
        for number in range(len(addresses))
    ]
    found, begin = Latencies(), time.perf_counter()
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(address)) for address in addresses]
        waiting: dict[Wire, deque[float]] = {wire: deque() for wire in wires}
        sent = 0
        while not over.is_set() or any(waiting.values()):
            now, due = time.perf_counter(), begin + sent / rate.requests
            if now >= due and not over.is_set():
                waiting[wires[sent % len(wires)]].append(due)
                wires[sent % len(wires)].send(frames[sent % len(frames)])
                sent += 1
                continue
            pause_s = DRAIN_S if over.is_set() else due - now
            _take_answers(waiting, pause_s, found, begin + warm_up_s)
    return found


def _take_answers(waiting: dict[Wire, deque[float]], pause_s: float, found: Latencies, from_s: float) -> None:
    """Wait for responses, or until the next record is due."""
    by_socket = {wire.socket: wire for wire in waiting}
    for readable in select.select(list(by_socket), (), (), pause_s)[0]:
        wire = by_socket[readable]
        answers, now = wire.answers(), time.perf_counter()
        for answer in answers:
            due = waiting[wire].popleft()
            if due >= from_s:
                found.milliseconds.append((now - due) * 1000)
            check_produced(answer)


@contextlib.contextmanager
def producing(addresses: Sequence[str], topic: str, rate: Rate, *, warm_up_s: float = 0.0) -> Iterator[Latencies]:
    """Produce within the context; the latencies are available afterwards."""
    over, found = threading.Event(), Latencies()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(produce, addresses, topic, rate, over, warm_up_s=warm_up_s)
        try:
            yield found
        finally:
            over.set()
        found.milliseconds += done.result().milliseconds

"""Produce requests at fixed times, whatever becomes of those before; how late each was acknowledged after it was due.

A client that waits for an answer before it sends again would hold back just when the broker is slow, and not count what
it held back.
"""

import contextlib
import select
import statistics
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.benchmarks.wire import Wire, check_produced, produce_frame

ACKS_ALL = -1
DRAIN_S = 30.0


@dataclass(frozen=True)
class Rate:
    """`records` of `size` bytes in each of `requests` a second, over all partitions together."""

    requests: int
    records: int
    size: int = 1000


@dataclass
class Latencies:
    """In milliseconds, in the order of acknowledgement."""

    milliseconds: list[float] = field(default_factory=list)

    def percentiles(self) -> tuple[float, float]:
        """The median and the 99th of a hundred."""
        hundredths = statistics.quantiles(self.milliseconds, n=100)
        return hundredths[49], hundredths[98]


def produce(
    addresses: Sequence[str], topic: str, rate: Rate, over: threading.Event, *, warm_up_s: float = 0.0
) -> Latencies:
    """Partition n is led by the nth of `addresses`. Ends when `over` is set and all is acknowledged.

    What is due in the first `warm_up_s` does not count. Raises AssertionError where a record is refused.
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
    """Wait until there are any, or until the next record is due."""
    by_socket = {wire.socket: wire for wire in waiting}
    for readable in select.select(list(by_socket), (), (), pause_s)[0]:
        wire = by_socket[readable]
        answers, now = wire.answers(), time.perf_counter()
        for answer in answers:
            due = waiting[wire].popleft()
            if due >= from_s:
                found.milliseconds.append((now - due) * 1000)
            check_produced(answer)

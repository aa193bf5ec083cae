"""Produce while the store of a tiered log is unavailable: the effect on unrelated requests.

Three cases alternate several times on the same cluster: produce to a local topic, to a tiered topic, and to the tiered
topic while its store is unavailable. Other load on the machine thus affects all three, and the compared figures come
from the same minutes; the median of the rounds counts. The start and the end of each outage are included: the failure
of all requests in flight, and the time after it. Missed copies are finished before the next round.
"""

import contextlib
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.benchmarks.paced_produce import Latencies
from tests.benchmarks.replication_cluster import IDS, Trio
from tests.benchmarks.tiered.cluster import LATEST, LATEST_TIERED, PATIENCE_S, POLL_S, offsets, tiered
from tests.benchmarks.workloads import LOWER
from tests.support.processes.s3_server import S3Server

SEGMENT_BYTES: Final = 1024 * 1024
ROUNDS: Final = 6
AWAY_S: Final = 10.0
"""Seconds of each case, a minute in all."""
BEHIND: Final = 3
"""Number of segments per partition that may wait for their copy at the start of a round."""

Away = Callable[[], AbstractContextManager[None]]
"""A context manager that makes the store of a broker unavailable."""
Meanwhile = Callable[[Trio, str, float], Latencies]
"""Produces to a topic for a number of seconds."""

MODES: Final = ("not tiered", "tiered", "tiered, store away")


def without_server(server: S3Server) -> Away:
    """Stop the S3 server, so that its port refuses connections."""

    @contextlib.contextmanager
    def away() -> Iterator[None]:
        server.stop()
        try:
            yield
        finally:
            server.start()

    return away


def without_directory(directory: Path) -> Away:
    """Replace the directory by a file, so that writes fail."""

    @contextlib.contextmanager
    def away() -> Iterator[None]:
        aside = directory.with_name(f"{directory.name}-aside")
        directory.rename(aside)
        directory.touch()
        try:
            yield
        finally:
            directory.unlink()
            aside.rename(directory)

    return away


class Outage:
    """The workload; one run is all rounds. `stores` has the store of each broker by its name."""

    def __init__(self, runs: int, produce_s: float, record_bytes: int, meanwhile: Meanwhile) -> None:
        self.runs = runs
        self.stores: Mapping[str, Away] = {}
        self._produce_s = produce_s
        self._meanwhile = meanwhile
        self._behind = BEHIND * SEGMENT_BYTES // record_bytes
        self.figures = {_name(mode, percentile): ("ms", LOWER) for mode in MODES for percentile in ("p50", "p99")}

    def run(self, side: Trio) -> dict[str, float]:
        """Run once, with new topics."""
        plain, kept = f"plain-{uuid.uuid4().hex}", f"kept-{uuid.uuid4().hex}"
        side.create_topic(plain)
        side.create_topic(kept, config=tiered(SEGMENT_BYTES, 4 * SEGMENT_BYTES))
        found: dict[str, list[Latencies]] = {mode: [] for mode in MODES}
        for _ in range(ROUNDS):
            found[MODES[0]].append(self._meanwhile(side, plain, self._produce_s))
            found[MODES[1]].append(self._meanwhile(side, kept, self._produce_s))
            with self.stores[side.name]():
                found[MODES[2]].append(self._meanwhile(side, kept, AWAY_S))
            self._await_copied(side, kept)
        side.delete_topic(plain)
        side.delete_topic(kept)
        figures: dict[str, float] = {}
        for mode, turns in found.items():
            medians = map(statistics.median, zip(*(turn.percentiles() for turn in turns), strict=True))
            figures[_name(mode, "p50")], figures[_name(mode, "p99")] = medians
        return figures

    def _await_copied(self, side: Trio, topic: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            copied, ends = offsets(side.bootstrap, topic, LATEST_TIERED), offsets(side.bootstrap, topic, LATEST)
            behind = [end - copied[number] for number, end in ends.items() if number in copied]
            if len(behind) == len(IDS) and max(behind) <= self._behind:
                return
            assert time.monotonic() < deadline, f"{side.name}: {behind} records are not copied after the outage"
            time.sleep(POLL_S)


def _name(mode: str, percentile: str) -> str:
    return f"produce in turns, {mode} {percentile}"

"""The tiered log: KIP-405's three measurements against Apache Kafka, reads and uploads against the store's own speed,
and the start of a node with a million remote segments.

KIP-405's are: produce latency with and without tiering; the same while consumers read old data; and the time until a
broker with an empty disk is in sync again. Another is produce latency while the store is unavailable. Ottla tiers to a
real S3 server, Apache Kafka to the storage of its tests (see `tiered_cluster.py`). Direct use: `python -m
tests.benchmarks.tiered.measure [--only TEXT] [--runs N] [--megabytes N]`.
"""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Protocol

from tests.benchmarks.paced_produce import Latencies, Rate, producing
from tests.benchmarks.replication_cluster import IDS, Trio, trio
from tests.benchmarks.report.rows import Row, compared, once
from tests.benchmarks.tiered import metadata as remote_metadata
from tests.benchmarks.tiered import store
from tests.benchmarks.tiered.catch_up import CatchUp
from tests.benchmarks.tiered.cluster import await_shrunk, kafkas_storage_missing, tier_settings, tiered
from tests.benchmarks.tiered.old_reader import reading
from tests.benchmarks.tiered.outage import Away, Meanwhile, Outage, without_directory, without_server
from tests.benchmarks.workloads import HIGHER, LOWER, fill
from tests.support.kafka.apache_kafka import unavailable_reason
from tests.support.kafka.kraft_nodes import Make
from tests.support.processes import s3_server
from tests.support.processes.s3_server import S3Server

RECORD_BYTES: Final = 1000
RATE: Final = Rate(requests=200, records=10, size=RECORD_BYTES)
RUNS: Final = 1
METADATA_FILES: Final = frozenset({"meta.properties", "bootstrap.checkpoint", "__cluster_metadata-0"})

Figures = dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """Sizes of all measurements, for a total of some minutes on two cores."""

    rebuilt_mb: int = 1000
    """Megabytes of records; each of three brokers has a replica."""
    old_mb: int = 192
    old_mb_per_s: float = 30.0
    latency_s: float = 6.0
    warm_up_s: float = 1.5
    read_mb: int = 384
    behind_mb: int = 480
    remote_segments: int = 1_000_000


class TieredWorkload(Protocol):
    """A workload on three nodes. `runs` is the maximum number of runs, the first of several discarded."""

    figures: dict[str, tuple[str, str]]
    runs: int

    def run(self, side: Trio) -> Figures: ...


class Latency:
    """Produce at a moderate rate, alternately to a tiered and a local topic, both with old data."""

    SEGMENT_BYTES, LOCAL_BYTES = 2 * 1024 * 1024, 4 * 1024 * 1024

    def __init__(self, sizes: Sizes, runs: int) -> None:
        self.runs = runs + 1
        self._sizes = sizes
        self._topics: dict[str, dict[bool, str]] = {}
        self.figures = {
            _latency_name(percentile, is_tiered=is_tiered, is_read=is_read): ("ms", LOWER)
            for is_read in (False, True)
            for is_tiered in (False, True)
            for percentile in ("p50", "p99")
        }

    def run(self, side: Trio) -> Figures:
        """Run each of the four once."""
        topics = self._topics.get(side.name) or self._topics.setdefault(side.name, self._filled(side))
        figures: Figures = {}
        for is_read in (False, True):
            for is_tiered, topic in topics.items():
                p50, p99 = self._measured(side, topic, is_read).percentiles()
                figures[_latency_name("p50", is_tiered=is_tiered, is_read=is_read)] = p50
                figures[_latency_name("p99", is_tiered=is_tiered, is_read=is_read)] = p99
        return figures

    def _filled(self, side: Trio) -> dict[bool, str]:
        topics = {False: f"untiered-{uuid.uuid4().hex}", True: f"tiered-{uuid.uuid4().hex}"}
        for is_tiered, topic in topics.items():
            config = tiered(self.SEGMENT_BYTES, self.LOCAL_BYTES) if is_tiered else {}
            side.create_topic(topic, config=config)
            fill(side.bootstrap, topic, RECORD_BYTES, self._sizes.old_mb * 1_000_000 // RECORD_BYTES, acks="all")
        await_shrunk(side.bootstrap, topics[True], len(IDS), _records(self.LOCAL_BYTES + 2 * self.SEGMENT_BYTES))
        return topics

    def _measured(self, side: Trio, topic: str, is_read: bool) -> Latencies:
        sizes = self._sizes
        addresses = [side.node(each).address for each in IDS]
        with contextlib.ExitStack() as stack:
            if is_read:
                stack.enter_context(reading(side.bootstrap, topic, len(IDS), sizes.old_mb_per_s))
            with producing(addresses, topic, RATE, warm_up_s=sizes.warm_up_s) as latencies:
                time.sleep(sizes.warm_up_s + sizes.latency_s)
        return latencies


def _latency_name(percentile: str, *, is_tiered: bool, is_read: bool) -> str:
    mode = "tiered" if is_tiered else "not tiered"
    return f"produce beside a tier, {mode}{', old data read' if is_read else ''} {percentile}"


def _slice(sizes: Sizes) -> Meanwhile:
    """Produce for a while."""

    def meanwhile(side: Trio, topic: str, seconds: float) -> Latencies:
        with producing([side.node(each).address for each in IDS], topic, RATE, warm_up_s=sizes.warm_up_s) as latencies:
            time.sleep(sizes.warm_up_s + seconds)
        return latencies

    return meanwhile


class Rebuild:
    """A broker stops, loses everything except the cluster metadata, and restarts: seconds until it is in sync
    everywhere.

    Local retention of the tiered topic keeps 5 %. Other brokers lead all partitions and receive records meanwhile.
    """

    PARTITIONS, LOST = 4, 3
    LOCAL_PART = 0.05

    def __init__(self, sizes: Sizes) -> None:
        self.runs = 1
        self._records = sizes.rebuilt_mb * 1_000_000 // RECORD_BYTES
        partition_bytes = sizes.rebuilt_mb * 1_000_000 // self.PARTITIONS
        self._local_bytes = round(partition_bytes * self.LOCAL_PART)
        self._segment_bytes = max(1024 * 1024, min(8 * 1024 * 1024, self._local_bytes // 3))
        self._ratio = "rebuild of a wiped broker, not tiered / tiered"
        self.figures = {
            name: (unit, LOWER)
            for mode in ("not tiered", "tiered")
            for name, unit in ((_rebuild_name(mode), "s"), (_rebuild_name(mode, "produce p99 meanwhile"), "ms"))
        } | {self._ratio: ("x", HIGHER)}

    def run(self, side: Trio) -> Figures:
        """Run without tiering first; each topic is deleted before the next run."""
        figures: Figures = {}
        for mode in ("not tiered", "tiered"):
            topic = self._filled(side, mode == "tiered")
            took, latencies = self._rebuilt(side, topic)
            figures[_rebuild_name(mode)] = took
            figures[_rebuild_name(mode, "produce p99 meanwhile")] = latencies.percentiles()[1]
            side.delete_topic(topic)
        figures[self._ratio] = figures[_rebuild_name("not tiered")] / figures[_rebuild_name("tiered")]
        return figures

    @property
    def _leaders(self) -> list[int]:
        others = [each for each in IDS if each != self.LOST]
        return [others[index % len(others)] for index in range(self.PARTITIONS)]

    def _filled(self, side: Trio, is_tiered: bool) -> str:
        topic = f"rebuild-{uuid.uuid4().hex}"
        config = tiered(self._segment_bytes, self._local_bytes) if is_tiered else {}
        side.create_topic(topic, self.PARTITIONS, leaders=self._leaders, config=config)
        fill(side.bootstrap, topic, RECORD_BYTES, self._records, acks="all")
        if is_tiered:
            await_shrunk(side.bootstrap, topic, self.PARTITIONS, _records(self._local_bytes + 2 * self._segment_bytes))
        return topic

    def _rebuilt(self, side: Trio, topic: str) -> tuple[float, Latencies]:
        lost = side.node(self.LOST)
        lost.terminate()
        side.wait_out_of_sync(lost.id, topic)
        _wipe(lost.data)
        with producing([side.node(each).address for each in self._leaders], topic, RATE) as latencies:
            started = time.monotonic()
            lost.launch()
            side.wait_in_sync(topic, told_by=IDS[:1])
            took = time.monotonic() - started
        return took, latencies


def _rebuild_name(mode: str, what: str = "") -> str:
    return f"rebuild of a wiped broker, {mode}" + (f", {what}" if what else "")


def _wipe(data: Path) -> None:
    for path in data.iterdir():
        if path.is_dir() and path.name not in METADATA_FILES:
            shutil.rmtree(path)
        elif path.name not in METADATA_FILES:
            path.unlink()


def _records(size_bytes: int) -> int:
    return size_bytes // RECORD_BYTES


# ---- all measurements


def measure(
    only: str = "", runs: int | None = None, makes: Sequence[Make] = tuple(Make), sizes: Sizes | None = None
) -> Iterator[Row]:
    """Measure all workloads with `only` in the name of a figure; none without an S3 server."""
    if reason := s3_server.unavailable_reason():
        print(f"skipped: the tiered log: {reason}")
        return
    sizes, runs = sizes or Sizes(), runs or RUNS
    makers: list[Callable[[], TieredWorkload]] = [
        lambda: Latency(sizes, runs),
        lambda: Outage(runs, sizes.latency_s, RECORD_BYTES, _slice(sizes)),
        lambda: Rebuild(sizes),
        lambda: CatchUp(sizes.behind_mb, runs),
    ]
    chosen = [each for each in (make() for make in makers) if any(only in name for name in each.figures)]
    if chosen:
        with tempfile.TemporaryDirectory() as name:
            yield from (row for row in _cluster_rows(Path(name), chosen, makes) if only in row.name)
    with tempfile.TemporaryDirectory() as name:
        rows = [once(*each) for each in store.measure(Path(name), sizes.read_mb, only, runs + 1)]
        yield from (row for row in rows if only in row.name)
    with tempfile.TemporaryDirectory() as name:
        rows = [once(*each) for each in remote_metadata.measure(Path(name), sizes.remote_segments, only)]
        yield from (row for row in rows if only in row.name)


def _cluster_rows(directory: Path, chosen: Sequence[TieredWorkload], makes: Sequence[Make]) -> Iterator[Row]:
    with S3Server(directory / "s3") as server, contextlib.ExitStack() as stack:
        both = []
        stores: dict[str, Away] = {}
        for make in makes:
            remote = directory / f"{make}-remote"
            remote.mkdir()
            both.append(stack.enter_context(trio(make, directory / make, tier_settings(make, server, remote))))
            stores[both[-1].name] = without_server(server) if make is Make.OTTLA else without_directory(remote)
        for workload in chosen:
            if isinstance(workload, Outage):
                workload.stores = stores
            yield from compared(workload, both, max(1, workload.runs - 1), warm_up=workload.runs > 1)


def makes_here() -> list[Make]:
    """Return the brokers that can be measured on this machine."""
    reason = unavailable_reason() or kafkas_storage_missing()
    if reason:
        print(f"skipped: the tiered log of Apache Kafka: {reason}")
    return [Make.OTTLA] if reason else [Make.OTTLA, Make.APACHE]


def main() -> int:
    """Measure, and print the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, help="counted runs per side")
    parser.add_argument("--only", default="", help="only figures whose name contains this")
    parser.add_argument("--make", type=Make, help="only this make")
    parser.add_argument("--megabytes", type=int, default=Sizes.rebuilt_mb, help="size of a wiped broker's log")
    parser.add_argument(
        "--segments", type=int, default=Sizes.remote_segments, help="number of remote segments of a starting node"
    )
    options = parser.parse_args()
    sizes = Sizes(rebuilt_mb=options.megabytes, remote_segments=options.segments)
    makes = [options.make] if options.make else makes_here()
    rows = measure(options.only, options.runs, makes, sizes)
    print(json.dumps([asdict(row) for row in rows], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

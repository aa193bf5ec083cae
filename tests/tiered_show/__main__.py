"""Tiered topics under load: gigabytes through a faulty S3 proxy, and every byte read back.

Three brokers tier small segments to a real S3 server. One in ten requests fails, is slow, is cut, or is executed
without a response; the server is gone for a minute; a broker is killed. Idempotent producers write all the time. When
local logs have reached their retention, librdkafka and Java read everything from offset 0 and by timestamp, and bucket,
metadata and brokers are compared.
"""

import argparse
import itertools
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from storage.tiered.format.object_keys import ObjectSuffix
from tests.support.clients.checkable_records import Recipe
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes.s3_server import unavailable_reason
from tests.support.processes.tiered_cluster import SEGMENT_BYTES, TieredCluster
from tests.tiered_show.audit import audit
from tests.tiered_show.load import Latency, Probe, Writer, between, percentile
from tests.tiered_show.readers import (
    Reading,
    Written,
    look_up_with_librdkafka,
    read_with_java,
    read_with_librdkafka,
)
from tests.tiered_show.watch import CopyWatch, SampleWatch

TOPIC = "tiered"
PROBE_TOPIC = "probe"
BUILD = REPOSITORY / "build" / "tiered"
WARM_UP_S = 15.0
PROBE_BYTES = 200
NOTICED_FACTOR, NOTICED_MS = 2.0, 50.0
"""Thresholds of the 99th percentile during an outage: a factor and milliseconds above the value before it."""
TIMESTAMPS = 50
HISTORY_MS = 3_600_000
SHRINK_S = 1800.0
SETTINGS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "1000",
    "replica.lag.time.max.ms": "10000",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "10",
}
"""Broker settings: no fencing on a busy machine, and a killed broker leads again."""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.tiered_show", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--rate", type=float, default=10, help="megabytes produced per second")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--size", type=int, default=1024, help="bytes per record value")
    parser.add_argument("--share", type=float, default=0.1, help="share of requests to the store with a fault")
    parser.add_argument("--outage", type=float, default=60, help="seconds without the store, in the middle of the run")
    parser.add_argument("--kills", type=int, default=1, help="brokers killed one by one after the outage")
    parser.add_argument("--seed", type=int, default=405)
    parser.add_argument(
        "--shallow", action="store_true", help="verify at the end that objects exist, not their content"
    )
    parser.add_argument("--directory", type=Path, default=BUILD, help="emptied first")
    parser.add_argument("--keep", action="store_true", help="keep all files even after a clean run")
    return parser.parse_args()


@dataclass
class Phases:
    """Times of the phases, by the monotonic clock."""

    began: float = field(default_factory=time.monotonic)
    outage: tuple[float, float] = (0.0, 0.0)
    kills: list[float] = field(default_factory=list)
    produced: float = 0.0
    shrunk: float = 0.0

    def latencies(self, all_of_them: list[Latency]) -> dict[str, list[Latency]]:
        """Return latencies; after the outage only up to the first kill, which may raise them."""
        start, end = self.outage
        last = min([*self.kills, self.produced])
        return {
            "before": between(all_of_them, self.began + WARM_UP_S, start),
            "during": between(all_of_them, start, end),
            "after": between(all_of_them, end, last),
        }


class TieredRun:
    """One run; `faults` are violations as text."""

    def __init__(self, tier: TieredCluster, arguments: argparse.Namespace) -> None:
        self.tier = tier
        self.arguments = arguments
        self.faults: list[str] = []
        first_ms = time.time_ns() // 1_000_000 - HISTORY_MS
        self.recipe = Recipe(arguments.size, first_ms)
        self.probe_recipe = Recipe(PROBE_BYTES, first_ms)
        self.count = round(arguments.gigabytes * 1e9 / arguments.size / arguments.partitions)
        self.phases = Phases()
        tier.create(TOPIC, *self._assignment(arguments.partitions), local_retention_bytes=str(4 * SEGMENT_BYTES))
        tier.create(PROBE_TOPIC, *self._assignment(3))
        self.writers = self._writers()
        self.probe = Probe(tier.bootstrap, PROBE_TOPIC, self.probe_recipe, 3)
        self.copies = CopyWatch(tier.bootstrap, TOPIC)
        self.samples = SampleWatch(tier.bootstrap, TOPIC, self.recipe, self.acknowledged)

    @staticmethod
    def _assignment(partitions: int) -> list[tuple[int, ...]]:
        orders = itertools.cycle([(1, 2, 3), (2, 3, 1), (3, 1, 2)])
        return list(itertools.islice(orders, partitions))

    def _writers(self) -> list[Writer]:
        """Return two writers, each for every other partition."""
        rate = self.arguments.rate * 1e6 / self.arguments.size
        partitions = range(self.arguments.partitions)
        shares = [share for share in (partitions[0::2], partitions[1::2]) if share]
        return [
            Writer(self.tier.bootstrap, TOPIC, self.recipe, share, self.count, rate * len(share) / len(partitions))
            for share in shares
        ]

    def acknowledged(self) -> dict[int, int]:
        return {
            partition: count
            for writer in self.writers
            for partition, count in writer.acknowledgements.acknowledged.items()
        }

    # ---- writing

    def write(self) -> None:
        """Write all records while faults are injected."""
        self.tier.proxy.set_share(self.arguments.share)
        self.phases.began = time.monotonic()
        for thread in (*self.writers, self.probe, self.copies, self.samples):
            thread.start()
        self._wait_for_share(0.3)
        self._stop_store()
        for kill in range(self.arguments.kills):
            self._wait_for_share(0.3 + 0.5 * (kill + 1) / (self.arguments.kills + 1), rest_s=10)
            self._kill_broker(1 + kill % 3)
        for writer in self.writers:
            writer.join()
        self.phases.produced = time.monotonic()
        print_now(f"produced in {self.phases.produced - self.phases.began:.0f} s")
        for watch in (self.probe, self.samples):
            watch.finish()

    def _wait_for_share(self, share: float, rest_s: float = 0.0) -> None:
        """Wait until a share is acknowledged or writing has ended, and for a minimum time."""
        least = time.monotonic() + rest_s
        while any(writer.is_alive() for writer in self.writers):
            done = sum(self.acknowledged().values()) / (self.count * self.arguments.partitions)
            if done >= share and time.monotonic() >= least:
                return
            time.sleep(0.2)

    def _stop_store(self) -> None:
        print_now(f"the store is stopped, {sum(self.acknowledged().values()):,} records acknowledged")
        start = time.monotonic()
        self.tier.proxy.vanish()
        time.sleep(self.arguments.outage)
        self.tier.proxy.come_back()
        self.phases.outage = start, time.monotonic()
        print_now(f"the store is running again, {sum(self.acknowledged().values()):,} records acknowledged")

    def _kill_broker(self, broker_id: int) -> None:
        self.phases.kills.append(time.monotonic())
        self.tier.brokers[broker_id].kill()
        time.sleep(5)
        self.tier.brokers.start(broker_id)
        print_now(f"broker {broker_id} was killed and is running again")

    # ---- evaluation

    def wait_for_local_retention(self) -> None:
        """Wait until no replica exceeds its local retention, an active segment and one being copied."""
        most = 4 * SEGMENT_BYTES + 2 * SEGMENT_BYTES
        began = time.monotonic()
        while (largest := self._largest_local_log()) > most:
            if time.monotonic() - began > SHRINK_S:
                self.faults.append(f"a local log still holds {largest:,} bytes")
                break
            time.sleep(1)
        self.phases.shrunk = time.monotonic()
        print_now(f"local logs reached their retention after {self.phases.shrunk - self.phases.produced:.0f} s")

    def _largest_local_log(self) -> int:
        partitions = range(self.arguments.partitions)
        return max(self.tier.local_bytes(broker, TOPIC, each) for broker in (1, 2, 3) for each in partitions)

    def read(self) -> list[Reading]:
        ends = dict.fromkeys(range(self.arguments.partitions), self.count)
        crcs = {partition: self.recipe.crc(partition, range(end)) for partition, end in ends.items()}
        written = Written(TOPIC, self.recipe, ends, crcs)
        bootstrap = self.tier.bootstrap
        readings: list[Reading] = []
        steps: list[Callable[[], Reading | str]] = [
            lambda: read_with_librdkafka(bootstrap, written, "read_uncommitted"),
            lambda: read_with_java(bootstrap, written, "read_committed", TIMESTAMPS),
            lambda: look_up_with_librdkafka(bootstrap, written, TIMESTAMPS),
            lambda: read_with_librdkafka(bootstrap, written, "read_committed"),
        ]
        for step in steps:
            reading = step()
            if isinstance(reading, str):
                print_now(f"skipped: Java: {reading}")
                continue
            readings.append(reading)
            self.faults += [f"{reading.title}: {fault}" for fault in reading.faults]
            print_now(f"{reading.title}: {reading.seconds:.1f} s, {'NOT ' * bool(reading.faults)}identical")
        return readings

    def report(self, readings: list[Reading]) -> None:
        """Print the figures; add faults for violated thresholds."""
        arguments, phases = self.arguments, self.phases
        total = self.count * arguments.partitions
        size = total * arguments.size
        found = audit(self.tier, TOPIC, deep=not arguments.shallow)
        self.faults += found.faults
        if found.segments < (least := size // SEGMENT_BYTES // 2):
            self.faults.append(f"{found.segments} segments are remote, minimum {least}")
        print_now(f"\n{total:,} records, {size / 1e9:.2f} GB, {arguments.partitions} partitions, replication factor 3")
        seconds = phases.produced - phases.began
        print(f"produced with acks=all in {seconds:.0f} s, {size / 1e6 / seconds:.1f} MB/s")
        gone = phases.outage[1] - phases.outage[0]
        print(f"during this time the store was down for {gone:.1f} s, and {arguments.kills} broker(s) were killed")
        self._report_latencies()
        print(f"tier caught up and local logs reached their retention after {phases.shrunk - phases.produced:.0f} s:")
        written = size // arguments.partitions
        print(f"  no replica holds more than {self._largest_local_log():,} bytes on disk, of {written:,} written")
        for reading in readings:
            speed = f", {size / 1e6 / reading.seconds:.1f} MB/s" if "timestamps of" not in reading.title else ""
            print(f"{reading.title}: {reading.seconds:.1f} s{speed}, {len(reading.faults)} faults")
        samples, wrong = self.samples.samples, len(self.samples.faults)
        print(f"ranges read during the run: {samples.whole} complete, {samples.late} late, {wrong} wrong")
        print(f"copies started: {self.copies.copies}, past the last stable offset: {len(self.copies.faults)}")
        counts = self.tier.proxy.counts()
        requests = counts.pop("requests", 0)
        share = sum(counts.values()) / max(1, requests)
        print(f"requests to the store: {requests}, {share:.1%} with a fault: {counts}")
        print(f"collect: {found.collected}")
        print(f"verify: {found.verified}")
        print(f"leaders' local logs: {found.local_bytes:,} bytes, remote: {found.remote_bytes:,} bytes")
        print(f"leader epochs of {found.compared} remote segments compared with their leaders' checkpoints")
        parts = f"{len(ObjectSuffix)} x {found.segments} segments"
        print(f"bucket: {found.objects} objects = {parts}, and {found.other_objects} others")
        print(f"after the collection: {found.orphans} orphan and {found.dangling} dangling objects")

    def _report_latencies(self) -> None:
        for title, acknowledgements in (
            ("probe", self.probe.acknowledgements.latencies),
            ("load", [each for writer in self.writers for each in writer.acknowledgements.latencies]),
        ):
            phases = self.phases.latencies(acknowledgements)
            figures = {
                name: f"{percentile(each, 0.5):.1f}/{percentile(each, 0.99):.1f}" for name, each in phases.items()
            }
            print(f"p50/p99 ms of acks=all, {title}, by the store's outage: {figures}")
            before, during = (percentile(phases[name], 0.99) for name in ("before", "during"))
            if title == "probe" and during > max(before * NOTICED_FACTOR, before + NOTICED_MS):
                self.faults.append(f"the outage delayed producers: p99 rose from {before:.1f} ms to {during:.1f} ms")

    def conclude(self) -> None:
        self.copies.finish()
        for acknowledgements in (*(writer.acknowledgements for writer in self.writers), self.probe.acknowledgements):
            self.faults += acknowledgements.failures
        self.faults += self.copies.faults + self.samples.faults


def print_now(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    arguments = parsed()
    if (reason := unavailable_reason()) is not None:
        print(f"skipped: no S3 server: {reason}")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all started processes are stopped
    shutil.rmtree(arguments.directory, ignore_errors=True)
    with TieredCluster(arguments.directory, SETTINGS, seed=arguments.seed) as tier:
        run = TieredRun(tier, arguments)
        run.write()
        run.wait_for_local_retention()
        readings = run.read()
        tier.proxy.set_share(0)
        run.conclude()
        run.report(readings)
    for fault in run.faults[:50]:
        print(f"fault: {fault}")
    print(f"{len(run.faults)} faults")
    if run.faults:
        print(f"files: {arguments.directory}")
        return 1
    if not arguments.keep:
        shutil.rmtree(arguments.directory)
    return 0


if __name__ == "__main__":
    started = time.monotonic()
    code = main()
    print(f"{'clean' if code == 0 else 'NOT clean'}, {time.monotonic() - started:.0f} s")
    sys.exit(code)

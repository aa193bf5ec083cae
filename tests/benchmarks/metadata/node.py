"""A single controller on a real disk, without other voters, with stub brokers that only register and heartbeat.

A separate process (`python -m tests.benchmarks.metadata.node fill DIRECTORY TOPICS` or `… load DIRECTORY`), so that its
memory is that of the metadata. Prints its figures as JSON.
"""

import asyncio
import gc
import json
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import uvloop

from broker.clock import SystemClock
from broker.config.load import load_config
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.state import ControllerSettings
from broker.metadata.image.features import bootstrap_records
from broker.metadata.snapshot.check import SnapshotCheck
from broker.metrics.snapshots import SnapshotMetrics
from broker.quorum.core import QuorumCore
from broker.quorum.identity import Instant, SocketAddress
from broker.quorum.messages import Request
from broker.quorum.settings import QuorumSettings
from broker.quorum.snapshots.rules import SnapshotTrigger, TriggerSettings
from broker.runtime.controller.config_schema import KafkaConfigSchema
from broker.runtime.controller.driver import ControllerDriver
from broker.runtime.loop.io_thread import IoThread
from broker.runtime.quorum.driver import QuorumDriver
from broker.runtime.quorum.metadata_log import RaftMetadataLog
from broker.runtime.quorum.replica_io import Done, ReplicaIo
from broker.runtime.quorum.snapshot_generator import SnapshotGenerator
from broker.runtime.quorum.state_file import QuorumStateFile
from protocol.ids import LeaderEpoch
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.primitives import Uuid
from protocol.records.compression import Codec
from storage.config import LogConfig
from storage.files import OsFileSystem
from tests.broker.metadata.images import CLUSTER_ID, Cluster, uuid
from tests.support.fakes.runtimes import make_runtime
from tests.support.quorum_values import make_static_voter, replica_key

BROKERS = 100
PARTITIONS = 10
REPLICAS = 3
TOPICS_PER_REQUEST = 100
HEARTBEAT_INTERVAL_S = 2.0
_PIECE_BYTES = 1024 * 1024
_FAR = 2**62  # the acknowledged metadata offset of a stub broker, always sufficient


class _Nobody:
    """A transport without other voters."""

    def send(self, to_id: int, to: SocketAddress, request: Request, timeout_ms: int, done: Done) -> None:
        raise AssertionError("a single voter sends no requests")


class Node:
    """The metadata side of a controller."""

    def __init__(self, directory: str, loop: asyncio.AbstractEventLoop) -> None:
        fs, clock = OsFileSystem(), SystemClock()
        self.io, self.snapshot_io = IoThread(loop), IoThread(loop, name="ottla-snapshots")
        self.failure: asyncio.Future[None] = loop.create_future()
        fs.make_directory(directory)
        self.log = RaftMetadataLog.open(fs, directory, LogConfig(retention_ms=-1), clock.now_ms())
        state_file = QuorumStateFile(fs, directory)
        key = replica_key(1, uuid(9))
        settings = QuorumSettings(
            key=key,
            cluster_id=CLUSTER_ID,
            can_vote=True,
            static_voters=(make_static_voter(1, SocketAddress("localhost", 9)),),
        )
        now = Instant(clock.monotonic_ms(), clock.now_ms())
        core = QuorumCore(settings, replace(self.log.recovered, election=state_file.read()), Random(1), now)
        self.quorum = QuorumDriver(
            core,
            ReplicaIo(self.log, state_file, _Nobody()),
            make_runtime(loop, clock=clock, io=self.io),
            on_fatal=self.failure.set_exception,
        )
        random = Random(2)
        controller = Controller(
            ControllerSettings(CLUSTER_ID, node_id=1, session_timeout_ms=9_000, kraft_version=0),
            KafkaConfigSchema(load_config(None, (), {})[0]),
            random=random,
            new_id=lambda: Uuid(random.randbytes(16)),
        )
        self.driver = ControllerDriver(
            controller,
            self.quorum,
            make_runtime(loop, clock=clock, io=self.io),
            bootstrap=bootstrap_records(),
            local_broker=None,
        )
        self.metrics = SnapshotMetrics(clock.monotonic_ms())
        trigger = TriggerSettings(min_changed_ratio=0.5, min_bytes=2**62, interval_ms=0)  # on request only
        self.generator = SnapshotGenerator(
            self.quorum,
            SnapshotTrigger(trigger, clock.monotonic_ms()),
            self.metrics,
            make_runtime(loop, clock=clock, io=self.snapshot_io),
            codec=Codec.NONE,
        )
        self.driver.add_log_read_listener(self.generator)
        self.driver.add_publisher(self.generator)
        self.quorum.add_listener(self.driver)

    async def start(self) -> None:
        activated: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.driver.watch_activation(partial(activated.set_result, None))
        self.quorum.start()
        await asyncio.wait([activated, self.failure], return_when=asyncio.FIRST_COMPLETED)
        if self.failure.done():
            self.failure.result()

    async def stop(self) -> None:
        self.driver.close()
        self.quorum.close()
        await self.io.stop()
        await self.snapshot_io.stop()
        self.log.close()


class StubBrokers:
    """Sends heartbeats at fixed times; `latest_ms` is the longest time from due time to response."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.epochs: dict[int, int] = {}
        self.latest_ms = 0.0
        self._task: asyncio.Task[None] | None = None
        self._beating: set[asyncio.Task[None]] = set()

    async def register(self) -> None:
        cluster = Cluster()
        for broker in range(1, BROKERS + 1):
            request = cluster.registration(broker)
            answer = await self._node.driver.submit(
                lambda controller, now, request=request: controller.register_broker(request, now_ms=now)  # type: ignore[misc]
            )
            self.epochs[broker] = answer.broker_epoch
            await self.heartbeat(broker)

    async def heartbeat(self, broker: int, *, want_fence: bool = False) -> None:
        request = BrokerHeartbeatRequest(broker, self.epochs[broker], _FAR, want_fence=want_fence)
        await self._node.driver.submit(lambda controller, now: controller.heartbeat(request, now_ms=now))

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._beat())

    def forget(self) -> None:
        self.latest_ms = 0.0

    async def leave(self, broker: int) -> float:
        """Let a broker be fenced; return the seconds until this and all resulting changes are committed."""
        began = time.perf_counter()
        await self.heartbeat(broker, want_fence=True)
        took = time.perf_counter() - began
        del self.epochs[broker]
        return took

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            for broker in list(self.epochs):
                due += HEARTBEAT_INTERVAL_S / BROKERS
                await asyncio.sleep(max(0.0, due - loop.time()))
                if broker in self.epochs:
                    task = asyncio.ensure_future(self._beat_once(broker, due))
                    self._beating.add(task)
                    task.add_done_callback(self._beating.discard)

    async def _beat_once(self, broker: int, due: float) -> None:
        await self.heartbeat(broker)
        self.latest_ms = max(self.latest_ms, (asyncio.get_running_loop().time() - due) * 1000)


def memory_mb() -> float:
    """Return the anonymous resident memory."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")) / 1000


async def fill(directory: str, topics: int) -> dict[str, float]:
    """Create the topics, generate a snapshot, and fence a broker."""
    node = Node(directory, asyncio.get_running_loop())
    await node.start()
    brokers = StubBrokers(node)
    await brokers.register()
    empty_mb = memory_mb()
    brokers.start()
    began = time.perf_counter()
    for first in range(0, topics, TOPICS_PER_REQUEST):
        names = [f"topic-{number:06d}" for number in range(first, min(first + TOPICS_PER_REQUEST, topics))]
        request = CreateTopicsRequest([CreatableTopic(name, PARTITIONS, REPLICAS) for name in names])
        answer = await node.driver.submit(
            lambda controller, _now, request=request: controller.create_topics(request)  # type: ignore[misc]
        )
        assert all(topic.error_code == 0 for topic in answer.topics), answer
    figures = {
        "creation_s": time.perf_counter() - began,
        "creation_heartbeat_ms": brokers.latest_ms,
        "log_bytes": float(node.log.size_bytes),
        "memory_mb": memory_mb() - empty_mb,
    }
    await asyncio.sleep(1)
    brokers.forget()
    began, began_cpu = time.perf_counter(), time.process_time()
    await node.generator.generate_now()
    figures |= {
        "snapshot_s": time.perf_counter() - began,
        "snapshot_cpu_s": time.process_time() - began_cpu,
        "snapshot_bytes": float(node.metrics.size_bytes),
        "snapshot_heartbeat_ms": brokers.latest_ms,
    }
    await asyncio.sleep(0.2)
    brokers.forget()
    began_cpu = time.process_time()
    figures["fencing_s"] = await brokers.leave(7)
    figures["fencing_cpu_s"] = time.process_time() - began_cpu
    await asyncio.sleep(0.2)
    figures["fencing_heartbeat_ms"] = brokers.latest_ms
    figures["fenced_replicas"] = float(topics * PARTITIONS * REPLICAS / BROKERS)
    await node.stop()
    return figures


async def load(directory: str) -> dict[str, float]:
    """Start from the snapshot and the log after it."""
    began_cpu = time.process_time()
    node = Node(directory, asyncio.get_running_loop())
    lag = asyncio.ensure_future(_longest_pause_ms())
    await node.start()
    lag.cancel()
    figures = {
        "load_s": node.metrics.load_ms.total / 1000,
        "start_s": _age_s(),
        "load_cpu_s": time.process_time() - began_cpu,
        "loaded_mb": memory_mb(),
        "load_pause_ms": _pause_ms[0],
        "partitions": float(node.driver.image.topics.partition_count),
    }
    await node.stop()
    return figures | {"check_s": _check_s(directory)}


def _check_s(directory: str) -> float:
    """Return the processor time of the check before a node imports a snapshot from a store."""
    path = max(Path(directory).glob("*.checkpoint"))
    check = SnapshotCheck(LeaderEpoch(int(path.stem.rpartition("-")[2])))
    began = time.process_time()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            check.feed(piece)
    check.end()
    return time.process_time() - began


def _age_s() -> float:
    """Return the seconds since the start of this process."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(after_name[19]) / os.sysconf("SC_CLK_TCK")


_pause_ms = [0.0]


async def _longest_pause_ms() -> None:
    """Return the longest time in which the loop was blocked."""
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(0.001)
        _pause_ms[0] = max(_pause_ms[0], (loop.time() - before) * 1000 - 1)


def main() -> None:
    """Run the command in the module's docstring."""
    command, directory = sys.argv[1], sys.argv[2]
    gc.collect()
    gc.freeze()
    work = fill(directory, int(sys.argv[3])) if command == "fill" else load(directory)
    print(json.dumps(uvloop.run(work)))


if __name__ == "__main__":
    main()

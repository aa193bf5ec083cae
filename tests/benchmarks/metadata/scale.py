"""Metadata alone, at KIP-630's example: 100,000 topics x 10 partitions x 3 replicas on 100 brokers that only heartbeat.

Ottla's controller runs in a separate process with its driver, quorum and disk (`metadata_node.py`) and is called
directly, without sockets. Apache Kafka's runs as a controller-only process and is accessed through its listener. Both
are the only voter and have default settings, except for snapshots: Ottla's generates one on request, Kafka's after a
restart with an interval. Direct use: `python -m tests.benchmarks.metadata.scale [--topics N]`.
"""

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from broker.client import ClientConfig, Connection, Endpoint
from broker.metadata.image.features import SUPPORTED_FEATURES
from protocol.errors import ErrorCode
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.benchmarks.metadata.node import (
    BROKERS,
    HEARTBEAT_INTERVAL_S,
    PARTITIONS,
    REPLICAS,
    TOPICS_PER_REQUEST,
)
from tests.broker.metadata.images import directory_of, incarnation_of
from tests.support.kafka.apache_kafka import (
    free_ports,
    java_command,
    random_uuid_text,
    run_tool,
    stop,
    unavailable_reason,
    wait_for_port,
)
from tests.support.kafka.java_options import OPTIMIZED

Figures = dict[str, float]

FIGURES: dict[str, tuple[str, str, str]] = {
    "log_bytes": ("metadata appended for all topics", "MB", "lower"),
    "creation_s": ("metadata creation of all topics", "s", "lower"),
    "loaded_mb": ("controller memory with all metadata", "MB", "lower"),
    "snapshot_bytes": ("metadata snapshot size", "MB", "lower"),
    "snapshot_s": ("metadata snapshot written", "s", "lower"),
    "snapshot_heartbeat_ms": ("latest heartbeat during the snapshot", "ms", "lower"),
    "load_s": ("metadata snapshot loaded", "s", "lower"),
    "check_s": ("metadata snapshot out of a store checked, processor time", "s", "lower"),
    "start_s": ("controller start with all metadata", "s", "lower"),
    "fencing_s": ("a broker with 3 % of all replicas fenced", "s", "lower"),
}
"""Row name, unit and better direction of the figures of both sides."""

# Features that Apache Kafka finalizes in a new cluster beyond those of Ottla; a broker must support them to register.
START_TIMEOUT_S = 300  # a replay of a million partitions on a busy machine
_KAFKAS_FEATURES = {"share.version": (0, 1), "streams.version": (0, 1), "transaction.version": (0, 2)}


def ottla(directory: Path, topics: int) -> Figures:
    """Measure Ottla's controller in two processes."""
    log = str(directory / "__cluster_metadata-0")
    return _run_node("fill", log, str(topics)) | _run_node("load", log)


def _run_node(*arguments: str) -> Figures:
    command = [sys.executable, "-m", "tests.benchmarks.metadata.node", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def kafka(directory: Path, topics: int) -> Figures:
    """Measure Apache Kafka's controller in three processes: fill and fence, generate a snapshot, load it."""
    controller = KafkaController(directory)
    with controller.running({}):
        brokers = StubBrokers(controller)
        began = time.perf_counter()
        controller.create(topics)
        figures = {
            "creation_s": time.perf_counter() - began,
            "log_bytes": float(sum(path.stat().st_size for path in controller.log.glob("*.log"))),
        }
        figures["fencing_s"] = brokers.leave(7)
        brokers.stop()
    interval_ms = 20_000 + topics  # enough to replay the log first: an earlier snapshot would be incomplete
    with controller.running({"metadata.log.max.snapshot.interval.ms": str(interval_ms)}):
        brokers = StubBrokers(controller)
        figures["snapshot_s"] = controller.await_snapshot()
        brokers.stop()
        figures["snapshot_heartbeat_ms"] = brokers.latest_ms
        figures["snapshot_bytes"] = float(max(path.stat().st_size for path in controller.log.glob("*.checkpoint")))
    began = time.perf_counter()
    with controller.running({}) as process:
        StubBrokers(controller).stop()
        figures["start_s"] = time.perf_counter() - began
        figures["loaded_mb"] = _live_heap_mb(process.pid)
    return figures


def _live_heap_mb(pid: int) -> float:
    """Return the heap size after a full collection."""
    subprocess.run(["jcmd", str(pid), "GC.run"], capture_output=True, check=True)
    output = subprocess.run(["jcmd", str(pid), "GC.heap_info"], capture_output=True, text=True, check=True).stdout
    used = re.search(r"used (\d+)K", output)
    assert used is not None, output
    return int(used.group(1)) / 1000


class KafkaController:
    """A controller-only node and its log."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.log = directory / "data" / "__cluster_metadata-0"
        self.cluster_id = random_uuid_text()
        (self._port,) = free_ports(1)
        directory.mkdir(parents=True, exist_ok=True)
        run_tool("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(self._properties({})))

    def _properties(self, settings: dict[str, str]) -> Path:
        config = {
            "process.roles": "controller",
            "node.id": "1000",
            "controller.quorum.voters": f"1000@127.0.0.1:{self._port}",
            "listeners": f"CONTROLLER://127.0.0.1:{self._port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._directory / "data"),
            "metadata.log.max.record.bytes.between.snapshots": str(2**62),
            "metadata.log.max.snapshot.interval.ms": "0",
            **settings,
        }
        path = self._directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        return path

    @contextlib.contextmanager
    def running(self, settings: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        """Run one process within the context."""
        command = java_command("kafka.Kafka", str(self._properties(settings)), heap="4g", options=OPTIMIZED)
        with (self._directory / "kafka.log").open("ab") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_for_port(self._port, process, START_TIMEOUT_S)
            yield process
        finally:
            stop(process)

    def connect(self) -> Connection:
        endpoint = Endpoint("127.0.0.1", self._port)
        return Connection.open(endpoint, ClientConfig.parse(str(endpoint), {"request.timeout.ms": "120000"}))

    def create(self, topics: int) -> None:
        connection = self.connect()
        for first in range(0, topics, TOPICS_PER_REQUEST):
            names = [f"topic-{number:06d}" for number in range(first, min(first + TOPICS_PER_REQUEST, topics))]
            wanted = [CreatableTopic(name, PARTITIONS, REPLICAS) for name in names]
            answer = connection.call(CreateTopicsRequest(wanted, 60_000), CreateTopicsResponse)
            assert all(topic.error_code == 0 for topic in answer.topics), answer.topics[0]
        connection.close()

    def await_snapshot(self, timeout_s: float = 300) -> float:
        """Return the seconds from the appearance of the next snapshot's temporary file to its rename."""
        deadline = time.monotonic() + timeout_s
        began: float | None = None
        while time.monotonic() < deadline:
            names = [path.name for path in self.log.iterdir()]
            if began is None and any(name.endswith(".checkpoint.part") for name in names):
                began = time.perf_counter()
            elif began is not None and any(name.endswith(".checkpoint") for name in names):
                return time.perf_counter() - began
            time.sleep(0.005)
        raise AssertionError(f"Apache Kafka generated no snapshot within {timeout_s} s")


class StubBrokers:
    """Registers all brokers, which a restarted controller knows already, and sends heartbeats from a thread."""

    def __init__(self, controller: KafkaController) -> None:
        self.latest_ms = 0.0
        self._controller = controller
        self._connection = controller.connect()
        self._epochs: dict[int, int] = {}
        self._ends = threading.Event()
        for broker in range(1, BROKERS + 1):
            self._epochs[broker] = self._register(broker)
        for broker in self._epochs:
            self._heartbeat(self._connection, broker)
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()
        self._connection.close()

    def leave(self, broker: int) -> float:
        """Let a broker be fenced; return the seconds until this and all resulting changes are committed."""
        connection = self._controller.connect()
        epoch = self._epochs.pop(broker)
        began = time.perf_counter()
        request = BrokerHeartbeatRequest(broker, epoch, 2**62, want_fence=True)
        answer = connection.call(request, BrokerHeartbeatResponse)
        assert answer.is_fenced, answer
        connection.close()
        return time.perf_counter() - began

    def _register(self, broker: int) -> int:
        features = {**SUPPORTED_FEATURES, **_KAFKAS_FEATURES}
        request = BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id=self._controller.cluster_id,
            incarnation_id=incarnation_of(broker),
            listeners=[Listener("PLAINTEXT", f"host-{broker}", 9000 + broker, 0)],
            features=[Feature(name, *levels) for name, levels in features.items()],
            log_dirs=[directory_of(broker)],
        )
        deadline = time.monotonic() + 300
        while True:
            answer = self._connection.call(request, BrokerRegistrationResponse)
            if not answer.error_code:
                return answer.broker_epoch
            assert time.monotonic() < deadline, answer
            time.sleep(0.2)  # no active controller yet

    def _heartbeat(self, connection: Connection, broker: int) -> None:
        request = BrokerHeartbeatRequest(broker, self._epochs[broker], 2**62)
        answer = connection.call(request, BrokerHeartbeatResponse)
        # Apache Kafka refuses a heartbeat that waited for a second; a later one succeeds, and the delay counts.
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT), answer

    def _beat(self) -> None:
        due = time.monotonic()
        while not self._ends.is_set():
            for broker in list(self._epochs):
                due += HEARTBEAT_INTERVAL_S / BROKERS
                if self._ends.wait(max(0.0, due - time.monotonic())):
                    return
                if broker in self._epochs:
                    self._heartbeat(self._connection, broker)
                    self.latest_ms = max(self.latest_ms, (time.monotonic() - due) * 1000)


def measure(topics: int) -> dict[str, Figures]:
    """Measure each side that can run here."""
    sides = {"ottla": ottla}
    reason = unavailable_reason()
    if reason is None:
        sides["kafka"] = kafka
    else:
        print(f"skipped: Apache Kafka: {reason}")
    figures = {}
    for name, run in sides.items():
        with tempfile.TemporaryDirectory() as directory:
            figures[name] = run(Path(directory), topics)
            print(name, json.dumps(figures[name]), flush=True)
    return figures


def scaled(figure: str, value: float | None) -> float | None:
    """Return a figure in the unit of its row."""
    return value / 1e6 if value is not None and figure.endswith("_bytes") else value


def main() -> None:
    """Print the figures of both sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    figures = measure(parser.parse_args().topics)
    for figure, (name, unit, _) in FIGURES.items():
        values = [f"{side} {scaled(figure, each.get(figure)):.3f}" for side, each in figures.items() if figure in each]
        print(f"{name} ({unit}): {', '.join(values)}")


if __name__ == "__main__":
    main()

"""Apache Kafka's active controller and Ottla's under the same requests, with comparable responses and records.

Kafka's controller is a controller-only process whose log is read from its file. Ottla's is the state machine behind the
routes of a controller listener, with a log in memory. Brokers exist only as requests. Values that a request takes from
a controller (epochs, topic ids, offsets) come from that controller; values that must differ are replaced by names.
"""

import asyncio
import contextlib
import dataclasses
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final, Protocol

from broker.api.serving.controller_routes import ControllerServices, controller_routes
from broker.api.serving.dispatch import Dispatcher
from broker.config.broker_config import BrokerConfig
from broker.config.load import load_config
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.state import ControllerSettings, MutationQuotaSettings
from broker.metadata.image.loader import LoaderState
from broker.metadata.image.records import MetadataRecord, VersionedRecord, decode_record
from broker.net.request import CloseConnection, ConnectionInfo, Request
from broker.quorum.description import QuorumDescription
from broker.quorum.identity import SnapshotId
from broker.quorum.messages import Request as QuorumRequest
from broker.quorum.messages import Response as QuorumResponse
from broker.runtime.controller.config_schema import KafkaConfigSchema
from broker.runtime.controller.loggers import ProcessLoggers
from protocol.api_keys import response_class
from protocol.compiler import encode_bytes
from protocol.framing import SIZE_BYTES
from protocol.headers import RequestHeader, decode_response
from protocol.messages import Message
from protocol.messages import metadata_records as records
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.create_topics import CreateTopicsResponse
from protocol.messages.describe_node import DescribeNodeRequest, DescribeNodeResponse
from protocol.primitives import ZERO_UUID, Uuid, decode_uvarint
from protocol.records.batch import HEADER_SIZE, parse_header
from tests.broker.api.metadata_harness import LiveCluster
from tests.interop.wire.harness import WireHarness
from tests.support.fakes.batches import iter_all_records
from tests.support.fakes.clock import ManualClock
from tests.support.kafka.apache_kafka import (
    START_TIMEOUT_S,
    free_ports,
    java_command,
    random_uuid_text,
    run_tool,
    stop,
    wait_for_port,
)

CONTROLLER_ID: Final = 1000
LISTENER: Final = "CONTROLLER"

Plain = object
"""A JSON value."""


class Side(Protocol):
    """A controller, and the ids and epochs of its cluster."""

    cluster_id: str
    epochs: dict[int, int]
    topic_ids: dict[str, Uuid]

    def call(self, request: Message, version: int) -> Message | None:
        """Return the response, None if the connection was closed."""
        ...

    def written(self) -> list[VersionedRecord]:
        """Return the records written since the last call, without records that only advance the log."""
        ...

    @property
    def last_offset(self) -> int:
        """Return the last offset of the log."""
        ...


Ask = Callable[[Side], Message]
"""Builds a request with the values of one controller's cluster."""


class _Known:
    """Ids and epochs that a controller's responses and records reveal."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self._epoch_names: dict[int, str] = {}
        self._id_names: dict[Uuid, str] = {}

    def record_ids(self, request: Message, answer: Message | None) -> None:
        if isinstance(request, BrokerRegistrationRequest) and isinstance(answer, BrokerRegistrationResponse):
            self._record_epoch(request.broker_id, answer)
        if isinstance(answer, CreateTopicsResponse):
            for topic in answer.topics:
                if topic.topic_id != ZERO_UUID:
                    self.topic_ids[topic.name] = topic.topic_id

    def _record_epoch(self, broker: int, answer: BrokerRegistrationResponse) -> None:
        if answer.error_code:
            return
        self.epochs[broker] = answer.broker_epoch
        lives = sum(name.startswith(f"epoch of {broker}:") for name in self._epoch_names.values())
        self._epoch_names.setdefault(answer.broker_epoch, f"epoch of {broker}: {lives + 1}")

    def record_topic_id(self, record: MetadataRecord) -> None:
        if isinstance(record, records.TopicRecord):
            self.topic_ids[record.name] = record.topic_id
            lives = sum(name.startswith(f"topic {record.name}:") for name in self._id_names.values())
            self._id_names[record.topic_id] = f"topic {record.name}: {lives + 1}"

    def plain(self, value: object, field: str = "") -> Plain:
        """Return a message without values that must differ between two controllers."""
        if dataclasses.is_dataclass(value):
            named = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            return {name: self.plain(one, name) for name, one in named.items() if name not in _LEFT_OUT}
        if isinstance(value, list):
            items = [self.plain(each, field) for each in value]
            return sorted(items, key=str) if field in _SETS else items
        if field.endswith("error_message"):
            return "some words" if value else value
        if field == "broker_epoch" and isinstance(value, int):
            return self._epoch_names.get(value, value)
        if isinstance(value, bytes) and len(value) == 16:
            return self._id_names.get(Uuid(value), "random" if field == "id" else value.hex())
        if isinstance(value, bytes | memoryview):
            return bytes(value).hex()
        return value


_SETS: Final = frozenset({"eligible_leader_replicas"})
_LEFT_OUT: Final = frozenset({"throttle_time_ms", "cluster_id"})


class Apache(_Known):
    """Apache Kafka's controller, in a process."""

    def __init__(self, port: int, log: Path, cluster_id: str) -> None:
        super().__init__()
        self.cluster_id = cluster_id
        self._harness = WireHarness(f"127.0.0.1:{port}")
        self._log = log
        self._position = 0
        self.last_offset = -1

    def call(self, request: Message, version: int) -> Message | None:
        answer = self._harness.call(request, version)
        self.record_ids(request, answer)
        return answer

    def written(self) -> list[VersionedRecord]:
        found: list[VersionedRecord] = []
        with self._log.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        end = 0
        while len(data) - end >= HEADER_SIZE and (size := parse_header(data, end).size) <= len(data) - end:
            end += size
        self._position += end
        for header, record in iter_all_records(data[:end]):
            self.last_offset = record.offset
            if not header.is_control and record.value is not None:
                found.append(VersionedRecord(decode_record(record.value), _record_version(record.value)))
        return _noted(self, found)

    def close(self) -> None:
        self._harness.close()


class Own(_Known):
    """Ottla's controller, in this process."""

    def __init__(self, settings: Mapping[str, str], *, elr: bool) -> None:
        super().__init__()
        config = load_config(None, [f"{key}={value}" for key, value in settings.items()], {})[0]
        self._cluster = _OwnCluster(config, elr=elr)
        self.cluster_id = self._cluster.settings.cluster_id
        services = ControllerServices(
            cluster_id=self.cluster_id,
            node_id=CONTROLLER_ID,
            kraft_version=lambda: 0,
            config=lambda: config,
            metadata=self._cluster,
            controller=self._cluster,
            active_controller=self._cluster,
            quorum=_NoReplica(),
            loggers=ProcessLoggers(),
            snapshots=_NoReplica(),
            node=_NoDescription(),
        )
        self._dispatch = Dispatcher(controller_routes(services), ManualClock(), _Observer())

    @property
    def last_offset(self) -> int:
        return self._cluster.controller.last_offset

    @property
    def controller(self) -> Controller:
        return self._cluster.controller

    def call(self, request: Message, version: int) -> Message | None:
        self._cluster.now_ms = time.monotonic_ns() // 1_000_000
        answer = asyncio.run(self._ask(request, version))
        self.record_ids(request, answer)
        return answer

    async def _ask(self, request: Message, version: int) -> Message | None:
        connection = ConnectionInfo("c", LISTENER, "127.0.0.1", 1)
        header = RequestHeader(request.API_KEY, version, 3, "wire")
        try:
            pending = self._dispatch(Request(header, memoryview(encode_bytes(request, version)), connection, 0))
            frame = await pending if isinstance(pending, Awaitable) else pending
        except CloseConnection:
            return None
        assert frame is not None
        return decode_response(response_class(request.API_KEY), version, b"".join(frame)[SIZE_BYTES:])[1]

    def written(self) -> list[VersionedRecord]:
        found = list(self._cluster.taken)
        self._cluster.taken.clear()
        return _noted(self, found)


class _OwnCluster(LiveCluster):
    """A controller with Kafka's configuration keys that keeps the records it writes."""

    def __init__(self, config: BrokerConfig, *, elr: bool) -> None:
        self._schema = KafkaConfigSchema(config)
        self.taken: list[VersionedRecord] = []
        settings = ControllerSettings(
            "own-cluster",
            node_id=CONTROLLER_ID,
            auto_leader_rebalance=config.auto_leader_rebalance_enable,
            session_timeout_ms=config.broker_session_timeout_ms,
            leader_imbalance_check_interval_ms=config.leader_imbalance_check_interval_seconds * 1000,
            unclean_election_interval_ms=config.unclean_leader_election_interval_ms,
            kraft_version=0,
            max_idle_interval_ms=0,
            mutation_quota=MutationQuotaSettings(
                config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
            ),
        )
        super().__init__(settings, elr=elr)

    def new_controller(self, log: LoaderState | None = None) -> Controller:
        random = Random(11)
        return Controller(
            self.settings,
            self._schema,
            random=random,
            new_id=lambda: Uuid(random.randbytes(16)),
            log=log or LoaderState(),
        )

    def append(self, records: Sequence[VersionedRecord]) -> None:
        super().append(records)
        self.taken += records


class _NoDescription:
    """A node that is never described."""

    async def describe(self, request: DescribeNodeRequest) -> DescribeNodeResponse:
        raise AssertionError(request)


class _NoReplica:
    """A quorum replica that must not be used."""

    async def handle(self, request: QuorumRequest) -> QuorumResponse:
        raise AssertionError(request)

    def describe(self) -> QuorumDescription:
        raise AssertionError

    async def generate_now(self) -> SnapshotId:
        raise AssertionError


class _Observer:
    """A request observer that counts nothing."""

    def on_request(self, api_key: int, api_version: int, elapsed_ms: float) -> None: ...

    def on_error(self, api_key: int, code: int) -> None: ...


_SETTINGS: Final = {"broker.session.timeout.ms": "600000", "auto.leader.rebalance.enable": "false"}


def _noted(side: _Known, found: list[VersionedRecord]) -> list[VersionedRecord]:
    for record in found:
        side.record_topic_id(record.message)
    return [record for record in found if not isinstance(record.message, records.NoOpRecord)]


def _record_version(frame: bytes) -> int:
    _, position = decode_uvarint(frame, 0)
    _, position = decode_uvarint(frame, position)
    return decode_uvarint(frame, position)[0]


class ControllerPair:
    """Both controllers under the same requests."""

    def __init__(self, theirs: Apache, ours: Own) -> None:
        self.theirs = theirs
        self.ours = ours
        told = theirs.call(ApiVersionsRequest("twin", "1"), 3)
        assert isinstance(told, ApiVersionsResponse)
        self._versions = {api.api_key: api.max_version for api in told.api_keys}

    def ask(self, ask: Ask, version: int | None = None) -> tuple[Plain, Plain]:
        """Return (theirs, ours): the response and the records written, as plain values.

        Without a version, use the latest one that Apache Kafka supports.
        """
        return self._outcome(self.theirs, ask, version), self._outcome(self.ours, ask, version)

    def _outcome(self, side: Apache | Own, ask: Ask, version: int | None) -> Plain:
        request = ask(side)
        answer = side.call(request, self._versions[request.API_KEY] if version is None else version)
        written = side.written()
        return {
            "answer": "closed" if answer is None else _sorted_answer(side.plain(answer)),
            "records": _in_order(side, written),
        }


def _in_order(side: _Known, written: Sequence[VersionedRecord]) -> Plain:
    """Return records with adjacent partition changes sorted, since controllers emit them in hash table order."""
    told = [(type(message).__name__, version, side.plain(message)) for message, version in written]
    ordered: list[tuple[str, int, Plain]] = []
    run: list[tuple[str, int, Plain]] = []
    for each in [*told, None]:
        if each is not None and (not run or run[0][0] == each[0]):
            run.append(each)
            continue
        ordered += sorted(run, key=repr) if run and run[0][0] in _UNORDERED else run
        run = [] if each is None else [each]
    return [list(each) for each in ordered]


_UNORDERED: Final = frozenset({"PartitionChangeRecord", "ConfigRecord", "ClientQuotaRecord", "RemoveTopicRecord"})


def _sorted_answer(value: Plain) -> Plain:
    if isinstance(value, dict):
        return {name: _sorted_answer(each) for name, each in value.items()}
    if isinstance(value, list):
        items = [_sorted_answer(each) for each in value]
        return sorted(items, key=repr) if items and isinstance(items[0], dict) else items
    return value


@contextlib.contextmanager
def controller_pair(
    directory: Path, settings: Mapping[str, str] | None = None, *, elr: bool
) -> Iterator[ControllerPair]:
    """Start a fresh cluster of each implementation that holds only its controller's first records."""
    (port,) = free_ports(1)
    directory.mkdir(parents=True, exist_ok=True)
    cluster_id = random_uuid_text()
    settings = {**_SETTINGS, **(settings or {})}
    config = {
        "process.roles": "controller",
        "node.id": str(CONTROLLER_ID),
        "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{port}",
        "listeners": f"{LISTENER}://127.0.0.1:{port}",
        "controller.listener.names": LISTENER,
        "log.dirs": str(directory / "data"),
        "metadata.max.idle.interval.ms": "0",
        **settings,
    }
    properties = directory / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    features = [] if elr else ["--feature", "eligible.leader.replicas.version=0"]
    run_tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties), *features)
    with (directory / "kafka.log").open("wb") as output:
        process = subprocess.Popen(
            java_command("kafka.Kafka", str(properties), heap="512m"), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_for_port(port, process)
        log = directory / "data" / "__cluster_metadata-0" / "00000000000000000000.log"
        theirs = Apache(port, log, cluster_id)
        _wait_registered(theirs)
        ours = Own(settings, elr=elr)
        ours.written()
        yield ControllerPair(theirs, ours)
        theirs.close()
    finally:
        stop(process)


def _wait_registered(theirs: Apache) -> None:
    """Wait for the registration that Kafka's controller writes soon after the first records."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not any(isinstance(record.message, records.RegisterControllerRecord) for record in theirs.written()):
        assert time.monotonic() < deadline, "Apache Kafka's controller has not become active"
        time.sleep(0.05)

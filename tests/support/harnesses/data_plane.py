"""The data plane of one broker in memory: partitions over a memory file system, a manual loop and a manual clock.

Used by the tests of partitions and of the APIs that read and write them.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Generic, TypeVar, cast

from broker.api.pipeline.quota import FetchQuota
from broker.api.records.fetch import FetchHandler
from broker.api.serving.context import RequestContext
from broker.clock import Clock
from broker.fetch.quota import LeaderQuota
from broker.fetch.remote_reads.reads import RemoteReads
from broker.fetch.replica_selector import RackAwareReplicaSelector
from broker.fetch.service import FetchService
from broker.fetch.sessions import FetchSessions
from broker.metadata.image.loader import MetadataLoader, RecordBatch
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import UNASSIGNED_DIRECTORY
from broker.metadata.image.records import MetadataRecord
from broker.net.request import ConnectionInfo, Request
from broker.runtime.controller.driver import MetadataPublisher
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.loop.waiters import Deadlines
from broker.runtime.partitions.alter_partition_manager import AlterPartitionManager
from broker.runtime.partitions.broker_view import MetadataBrokerView
from broker.runtime.partitions.hosted_follower import HostedFollower
from broker.runtime.partitions.hosted_roles import HostedRoles
from broker.runtime.partitions.log_flusher import LogFlusher
from broker.runtime.partitions.log_operations import StoredLogOperations
from broker.runtime.partitions.log_store import LogStore
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.registry import Partitions
from broker.runtime.partitions.replica_assignments import ReplicaAssignments
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from protocol.messages.metadata_records import (
    BrokerEndpoint,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.primitives import Uuid
from protocol.records.builder import Record, build_batch
from storage.compaction.cleaner import LogCleaner
from storage.config import LogConfig
from storage.directories.log_dir import LogDir
from storage.directories.log_dirs import LogDirs
from storage.directories.removals import PendingRemovals
from storage.files import FileSystem
from storage.log import Log
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.memory_files import MemoryFileSystem, checked
from tests.support.fakes.runtimes import make_runtime
from tests.support.fakes.transaction_coordinators import FakeCoordinators, make_verifier

LISTENER = "PLAINTEXT"
BROKER_ID = 1
DIRECTORY = "/data"

A = TypeVar("A")


def topic_id(number: int) -> Uuid:
    return Uuid(bytes([0xBB]) + number.to_bytes(15, "big"))


def directory_id(path: str) -> Uuid:
    return Uuid(bytes([0xDD]) + path.encode().rjust(15, b"\0"))


def batch(
    *values: bytes,
    timestamp: int = 1_700_000_000_000,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Return a producer's batch with one record per value."""
    records = [Record(timestamp, b"key", value) for value in values or (b"value",)]
    return bytearray(
        build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


class RecordedFetchers:
    """A FetcherManager that records its calls: (partition, leader, epoch), or (partition, None, None) for unfollow."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int | None, int | None]] = []

    def follow(self, partition: HostedFollower) -> None:
        self.calls.append((str(partition), partition.leader_id, partition.leader_epoch))

    def unfollow(self, partition: HostedFollower) -> None:
        self.calls.append((str(partition), None, None))

    def take(self) -> list[tuple[str, int | None, int | None]]:
        """Return the calls since the last `take`."""
        calls, self.calls = self.calls, []
        return calls


class FakeController:
    """A controller that keeps AlterPartition requests `under_way` until the test answers. `epoch` is this broker's."""

    def __init__(self, loop: ManualLoop, epoch: int = 1) -> None:
        self.epoch = BrokerEpoch(epoch)
        self._loop = loop
        self.under_way: list[tuple[AlterPartitionRequest, asyncio.Future[AlterPartitionResponse]]] = []

    def alter_partitions(self, request: AlterPartitionRequest) -> "asyncio.Future[AlterPartitionResponse]":
        future: asyncio.Future[AlterPartitionResponse] = self._loop.create_future()
        self.under_way.append((request, future))
        return future

    def take(self) -> tuple[AlterPartitionRequest, "asyncio.Future[AlterPartitionResponse]"]:
        """Return the only request under way."""
        self._loop.run_soon()
        ((request, future),) = self.under_way
        self.under_way = []
        return request, future

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> list[list[int]]:
        """Answer all partitions of the request under way alike: with an error, or by confirming the proposed ISR.

        Returns the proposed members, partition by partition.
        """
        request, future = self.take()
        wanted = []
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                isr = [member.broker_id for member in asked.new_isr_with_epochs]
                wanted.append(isr)
                answers.append(
                    AlterPartitionResponsePartitionData(
                        asked.partition_index,
                        error,
                        leader_id=BROKER_ID,
                        leader_epoch=asked.leader_epoch,
                        isr=[] if error else isr,
                        partition_epoch=asked.partition_epoch + 1,
                    )
                )
            topics.append(AlterPartitionResponseTopicData(topic.topic_id, answers))
        future.set_result(AlterPartitionResponse(topics=topics))
        self._loop.run_soon()
        return wanted


class DataPlane:
    """The data plane of broker 1; other brokers exist in the metadata only.

    `fs` is the memory file system of a former instance, for a restart; `files` replaces it by a real one, for
    benchmarks.
    """

    def __init__(
        self,
        *,
        directories: Sequence[str] = (DIRECTORY,),
        fs: MemoryFileSystem | None = None,
        files: FileSystem | None = None,
        slots: int = 10,
        loop: ManualLoop | None = None,
    ) -> None:
        self.loop = loop or ManualLoop()
        self.clock = ManualClock()
        self.memory = fs or MemoryFileSystem()
        self.fs: FileSystem = checked(self.memory) if files is None else files
        self.io = InlineIo(self.loop)
        self.deadlines = Deadlines(self.loop)
        self.failed_directories: list[str] = []
        self.log_dirs = LogDirs.open(self.fs, directories, self._on_directory_failure)
        ids = iter([directory_id(path) for path in directories])
        self.log_dirs.adopt("test-cluster", BROKER_ID, lambda: next(ids))
        self.default_config = LogConfig(message_timestamp_after_max_ms=2**63 - 1)
        self.configs: dict[str, LogConfig] = {}
        self.log_dirs.load(self._config_of_topic, now_ms=self.clock.now_ms())
        self.removals = PendingRemovals(self.fs)
        self.cleaner = LogCleaner(
            self.fs, dedupe_buffer_bytes=1_000_000, make_durable=self.log_dirs.checkpoints.make_durable
        )
        self.store = LogStore(self.log_dirs, self.cleaner, self.removals, self.io, self.clock, delete_delay_ms=60_000)
        self.flusher = LogFlusher(self.io, self.deadlines)
        self.metadata = MetadataCache()
        self.fetchers = RecordedFetchers()
        self.controller = FakeController(self.loop)
        self.alter_partition_manager = AlterPartitionManager(
            BrokerId(BROKER_ID), self.controller, self.controller, self.loop
        )
        self.partitions = Partitions(
            self.metadata,
            self.clock,
            MetadataBrokerView(BrokerId(BROKER_ID), self.metadata, lag_time_max_ms=30_000),
            StoredLogOperations(self.store, self.flusher, self.loop),
            HostedRoles(BROKER_ID, self.fetchers, self.alter_partition_manager, self.metadata),
        )
        self.assignments = ReplicaAssignments(
            BROKER_ID, self.partitions, self.store, lambda image, topic: self._config_of_topic(topic)
        )
        session_ids = count(1)
        self.sessions = FetchSessions(slots, lambda: next(session_ids))
        self.runtime = make_runtime(self.loop, clock=self.clock, io=self.io, files=self.fs, deadlines=self.deadlines)
        self.coordinators = FakeCoordinators()
        self.verifier = make_verifier(self.runtime, lambda: self.image, self.coordinators)
        self.publishers: list[MetadataPublisher] = [self.metadata, self.assignments]
        self._loader = MetadataLoader()
        self._topics = count(1)
        self.register_broker(BROKER_ID)

    def fetch_handler(
        self,
        *,
        max_bytes: int = 1_000_000,
        clock: Clock | None = None,
        metadata_topic: ClusterMetadataTopic | None = None,
        replica_selector: RackAwareReplicaSelector | None = None,
        quota: LeaderQuota | None = None,
        remote_reads: RemoteReads | None = None,
        client_quota: FetchQuota | None = None,
    ) -> FetchHandler:
        """Build a Fetch handler over the partitions and the session cache of this plane."""
        return FetchHandler(
            FetchService(
                self.partitions,
                self.sessions,
                self.runtime if clock is None else replace(self.runtime, clock=clock),
                max_bytes=max_bytes,
                metadata_topic=metadata_topic,
                replica_selector=replica_selector,
                quota=quota,
                remote_reads=remote_reads,
            ),
            client_quota,
        )

    def _config_of_topic(self, topic: str) -> LogConfig:
        return self.configs.get(topic, self.default_config)

    def _on_directory_failure(self, directory: LogDir, lost: Sequence[Log]) -> None:
        self.failed_directories.append(directory.path)
        self.loop.call_soon(self.partitions.on_directory_failed, directory, lost)

    # ---- metadata

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def apply(self, *records: MetadataRecord) -> None:
        """Commit records of the metadata log and publish them."""
        first = self._loader.state.last_offset + 1
        publication = self._loader.load(
            [RecordBatch(first, first + len(records) - 1, LeaderEpoch(1), self.clock.now_ms(), list(records))]
        )
        for publisher in self.publishers:
            publisher.on_metadata(publication.delta, publication.image)
        self.loop.run_soon()

    def register_broker(self, broker: int, *, fenced: bool = False, epoch: int = 1) -> None:
        endpoint = BrokerEndpoint(name=LISTENER, host=f"host-{broker}", port=9000 + broker, security_protocol=0)
        self.apply(
            RegisterBrokerRecord(
                broker_id=broker, broker_epoch=epoch, end_points=[endpoint], rack=f"rack-{broker}", fenced=fenced
            )
        )

    def create_topic(
        self,
        name: str = "t",
        partitions: int = 1,
        *,
        replicas: Sequence[int] = (BROKER_ID,),
        isr: Sequence[int] | None = None,
        leader: int = BROKER_ID,
        config: LogConfig | None = None,
        directory: Uuid = UNASSIGNED_DIRECTORY,
    ) -> Uuid:
        """Create a topic whose partitions have the same replicas; return its id."""
        if config is not None:
            self.configs[name] = config
        identity = topic_id(next(self._topics))
        self.apply(
            TopicRecord(name=name, topic_id=identity),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=identity,
                    replicas=list(replicas),
                    isr=list(isr or replicas),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[directory] * len(replicas),
                )
                for index in range(partitions)
            ),
        )
        return identity

    def delete_topic(self, identity: Uuid) -> None:
        self.apply(RemoveTopicRecord(topic_id=identity))

    def elect(self, identity: Uuid, leader: int, *, index: int = 0) -> None:
        """Begin a new leader epoch."""
        self.apply(PartitionChangeRecord(topic_id=identity, partition_id=index, leader=leader))

    def change_isr(self, identity: Uuid, *isr: int, index: int = 0) -> None:
        self.apply(PartitionChangeRecord(topic_id=identity, partition_id=index, isr=list(isr)))

    # ---- partitions

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.partitions.by_name[topic].partitions[index]

    def produce(self, *values: bytes, topic: str = "t", index: int = 0) -> int:
        """Append a batch as a client would; return its base offset."""
        return self.partition(topic, index).append(batch(*values), 1).first_offset

    # ---- requests

    def context(self, version: int, *, client_id: str = "client") -> RequestContext:
        connection = ConnectionInfo("connection", LISTENER, "127.0.0.1", 50_000)
        header = RequestHeader(0, version, 1, client_id)
        request = Request(header, memoryview(b""), connection, self.clock.now_ms())
        return RequestContext(version, client_id, connection, request)

    def run(self, handled: Coroutine[Any, Any, A]) -> "Answer[A]":
        """Run a handler on the loop of this plane, as far as it gets without waiting."""
        task = asyncio.Task(handled, loop=cast(asyncio.AbstractEventLoop, self.loop))
        self.loop.run_soon()
        return Answer(task)

    def advance_ms(self, milliseconds: int) -> None:
        """Advance the wall clock and the loop."""
        self.clock.advance_ms(milliseconds)
        self.loop.advance(milliseconds / 1000)


class Answer(Generic[A]):
    """The response of a handler: immediate, or in a future."""

    def __init__(self, returned: A | Awaitable[A | None] | None) -> None:
        self._returned = returned

    @property
    def is_waiting(self) -> bool:
        return isinstance(self._returned, asyncio.Future) and not self._returned.done()

    @property
    def value(self) -> A:
        if isinstance(self._returned, asyncio.Future):
            return cast(A, self._returned.result())
        return cast(A, self._returned)

    def cancel(self) -> None:
        """Cancel the response, as for a lost connection."""
        assert isinstance(self._returned, asyncio.Future)
        self._returned.cancel()

"""Harness of brokers with RemoteLogManagers over logs in memory that share remote storage and its metadata.

For tests of copying, expiration and removal: the test assigns roles, replication is explicit (`replicate`), and time is
that of a `FastForwardLoop`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

from broker.metrics.remote_storage import RemoteStorageMetrics
from broker.runtime.loop.loop_slices import LoopSlices
from broker.runtime.loop.thread_pool import WorkPool
from broker.runtime.loop.throttle import Throttle
from broker.runtime.remote_log.compaction import CompactionTools
from broker.runtime.remote_log.copying import CopyQuota, CopyTools
from broker.runtime.remote_log.expiration import ExpirationTools
from broker.runtime.remote_log.leadership_term import TieredReplica
from broker.runtime.remote_log.log_starts import LogStarts, NoLogStarts
from broker.runtime.remote_log.manager import RemoteLogManager
from broker.runtime.remote_log.segments import RemoteSegments
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.builder import Record, build_batch
from storage.config import LogConfig
from storage.directories.checkpoints import TopicPartition
from storage.directories.log_dirs import LogDirs
from storage.errors import LogDirFailure
from storage.log import Log
from storage.retention import Expired, delete_old_segments
from storage.tiered.remote_storage import RemoteStorageManager
from storage.tiered.segment_metadata import PartitionDeleteState, RemoteSegment, SegmentState, TopicIdPartition
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.memory_remote_metadata import MemoryRemoteMetadata, RemoteMetadataLog
from tests.support.fakes.shared_remote_storage import DelayedPool, SharedRemoteStorage

TOPIC = "t"
TOPIC_ID = Uuid(bytes(15) + b"\x01")
EPOCH_MS = 1_700_000_000_000
TIERED = LogConfig(
    remote_storage_enable=True, retention_ms=-1, retention_bytes=-1, index_interval_bytes=100, file_delete_delay_ms=0
)
SETTINGS = RemoteLogSettings(task_interval_ms=1_000, remover_interval_ms=1_000, grace_ms=60_000)


class LoopClock:
    """Clock with the running loop's time."""

    def now_ms(self) -> int:
        return EPOCH_MS + round((asyncio.get_running_loop().time() - 1000) * 1000)

    def monotonic_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000


class HarnessReplica:
    """A partition whose role the test sets."""

    def __init__(self, log: Log, topic_id: Uuid = TOPIC_ID) -> None:
        self.topic = log.topic
        self.topic_id = topic_id
        self.index = log.partition
        self.log = log
        self.is_leader = False
        self.leader_epoch = -1
        self.is_truncating = False
        self.starts: list[int] = []
        self.failures: list[LogDirFailure] = []

    def on_log_start_moved(self) -> None:
        self.starts.append(self.log.log_start_offset)

    def offline(self, failure: LogDirFailure) -> None:
        """Note the failure; the test takes the replica away, if it wants to."""
        self.failures.append(failure)

    def low_watermark(self) -> int:
        """Return the low watermark; followers are up to date unless a test says otherwise."""
        return self.log.log_start_offset

    @property
    def id(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.topic, self.index)


class Bucket:
    """Storage and metadata shared by brokers. `topics` are the existing ones."""

    def __init__(self) -> None:
        self.metadata = RemoteMetadataLog()
        self.storage = SharedRemoteStorage()
        self.topics: set[Uuid] = {TOPIC_ID}

    def segments(self, state: SegmentState | None = None, partition: int = 0) -> list[RemoteSegment]:
        cache = self.metadata.cache(TopicIdPartition(TOPIC_ID, TOPIC, partition))
        return [one for one in cache.segments() if state is None or one.state is state]

    def ranges(self, state: SegmentState = SegmentState.COPY_FINISHED, partition: int = 0) -> list[tuple[int, int]]:
        return [(one.start_offset, one.end_offset) for one in self.segments(state, partition)]

    def states(self) -> list[str]:
        """Return every applied event as a short text."""
        states = []
        for event in self.metadata.events:
            base = f" {event.start_offset}-{event.end_offset}" if isinstance(event, RemoteSegment) else ""
            states.append(f"{event.state.name}{base}")
        return states

    def orphans(self) -> set[Uuid]:
        """Return the objects without metadata."""
        known = {one.id.id for cache in self.metadata.caches.values() for one in cache.segments()}
        return set(self.storage.stored) - known


class Catalog:
    """RemoteCatalog of the broker that leads the metadata partitions; others are empty."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.is_led = True

    def held(self) -> Iterable[tuple[TopicIdPartition, PartitionDeleteState | None]]:
        if not self.is_led:
            return []
        caches = self._bucket.metadata.caches.values()
        return [
            (cache.partition, None if cache.deletion is None else cache.deletion.state)
            for cache in caches
            if not cache.is_empty
        ]


class Broker:
    """One node. `start` creates a manager that runs until `crash` or `stop`; disks outlive both."""

    def __init__(
        self,
        bucket: Bucket,
        number: int = 1,
        *,
        settings: RemoteLogSettings = SETTINGS,
        upload_s: Callable[[], float] = lambda: 0.5,
        log_starts: LogStarts | None = None,
        storage: RemoteStorageManager | None = None,
        answer_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`storage` is the broker's remote storage, the bucket's by default; `answer_s` delays its results."""
        self.bucket = bucket
        self.storage: RemoteStorageManager = storage or bucket.storage
        self.id = number
        self.settings = settings
        self.fs = MemoryFileSystem()
        self.clock = LoopClock()
        self.random = Random(number)
        self.dedupe_buffer_bytes = 1 << 20
        self.config = TIERED
        self.log_starts = log_starts or NoLogStarts()
        self._upload_s = upload_s
        self._answer_s = answer_s
        self._ids = 0
        self.replicas: dict[int, HarnessReplica] = {}
        self.catalog = Catalog(bucket)
        self._running: asyncio.Task[None] | None = None
        self.is_up = False
        self.metadata_of: Callable[[RemoteMetadataLog], MemoryRemoteMetadata] = MemoryRemoteMetadata
        self.make_copy_pool: Callable[[], WorkPool] | None = None

    # ---- lifecycle

    def start(self) -> "Broker":
        self.fs.locked.clear()
        self.dirs = LogDirs.open(self.fs, ["d"], lambda directory, logs: None)
        self.dirs.load(lambda topic: self.config, now_ms=self.clock.now_ms())
        self.replicas = {log.partition: HarnessReplica(log) for log in self.dirs}
        self.metadata = self.metadata_of(self.bucket.metadata)
        self.copy_pool = DelayedPool(self._upload_s, self._answer_s)
        copy_pool: WorkPool = self.copy_pool if self.make_copy_pool is None else self.make_copy_pool()
        self.pool = DelayedPool(lambda: 0.01, self._answer_s)
        self.metrics = RemoteStorageMetrics()
        self.tools = self._copy_tools(copy_pool)
        self.compaction = self._compaction_tools()
        self.manager = RemoteLogManager(
            self,
            self.metadata,
            self.catalog,
            self.tools,
            self._expiration_tools(),
            self.metrics,
            asyncio.get_running_loop(),
            self.compaction,
        )
        self._running = asyncio.ensure_future(self.manager.run())
        self.is_up = True
        return self

    def _segments(self, pool: WorkPool) -> RemoteSegments:
        return RemoteSegments(BrokerId(self.id), self.metadata, self.storage, pool, self.clock, self.metrics)

    def _copy_tools(self, pool: WorkPool) -> CopyTools:
        return CopyTools(
            self.fs,
            self._segments(pool),
            CopyQuota(self.clock, lambda: self.settings, self.metrics),
            self.clock,
            lambda: self.settings,
            self._new_id,
            self.random.random,
        )

    def _expiration_tools(self) -> ExpirationTools:
        return ExpirationTools(
            self._segments(self.pool),
            self.pool,
            self.log_starts,
            self._remember_start,
            self.clock,
            lambda: self.settings,
            self.random.random,
            lambda: (*self.tools.copying.values(), *self.compaction.compacting.values()),
            LoopSlices(self.clock),
        )

    def _compaction_tools(self) -> CompactionTools:
        return CompactionTools(
            fs=self.fs,
            directory="compaction",
            storage=self.storage,
            segments=self._segments(self.pool),
            pool=self.pool,
            quota=CopyQuota(self.clock, lambda: self.settings, self.metrics),
            throttle=Throttle(self.clock, lambda: 1e12),
            dedupe_buffer_bytes=self.dedupe_buffer_bytes,
            load_factor=1.0,
            clock=self.clock,
            settings=lambda: self.settings,
            new_id=self._new_id,
            random=self.random.random,
            metrics=self.metrics,
        )

    def _new_id(self) -> Uuid:
        self._ids += 1
        return Uuid(self.id.to_bytes(8, "big") + self._ids.to_bytes(8, "big"))

    def _remember_start(self, log: Log) -> "asyncio.Future[None]":
        self.dirs.checkpoints.write_log_starts()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    @property
    def has_ended(self) -> bool:
        """Whether the manager is not running."""
        return self._running is None or self._running.done()

    @property
    def failure(self) -> BaseException | None:
        """Return the error that ended the manager."""
        return None if self._running is None or not self._running.done() else self._running.exception()

    async def crash(self) -> None:
        """Crash: running work has no effect any more, written data stay."""
        self.copy_pool.is_dead = self.pool.is_dead = True
        self.is_up = False
        await self._end()

    async def give_up(self) -> None:
        """End the broker at the end of a test, whatever its outcome."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _end(self) -> None:
        assert self._running is not None
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    async def stop(self) -> None:
        await self.manager.finish()
        self.is_up = False
        await self._end()

    # ---- HostedReplicas

    def all(self) -> Iterable[TieredReplica]:
        return list(self.replicas.values())

    def of_topic(self, topic_id: Uuid) -> Iterable[TieredReplica]:
        return [replica for replica in self.replicas.values() if replica.topic_id == topic_id]

    def has_topic(self, topic_id: Uuid) -> bool:
        return topic_id in self.bucket.topics

    # ---- events

    def replica(self, index: int = 0) -> HarnessReplica:
        """Return a replica; create it if necessary."""
        if index not in self.replicas:
            partition = TopicPartition(TOPIC, index)
            log = self.dirs.create(partition, self.config, now_ms=self.clock.now_ms(), topic_id=TOPIC_ID)
            self.replicas[index] = HarnessReplica(log)
        return self.replicas[index]

    def lead(self, epoch: int, index: int = 0) -> HarnessReplica:
        replica = self.replica(index)
        replica.is_leader, replica.leader_epoch = True, epoch
        replica.log.assign_epoch(LeaderEpoch(epoch))
        self.manager.on_leadership_change([replica], [])
        return replica

    def follow(self, epoch: int, index: int = 0) -> HarnessReplica:
        replica = self.replica(index)
        replica.is_leader, replica.leader_epoch = False, epoch
        self.manager.on_leadership_change([], [replica])
        return replica

    def configure(self, **changes: object) -> None:
        self.config = replace(self.config, **changes)  # type: ignore[arg-type]
        for replica in self.replicas.values():
            replica.log.config = self.config
            self.manager.on_role(replica)

    def unhost(self, index: int = 0) -> None:
        """Remove a replica, as after a deletion or reassignment."""
        replica = self.replicas.pop(index)
        self.manager.on_role(replica)
        self.dirs.delete(TopicPartition(TOPIC, index))

    def fill(self, segments: int, *, index: int = 0, records: int = 10, size: int = 20, commit: bool = True) -> Log:
        """Append committed, closed segments on the leader."""
        replica = self.replica(index)
        for _ in range(segments):
            data = build_batch([Record(self.clock.now_ms(), b"k", b"v" * size)] * records)
            replica.log.append_as_leader(bytearray(data), LeaderEpoch(replica.leader_epoch), now_ms=self.clock.now_ms())
            replica.log.roll(self.clock.now_ms())
        if commit:
            replica.log.advance_high_watermark(replica.log.log_end_offset)
        return replica.log

    def retain(self, index: int = 0) -> list[Expired]:
        """Apply local retention."""
        log = self.replica(index).log
        if not self.dirs.checkpoints.covers_log_start(log):
            self.dirs.checkpoints.write_log_starts()
        return delete_old_segments(log, self.clock.now_ms())


def replicate(source: Log, target: Log, now_ms: int) -> None:
    """Copy all local records of `source` that `target` lacks, and its watermarks."""
    target.truncate_to(min(target.log_end_offset, source.log_end_offset), now_ms=now_ms)
    while target.log_end_offset < source.log_end_offset:
        found = source.read(target.log_end_offset, 10_000, source.log_end_offset)
        target.append_as_follower(bytes(found.data), now_ms=now_ms)
    target.follow_high_watermark(source.high_watermark)
    target.maybe_increment_log_start_offset(min(source.log_start_offset, target.high_watermark))

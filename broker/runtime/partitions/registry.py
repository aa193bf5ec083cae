"""The partitions that this node hosts, kept as the metadata has them.

Handlers look a partition up by topic name or id and work on it directly; what they need to say about one that is not
here, `absence` tells them. Metadata updates are applied in Kafka's order: deletions, then leaders, then followers.

A log that has to be created is created on the IO thread, and its partition appears when that is done; until then
clients are told NOT_LEADER_OR_FOLLOWER and come again. The metadata may change meanwhile: what counts is the assignment
at the moment when the log is there.

A failed disk takes all partitions of its directory offline, until a restart. They are not created anew elsewhere, or a
replica would forget what it has acknowledged.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from broker.clock import Clock
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.topic_image import TopicDelta, TopicImage, TopicsDelta
from broker.metrics.replicas import ReplicaFigures
from broker.metrics.topics import BrokerTopicMetrics
from broker.replication.isr import IsrProposal
from broker.replication.leader import LeaderRole
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.loop.waiters import Loop
from broker.runtime.partitions.fetcher_assignments import FetcherAssignments, FetcherManager
from broker.runtime.partitions.log_flusher import LogFlusher
from broker.runtime.partitions.log_store import LogStore
from broker.runtime.partitions.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Uuid
from storage.config import LogConfig
from storage.directories.log_dir import LogDir, NoLogDir
from storage.errors import LogDirFailure
from storage.log import Log
from storage.tier_start import TierStart

PartitionKey = tuple[Uuid, int]


@dataclass(slots=True)
class HostedTopic:
    """The partitions of one topic that are hosted here, by index."""

    name: str
    id: Uuid
    partitions: dict[int, Partition] = field(default_factory=dict)


class PartitionListener(Protocol):
    """Someone who lives on hosted partitions, such as a coordinator; told after the metadata publishers."""

    def on_hosted(self, partition: Partition) -> None:
        """A partition is in service, in the role that it has now. It may come later than the metadata of it."""


class LogStartSeeker(Protocol):
    """Finds out where empty logs go on that are about to be led."""

    def seek(self, partition: Partition) -> None:
        """Later, and as long as the partition waits for it."""


class IsrProposals(Protocol):
    """The way of proposed in-sync sets to the controller; what becomes of one, the partition is told."""

    def propose(self, proposer: Partition, proposal: IsrProposal) -> None: ...

    def withdraw(self, proposer: Partition) -> None: ...


class Partitions:
    """All hosted partitions. Install as a metadata publisher after the cache, before whoever uses partitions.

    `config_of(image, topic)` gives a topic's log configuration. `on_directory_failed` is to be told of every log
    directory that goes offline (`DirectoryFailures.listen`); whether the node can go on is decided elsewhere.
    `followers` fetches for the replicas that other brokers lead; `isr` takes proposals for those led from here.
    """

    def __init__(
        self,
        broker_id: int,
        store: LogStore,
        flusher: LogFlusher,
        clock: Clock,
        metadata: MetadataCache,
        config_of: Callable[[MetadataImage, str], LogConfig],
        loop: Loop,
        followers: FetcherManager,
        isr: IsrProposals,
        *,
        lag_time_max_ms: int,
    ) -> None:
        self.traffic = BrokerTopicMetrics()
        self.figures = ReplicaFigures()
        self._broker_id = broker_id
        self._store = store
        self._flusher = flusher
        self._clock = clock
        self._metadata = metadata
        self._config_of = config_of
        self._loop = loop
        self._followings = FetcherAssignments(broker_id, followers, metadata)
        self._isr = isr
        self._replicated: dict[Partition, None] = {}
        self._lag_time_max_ms = lag_time_max_ms
        self._creating: set[tuple[str, int]] = set()
        """By name, since a topic that follows a deleted one of its name gets the same directory."""
        self._all_created: asyncio.Future[None] | None = None
        self._offline: set[PartitionKey] = set()
        self._listeners: list[PartitionListener] = []
        self._seeker: LogStartSeeker | None = None
        self.by_name: dict[str, HostedTopic] = {}
        self.by_id: dict[Uuid, HostedTopic] = {}

    # ---- looking up

    @property
    def image(self) -> MetadataImage:
        """The metadata as this node has it."""
        return self._metadata.image

    def all(self) -> Iterator[Partition]:
        """Every partition in service. Over a copy of the topics: they may change while a caller pauses."""
        for topic in tuple(self.by_id.values()):
            yield from tuple(topic.partitions.values())

    @property
    def replicated(self) -> Collection[Partition]:
        """The partitions led from here that have followers."""
        return self._replicated.keys()

    def is_in_service(self, partition: Partition) -> bool:
        """Whether the partition is still hosted: it may have been deleted, or lost its disk."""
        return self._find(partition.topic_id, partition.index) is partition

    def hosted(self, topic: str, index: int) -> Partition:
        """The partition of a topic by name. Raises KafkaError with the reason if it is not here."""
        hosted = self.by_name.get(topic)
        partition = None if hosted is None else hosted.partitions.get(index)
        if partition is None:
            raise KafkaError(self.absence(self.image.topics.by_name(topic), index))
        return partition

    def absence(self, topic: TopicImage | None, index: int) -> ErrorCode:
        """Why a partition is not in service here."""
        if topic is None or topic.partition(index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic.id, index) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def offline_count(self) -> int:
        """Assigned replicas whose log directory failed."""
        return len(self._offline)

    def add_listener(self, listener: PartitionListener) -> None:
        self._listeners.append(listener)

    def use_tier(self, seeker: LogStartSeeker) -> None:
        """There is remote storage. To be said before the metadata assigns anything."""
        self._seeker = seeker

    def begin_leaving(self) -> None:
        """This node is on its way out: where the controller takes it from an in-sync set, it stops to follow."""
        self._followings.is_leaving = True

    # ---- following the metadata

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Host what is assigned to this node, in the role that is assigned, and nothing else."""
        if delta.topics is not None:
            self._delete_topics(delta.topics)
            for topic in delta.topics.changed.values():
                self._change_topic(topic)
        if delta.brokers is not None:
            self._followings.on_brokers(delta.brokers)
        if delta.configs is not None:
            resources = delta.configs.changed_resources
            if any(resource.type == ResourceType.BROKER for resource in resources):
                self._configure(self.by_name)
            else:
                self._configure([resource.name for resource in resources if resource.type == ResourceType.TOPIC])

    def _delete_topics(self, topics: TopicsDelta) -> None:
        for topic_id, image in topics.deleted.items():
            for index in image.partitions:
                self._unhost(topic_id, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _change_topic(self, topic: TopicDelta) -> None:
        """Leaders before followers: they are what clients wait for."""
        mine = {}
        for index, registration in topic.changed_partitions.items():
            if self._broker_id in registration.replicas:
                mine[index] = registration
            else:
                self._unhost(topic.id, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for index in sorted(mine, key=lambda index: mine[index].leader != self._broker_id):
            self._assign(topic.name, topic.id, index, mine[index])

    def _assign(self, name: str, topic_id: Uuid, index: int, registration: PartitionRegistration) -> None:
        partition = self._find(topic_id, index)
        if partition is not None:
            partition.assign(registration)
        elif (name, index) not in self._creating and (topic_id, index) not in self._offline:
            self._begin_hosting(name, topic_id, index, registration)

    async def wait_created(self) -> None:
        """Return when no log is being created any more; at once if none is. Cancelling a waiter disturbs no other."""
        if self._creating:
            if self._all_created is None:
                self._all_created = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._all_created)

    def _note_created(self) -> None:
        if not self._creating and self._all_created is not None:
            self._all_created.set_result(None)
            self._all_created = None

    def _begin_hosting(self, name: str, topic_id: Uuid, index: int, registration: PartitionRegistration) -> None:
        log = self._store.find(name, index)
        config = self._config_of(self.image, name)
        if log is not None and log.topic_id == topic_id:
            log.config = config
            self._host(name, topic_id, index, log, registration)
            return
        if log is not None:
            self._store.set_aside(log)
        directory_id = registration.directory_of(self._broker_id)
        if not self._store.may_create(directory_id):
            self._offline.add((topic_id, index))
            return
        self._creating.add((name, index))
        created = self._store.create(name, index, topic_id, config, directory_id)
        created.add_done_callback(partial(self._on_created, name, topic_id, index))

    def _on_created(self, name: str, topic_id: Uuid, index: int, created: "asyncio.Future[Log]") -> None:
        """The log is there; by now the partition may be assigned differently, or be gone."""
        error = created.exception()
        if isinstance(error, LogDirFailure | NoLogDir):
            self._offline.add((topic_id, index))
        else:
            self._put_to_use(name, topic_id, index, created.result())
        self._creating.remove((name, index))
        self._host_successor(name, index)
        self._note_created()

    def _host_successor(self, name: str, index: int) -> None:
        """While the log was being created its topic may have been deleted, and another of the same name have come."""
        topic = self.image.topics.by_name(name)
        registration = None if topic is None else topic.partition(index)
        if topic is not None and registration is not None and self._broker_id in registration.replicas:
            self._assign(name, topic.id, index, registration)

    def _put_to_use(self, name: str, topic_id: Uuid, index: int, log: Log) -> None:
        registration = self.image.topics.partition(topic_id, index)
        if registration is None or self._broker_id not in registration.replicas:
            self._store.delete(log)
            return
        log.config = self._config_of(self.image, name)
        self._host(name, topic_id, index, log, registration)

    def _host(self, name: str, topic_id: Uuid, index: int, log: Log, registration: PartitionRegistration) -> None:
        topic = self.by_id.get(topic_id)
        if topic is None:
            topic = HostedTopic(name, topic_id)
            self.by_id[topic_id] = self.by_name[name] = topic
        traffic = self.traffic.topic(name)
        partition = Partition.open(name, topic_id, index, log, registration, self, traffic)
        topic.partitions[index] = partition
        self._note_role(partition, is_new_reign=True)
        for listener in self._listeners:
            listener.on_hosted(partition)

    def _unhost(self, topic_id: Uuid, index: int, error: ErrorCode) -> None:
        """Stop hosting a replica, and delete its log."""
        self._offline.discard((topic_id, index))
        partition = self._remove(topic_id, index)
        if partition is not None:
            partition.close(error)
            self._store.delete(partition.log)

    def _remove(self, topic_id: Uuid, index: int) -> Partition | None:
        topic = self.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.pop(index, None)
        if partition is not None:
            self._followings.drop(partition)
            self._replicated.pop(partition, None)
        if topic is not None and not topic.partitions:
            del self.by_id[topic_id]
            if self.by_name.get(topic.name) is topic:
                del self.by_name[topic.name]
                self.traffic.remove(topic.name)
        return partition

    def _find(self, topic_id: Uuid, index: int) -> Partition | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def _configure(self, names: Iterable[str]) -> None:
        for name in names:
            topic = self.by_name.get(name)
            if topic is not None:
                config = self._config_of(self.image, name)
                for partition in topic.partitions.values():
                    partition.configure(config)

    # ---- disks

    def on_directory_failed(self, directory: LogDir, lost: Sequence[Log]) -> None:
        """Take the partitions of a failed directory offline."""
        gone = {id(log) for log in lost}
        for partition in list(self.all()):
            if id(partition.log) in gone:
                self._remove(partition.topic_id, partition.index)
                self._offline.add((partition.topic_id, partition.index))
                partition.close(ErrorCode.KAFKA_STORAGE_ERROR)

    # ---- what partitions need of their surroundings (see `partition.Host`)

    @property
    def broker_id(self) -> int:
        return self._broker_id

    @property
    def lag_time_max_ms(self) -> int:
        return self._lag_time_max_ms

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        return int(self._clock.monotonic_ms())

    def is_isr_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)

    def is_alive(self, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def registered_epoch(self, broker_id: int) -> int:
        broker = self.image.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def on_log_dir_failure(self, failure: LogDirFailure) -> None:
        self._store.fail(failure)

    def on_role(self, partition: Partition, *, is_new_reign: bool, was_deferred: bool) -> None:
        """A coordinator that lives on a partition may have found it not to lead yet."""
        self._note_role(partition, is_new_reign=is_new_reign)
        if was_deferred:
            for listener in self._listeners:
                listener.on_hosted(partition)

    def _note_role(self, partition: Partition, *, is_new_reign: bool) -> None:
        if isinstance(partition.role, LeaderRole) and partition.role.followers:
            self._replicated[partition] = None
        else:
            self._replicated.pop(partition, None)
        self._followings.on_role(partition, is_new_reign=is_new_reign)

    def propose_isr(self, partition: Partition, proposal: IsrProposal) -> None:
        self._isr.propose(partition, proposal)

    def withdraw_isr(self, partition: Partition) -> None:
        self._isr.withdraw(partition)

    @property
    def knows_tier(self) -> bool:
        return self._seeker is not None

    def seek_start(self, partition: Partition) -> None:
        assert self._seeker is not None
        self._seeker.seek(partition)

    def unsettled(self) -> "asyncio.Future[bool]":
        return self._loop.create_future()

    def truncate(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        return self._store.truncate(log, offset)

    def restart(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        return self._store.restart(log, offset)

    def start_from_tier(self, log: Log, start: TierStart) -> "asyncio.Future[bool]":
        return self._store.start_from_tier(log, start)

    def flush(self, partition: Partition) -> None:
        self._flusher.flush(partition)

    def flush_within(self, partition: Partition, delay_ms: int) -> None:
        self._flusher.flush_within(partition, delay_ms)

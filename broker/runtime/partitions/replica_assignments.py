"""The replicas that the metadata assigns to this broker: hosted in the assigned role, created, and deleted.

Deltas are applied in Kafka's order: deletions, then leaders, then followers, since clients wait for leaders.

The IO thread creates a missing log, and the partition is hosted when the log exists; until then clients get
NOT_LEADER_OR_FOLLOWER and retry. The metadata may change meanwhile; the assignment at the end of the creation counts.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.topic_image import TopicDelta, TopicsDelta
from broker.runtime.partitions.log_store import LogStore
from broker.runtime.partitions.registry import Partitions
from protocol.errors import ErrorCode
from protocol.primitives import Uuid
from storage.config import LogConfig
from storage.directories.log_dir import NoLogDir
from storage.errors import LogDirFailure
from storage.log import Log


class PendingCreations:
    """The partitions whose logs are being created, by topic name and index.

    Topic names count, not ids: a topic that is created again under its name gets the same directory.
    """

    def __init__(self) -> None:
        self._creating: set[tuple[str, int]] = set()
        self._all_done: asyncio.Future[None] | None = None

    def __contains__(self, partition: tuple[str, int]) -> bool:
        return partition in self._creating

    def add(self, name: str, index: int) -> None:
        self._creating.add((name, index))

    def remove(self, name: str, index: int) -> None:
        self._creating.remove((name, index))

    async def wait_done(self) -> None:
        """Return when no log is being created. Cancelling one waiter does not affect the others."""
        if self._creating:
            if self._all_done is None:
                self._all_done = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._all_done)

    def complete_waiters(self) -> None:
        """Wake the waiters if no log is being created."""
        if not self._creating and self._all_done is not None:
            self._all_done.set_result(None)
            self._all_done = None


class ReplicaAssignments:
    """A metadata publisher. Install it after the metadata cache and before the users of `partitions`.

    `config_of(image, topic)` returns a topic's log configuration.
    """

    def __init__(
        self,
        broker_id: int,
        partitions: Partitions,
        store: LogStore,
        config_of: Callable[[MetadataImage, str], LogConfig],
    ) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._store = store
        self._config_of = config_of
        self._creations = PendingCreations()

    async def wait_created(self) -> None:
        """Return when no log is being created; at once if none is. Cancelling one waiter does not affect the others."""
        await self._creations.wait_done()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Host exactly the replicas that are assigned to this broker, in their roles."""
        if delta.topics is not None:
            self._delete_topics(delta.topics)
            for topic in delta.topics.changed.values():
                self._change_topic(topic)
        if delta.brokers is not None:
            self._partitions.roles.on_brokers(delta.brokers)
        if delta.configs is not None:
            resources = delta.configs.changed_resources
            if any(resource.type == ResourceType.BROKER for resource in resources):
                self._configure(self._partitions.by_name)
            else:
                self._configure([resource.name for resource in resources if resource.type == ResourceType.TOPIC])

    def _delete_topics(self, topics: TopicsDelta) -> None:
        for topic_id, image in topics.deleted.items():
            for index in image.partitions:
                self._delete(topic_id, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _change_topic(self, topic: TopicDelta) -> None:
        """Apply the assignments of leaders before those of followers."""
        assigned = {}
        for index, registration in topic.changed_partitions.items():
            if self._broker_id in registration.replicas:
                assigned[index] = registration
            else:
                self._delete(topic.id, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for index in sorted(assigned, key=lambda index: assigned[index].leader != self._broker_id):
            self._assign(topic.name, topic.id, index, assigned[index])

    def _assign(self, name: str, topic_id: Uuid, index: int, registration: PartitionRegistration) -> None:
        partition = self._partitions.find(topic_id, index)
        if partition is not None:
            partition.assign(registration)
        elif (name, index) not in self._creations and not self._partitions.is_offline(topic_id, index):
            self._find_or_create_log(name, topic_id, index, registration)

    def _find_or_create_log(self, name: str, topic_id: Uuid, index: int, registration: PartitionRegistration) -> None:
        log = self._store.find(name, index)
        config = self._config_of(self._partitions.image, name)
        if log is not None and log.topic_id == topic_id:
            log.config = config
            self._partitions.host(name, topic_id, index, log, registration)
            return
        if log is not None:
            self._store.set_aside(log)
        directory_id = registration.directory_of(self._broker_id)
        if not self._store.may_create(directory_id):
            self._partitions.mark_offline(topic_id, index)
            return
        self._creations.add(name, index)
        created = self._store.create(name, index, topic_id, config, directory_id)
        created.add_done_callback(partial(self._on_created, name, topic_id, index))

    def _on_created(self, name: str, topic_id: Uuid, index: int, created: "asyncio.Future[Log]") -> None:
        """Host the partition of a created log, as the present metadata assigns it."""
        error = created.exception()
        if isinstance(error, LogDirFailure | NoLogDir):
            self._partitions.mark_offline(topic_id, index)
        else:
            self._host_or_delete(name, topic_id, index, created.result())
        self._creations.remove(name, index)
        self._host_recreated_topic(name, index)
        self._creations.complete_waiters()

    def _host_or_delete(self, name: str, topic_id: Uuid, index: int, log: Log) -> None:
        image = self._partitions.image
        registration = image.topics.partition(topic_id, index)
        if registration is None or self._broker_id not in registration.replicas:
            self._store.delete(log)
            return
        log.config = self._config_of(image, name)
        self._partitions.host(name, topic_id, index, log, registration)

    def _host_recreated_topic(self, name: str, index: int) -> None:
        """Apply the assignment of a topic that was deleted and created again while its log was being created."""
        topic = self._partitions.image.topics.by_name(name)
        registration = None if topic is None else topic.partition(index)
        if topic is not None and registration is not None and self._broker_id in registration.replicas:
            self._assign(name, topic.id, index, registration)

    def _delete(self, topic_id: Uuid, index: int, error: ErrorCode) -> None:
        """Stop hosting a replica, and delete its log."""
        self._partitions.forget_offline(topic_id, index)
        partition = self._partitions.drop(topic_id, index, error)
        if partition is not None:
            self._store.delete(partition.log)

    def _configure(self, names: Iterable[str]) -> None:
        for name in names:
            topic = self._partitions.by_name.get(name)
            if topic is not None:
                config = self._config_of(self._partitions.image, name)
                for partition in topic.partitions.values():
                    partition.configure(config)

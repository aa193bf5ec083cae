"""The remote log manager: tasks for the remote log of every partition that this node hosts (KIP-405).

A leader copies, expires and compacts segments; a follower looks up the highest remote offset. Tasks of all partitions
take turns (`round_robin.py`), so that slow ones do not hold up the others. Calls of the store run on bounded pools
(`thread_pool.py`); nothing here makes the loop wait. An outage of the store affects neither produce nor local fetch.

A partition's role comes from the cluster metadata: `on_metadata` runs after `Partitions` has applied an image,
`on_hosted` for logs that are opened later. A role and its leader epoch are a `LeadershipTerm`. A new term starts
without state; tasks of the former one are finished, or closed in good order.

The manager knows neither remote storage itself, nor how its metadata are stored, nor when a local segment is deleted:
`storage.retention` decides that by `Log.highest_remote_offset`.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metrics.remote_storage import CopyBlock, RemoteStorageMetrics
from broker.runtime.loop.round_robin import RoundRobinScheduler
from broker.runtime.loop.thread_pool import ThreadPool
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.registry import Partitions
from broker.runtime.remote_log.compaction import CompactionTools, RemoteCompactionTask
from broker.runtime.remote_log.copying import CopyTools, SegmentCopyTask
from broker.runtime.remote_log.deletion_on_disable import RemoteLogDeletionTask
from broker.runtime.remote_log.expiration import ExpirationTools, SegmentExpirationTask
from broker.runtime.remote_log.follower_task import RemoteFollowerTask
from broker.runtime.remote_log.layout_tracker import RemoteLayoutTracker
from broker.runtime.remote_log.leadership_term import LeadershipTerm, RemoteLogRole, TieredReplica
from broker.runtime.remote_log.partition_remover import PartitionRemover, RemoteCatalog, RemoverTools
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from storage.directories.log_dir import LogDir
from storage.log import Log
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import TopicIdPartition


@lazy_dataclass(slots=True)
class _Tasks:
    """The tasks of one partition in one term."""

    term: LeadershipTerm
    copying: SegmentCopyTask | None = None
    cleaning: SegmentExpirationTask | RemoteLogDeletionTask | None = None
    following: RemoteFollowerTask | None = None
    compaction: RemoteCompactionTask | None = None
    layout: RemoteLayoutTracker | None = None


class HostedReplicas(Protocol):
    """The tiered replicas of this node."""

    def all(self) -> Iterable[TieredReplica]: ...

    def of_topic(self, topic_id: Uuid) -> Iterable[TieredReplica]:
        """Return the replicas of one topic."""
        ...

    def has_topic(self, topic_id: Uuid) -> bool:
        """Whether the cluster metadata have such a topic."""
        ...


class HostedTieredReplicas:
    """Implements HostedReplicas over `Partitions`."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def all(self) -> Iterable[TieredReplica]:
        return self._partitions.all()

    def of_topic(self, topic_id: Uuid) -> Iterable[TieredReplica]:
        topic = self._partitions.by_id.get(topic_id)
        return () if topic is None else tuple(topic.partitions.values())

    def has_topic(self, topic_id: Uuid) -> bool:
        return self._partitions.image.topics.by_id(topic_id) is not None


@lazy_dataclass(frozen=True, slots=True)
class RemotePools:
    """The pools that wait for remote storage: for uploads, for compaction, and for all other work of leaders."""

    copier: ThreadPool
    expiration: ThreadPool
    compaction: ThreadPool

    @classmethod
    def open(cls, settings: RemoteLogSettings) -> "RemotePools":
        """Open the pools on the running loop. They refuse no work.

        There are as many tasks at once as threads for each of copying, expiration with removals of deleted topics, and
        look-ups of log start offsets; a task submits one piece of work at a time.
        """
        return cls(
            ThreadPool(settings.copier_threads, None, "remote-copy"),
            ThreadPool(settings.expiration_threads, None, "remote-expiration"),
            ThreadPool(1, None, "remote-compaction"),
        )

    def resize(self, settings: RemoteLogSettings) -> None:
        self.copier.resize(settings.copier_threads)
        self.expiration.resize(settings.expiration_threads)

    async def stop(self) -> None:
        """Return when the work that has begun is done."""
        await asyncio.gather(
            *(pool.stop(drop_waiting=True) for pool in (self.copier, self.expiration, self.compaction))
        )


class RemoteLogManager:
    """A metadata publisher and a PartitionListener. The owner runs `run` as a task."""

    def __init__(
        self,
        hosting: HostedReplicas,
        metadata: RemoteLogMetadataManager,
        catalog: RemoteCatalog,
        copy_tools: CopyTools,
        expiration_tools: ExpirationTools,
        metrics: RemoteStorageMetrics,
        loop: asyncio.AbstractEventLoop,
        compaction_tools: CompactionTools | None = None,
    ) -> None:
        """Take the collaborators; without `compaction_tools`, remote logs are not compacted."""
        self.metrics = metrics
        metrics.copies_at_once = copy_tools.copies_at_once
        metrics.blocked_copies = self._blocked_copies
        self._hosting = hosting
        self._metadata = metadata
        self._copy_tools = copy_tools
        self._expiration_tools = expiration_tools
        self._compaction_tools = compaction_tools
        settings = copy_tools.settings
        self._copies = RoundRobinScheduler(loop, lambda: settings().copier_threads)
        self._expirations = RoundRobinScheduler(loop, lambda: settings().expiration_threads)
        self._followings = RoundRobinScheduler(loop, lambda: settings().follower_threads)
        self._compactions = RoundRobinScheduler(loop, lambda: 1)
        self._tasks: dict[TopicIdPartition, _Tasks] = {}
        self._remover = PartitionRemover(
            RemoverTools(
                segments=expiration_tools.segments,
                log_starts=expiration_tools.log_starts,
                pool=expiration_tools.pool,
                catalog=catalog,
                copying=expiration_tools.copying,
                is_known=hosting.has_topic,
                is_hosted=lambda partition: partition in self._tasks,
                clock=expiration_tools.clock,
                settings=settings,
                random=expiration_tools.random,
            ),
            self._expirations,
        )

    async def run(self) -> None:
        """Run the tasks of all partitions until cancelled."""
        self._expirations.schedule(self._remover)
        async with asyncio.TaskGroup() as group:
            for schedulers in (self._copies, self._expirations, self._followings, self._compactions):
                group.create_task(schedulers.run())

    async def finish(self) -> None:
        """Begin no more work, and return when work in progress is done.

        For a node that is about to resign its leaderships; the node may cancel the call if it takes too long.
        """
        for tasks in self._tasks.values():
            if tasks.compaction is not None:
                tasks.compaction.stop()
        schedulers = (self._copies, self._expirations, self._followings, self._compactions)
        await asyncio.gather(*(each.drain() for each in schedulers))

    def _blocked_copies(self) -> Counter[CopyBlock]:
        tasks = (tasks.copying for tasks in list(self._tasks.values()))
        reasons = (None if copying is None else copying.blocked_by for copying in tasks)
        return Counter(reason for reason in reasons if reason is not None)

    # ---- roles

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the roles that partitions have now."""
        if delta.topics is not None:
            if delta.topics.deleted:
                self.on_topics_deleted(delta.topics.deleted)
            gone = [tasks.term.partition for id, tasks in self._tasks.items() if id.topic_id in delta.topics.deleted]
            changed = [partition for topic_id in delta.topics.changed for partition in self._of_topic(topic_id)]
            self.on_leadership_change(
                leaders=(partition for partition in changed if partition.is_leader),
                followers=(*gone, *(partition for partition in changed if not partition.is_leader)),
            )
        if delta.configs is not None:
            for partition in self._hosting.all():
                self.on_role(partition)

    def on_topics_deleted(self, topic_ids: Collection[Uuid]) -> None:
        """Remove the remote data of deleted topics, through the leaders of their metadata.

        Call it before the partitions of the topics are closed.
        """
        self._remover.on_deleted(topic_ids, [id for id in self._tasks if id.topic_id in topic_ids])

    def _of_topic(self, topic_id: Uuid) -> list[TieredReplica]:
        """Return the partitions of a topic that this node hosts or has hosted until now."""
        hosted = list(self._hosting.of_topic(topic_id))
        return hosted + [tasks.term.partition for id, tasks in self._tasks.items() if id.topic_id == topic_id]

    def on_hosted(self, partition: Partition) -> None:
        """See PartitionListener."""
        self.on_role(partition)

    def on_directory_failed(self, directory: LogDir, lost: Sequence[Log]) -> None:
        """End the tasks of lost logs; call it after `Partitions` has handled the failure."""
        for tasks in list(self._tasks.values()):
            if tasks.term.partition.log in lost:
                self.on_role(tasks.term.partition)

    def on_leadership_change(self, leaders: Iterable[TieredReplica], followers: Iterable[TieredReplica]) -> None:
        """Apply roles, followers first: the end of their tasks makes room for others."""
        for partition in (*followers, *leaders):
            self.on_role(partition)

    def on_role(self, partition: TieredReplica) -> None:
        """Run the tasks that a partition's role and configuration require; do nothing if they run already."""
        id = TopicIdPartition(partition.topic_id, partition.topic, partition.index)
        role = _role_of(partition) if self._is_in_service(partition) else None
        tasks = self._tasks.get(id)
        if tasks is not None and tasks.term.is_of(partition, role):
            if tasks.copying is not None and not self._copies.is_scheduled(tasks.copying):
                self._copies.schedule(tasks.copying)  # copying may have been enabled again
            return
        if tasks is not None:
            self._end(tasks)
        if role is not None:
            self._begin(LeadershipTerm(id, partition, role, self.metrics))
        elif tasks is not None:
            self._release_unless_copying(tasks)

    def _is_in_service(self, partition: TieredReplica) -> bool:
        return any(partition is hosted for hosted in self._hosting.of_topic(partition.topic_id))

    def stop(self, partitions: Iterable[TopicIdPartition]) -> None:
        """End the tasks of partitions that this node no longer hosts. Their remote segments stay."""
        for id in partitions:
            tasks = self._tasks.get(id)
            if tasks is not None:
                self._end(tasks)
                self._release_unless_copying(tasks)

    def _begin(self, term: LeadershipTerm) -> None:
        leads = term.role is not RemoteLogRole.FOLLOWER
        self._metadata.assign([term.id] if leads else [], [] if leads else [term.id])
        tasks = self._tasks[term.id] = _Tasks(term)
        if term.role is RemoteLogRole.DISABLED:
            tasks.cleaning = RemoteLogDeletionTask(term, self._expiration_tools, self._on_cleaned)
            self._expirations.schedule(tasks.cleaning)
            return
        tools = self._copy_tools
        tasks.following = RemoteFollowerTask(term, self._metadata, tools.settings, tools.random)
        self._followings.schedule(tasks.following)
        if term.role is RemoteLogRole.LEADER:
            tasks.copying = SegmentCopyTask(term, tools, self._on_copying_over)
            tasks.layout = self._layout_of(term)
            tasks.cleaning = SegmentExpirationTask(term, self._expiration_tools, tasks.layout)
            self._copies.schedule(tasks.copying)
            self._expirations.schedule(tasks.cleaning)
            if self._compaction_tools is not None:
                tasks.compaction = RemoteCompactionTask(
                    term, self._compaction_tools, tasks.layout, self._expiration_tools.fence
                )
                self._compactions.schedule(tasks.compaction)

    def _end(self, tasks: _Tasks) -> None:
        del self._tasks[tasks.term.id]
        tasks.term.end()
        if tasks.following is not None:
            self._followings.cancel(tasks.following)
        if tasks.cleaning is not None:
            self._expirations.cancel(tasks.cleaning)
        if tasks.layout is not None:
            tasks.layout.close()
        if tasks.compaction is not None:
            self._compactions.schedule(tasks.compaction)
        if tasks.copying is not None:
            self._copies.schedule(tasks.copying)

    def _layout_of(self, term: LeadershipTerm) -> RemoteLayoutTracker:
        return RemoteLayoutTracker(term, self._metadata, self._expiration_tools.slices)

    def _release_unless_copying(self, tasks: _Tasks) -> None:
        """Release the metadata of a partition, unless a copy in progress needs them."""
        if tasks.copying is None:
            self._on_copying_over(tasks.term)

    def _on_copying_over(self, term: LeadershipTerm) -> None:
        if term.id not in self._tasks and not self._remover.is_removing(term.id):
            self._metadata.unassign([term.id])
        if all(id.topic != term.id.topic for id in self._tasks):
            self.metrics.remove(term.id.topic)

    def _on_cleaned(self, term: LeadershipTerm) -> None:
        """Release the metadata of a topic without remote segments; its tasks stay, so that no new ones are begun."""
        self._metadata.unassign([term.id])


def _role_of(partition: TieredReplica) -> RemoteLogRole | None:
    log = partition.log
    if log.is_tiered:
        return RemoteLogRole.LEADER if partition.is_leader else RemoteLogRole.FOLLOWER
    was_tiered = log.config.remote_log_delete_on_disable and not log.config.remote_storage_enable
    return RemoteLogRole.DISABLED if was_tiered and partition.is_leader else None

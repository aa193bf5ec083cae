"""The settings of the remote log tasks, as one value that the tasks fetch anew for every use."""

from protocol.lazy_dataclass import lazy_dataclass
from storage.tiered.stores.backoff import Backoff

UNLIMITED = 2**63 - 1
_BACKOFF = Backoff(500, 30_000, 0.2)


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSettings:
    """Settings with Kafka's defaults where Kafka has the key.

    `grace_ms` is the time for which a segment must have been unused before it is collected, and for which a copy of
    another broker may be in progress before it counts as abandoned.
    """

    copier_threads: int = 10  # remote.log.manager.copier.thread.pool.size
    expiration_threads: int = 10  # remote.log.manager.expiration.thread.pool.size
    follower_threads: int = 2  # remote.log.manager.follower.thread.pool.size
    task_interval_ms: int = 30_000  # remote.log.manager.task.interval.ms
    backoff: Backoff = _BACKOFF  # remote.log.manager.task.retry.backoff.ms, .backoff.max.ms, .jitter
    custom_metadata_max_bytes: int = 128  # remote.log.metadata.custom.metadata.max.bytes
    copy_bytes_per_second: int = UNLIMITED  # remote.log.manager.copy.max.bytes.per.second
    copy_quota_window_ms: int = 11_000  # remote.log.manager.copy.quota.window.num and .size.seconds
    remover_interval_ms: int = 60_000  # ottla.remote.partition.remover.task.interval.ms
    grace_ms: int = 3_600_000  # ottla.remote.log.collection.grace.ms
    unknown_topic_retention_ms: int = 604_800_000  # ottla.remote.log.unknown.topic.retention.ms, -1: for ever

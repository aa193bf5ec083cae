"""Remote storage of older segments (KIP-405)."""

from broker.config.key import ConfigKey, Scope
from broker.config.rules import at_least, between, non_empty
from broker.config.values import ConfigType

BOOLEAN = ConfigType.BOOLEAN
DOUBLE = ConfigType.DOUBLE
INT = ConfigType.INT
LONG = ConfigType.LONG
STRING = ConfigType.STRING

# Two lines per key; a formatter would make eight.
# fmt: off
REMOTE_STORAGE_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("remote.log.storage.system.enable", BOOLEAN, "false",
        "Whether topics may keep older segments in remote storage."),
    ConfigKey("remote.log.storage.manager.class.name", STRING, None,
        "Remote storage for segments: s3, local, or an import path.", rule=non_empty),
    ConfigKey("remote.log.storage.manager.class.path", STRING, None,
        "Path from which the class named by remote.log.storage.manager.class.name is loaded."),
    ConfigKey("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.",
        "Prefix of the settings of the remote storage.", rule=non_empty),
    ConfigKey("remote.log.metadata.manager.class.name", STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Class that stores the metadata of remote segments.", rule=non_empty),
    ConfigKey("remote.log.metadata.manager.class.path", STRING, None,
        "Path from which the class named by remote.log.metadata.manager.class.name is loaded."),
    ConfigKey("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.",
        "Prefix of the settings of the remote metadata manager.", rule=non_empty),
    ConfigKey("remote.log.metadata.manager.listener.name", STRING, None,
        "Listener through which the remote metadata topic is read and written.", rule=non_empty),
    ConfigKey("remote.log.metadata.custom.metadata.max.bytes", INT, "128",
        "Largest custom metadata a remote storage may attach to a segment.", rule=at_least(0)),
    ConfigKey("remote.log.index.file.cache.total.size.bytes", LONG, "1073741824",
        "Disk space for cached indexes of remote segments.", rule=at_least(1), scope=Scope.CLUSTER),
    ConfigKey("remote.log.manager.thread.pool.size", INT, "2",
        "Former common size of the remote log thread pools.", rule=at_least(1)),
    ConfigKey("remote.log.manager.copier.thread.pool.size", INT, "10",
        "Threads that copy segments to remote storage.", rule=at_least(1), scope=Scope.CLUSTER),
    ConfigKey("remote.log.manager.expiration.thread.pool.size", INT, "10",
        "Threads that remove expired remote segments.", rule=at_least(1), scope=Scope.CLUSTER),
    ConfigKey("remote.log.manager.follower.thread.pool.size", INT, "2",
        "Threads that build followers from remote storage.", rule=at_least(1), scope=Scope.CLUSTER),
    ConfigKey("remote.log.manager.task.interval.ms", LONG, "30000",
        "Time between two runs of the copy and expiration tasks.", rule=at_least(1)),
    ConfigKey("remote.log.manager.task.retry.backoff.ms", LONG, "500",
        "First wait after a failed remote log task.", rule=at_least(1), internal=True),
    ConfigKey("remote.log.manager.task.retry.backoff.max.ms", LONG, "30000",
        "Longest wait after a failed remote log task.", rule=at_least(1), internal=True),
    ConfigKey("remote.log.manager.task.retry.jitter", DOUBLE, "0.2",
        "Random part of the wait after a failed remote log task.", rule=between(0, 0.5), internal=True),
    ConfigKey("remote.log.manager.copy.max.bytes.per.second", LONG, "9223372036854775807",
        "Bytes per second that may be copied to remote storage.", rule=at_least(1), scope=Scope.CLUSTER),
    ConfigKey("remote.log.manager.copy.quota.window.num", INT, "11",
        "Samples kept to measure copying to remote storage.", rule=at_least(1)),
    ConfigKey("remote.log.manager.copy.quota.window.size.seconds", INT, "1",
        "Length of one sample of copying to remote storage.", rule=at_least(1)),
    ConfigKey("remote.log.manager.fetch.max.bytes.per.second", LONG, "9223372036854775807",
        "Bytes per second that may be read from remote storage.", rule=at_least(1), scope=Scope.CLUSTER),
    ConfigKey("remote.log.manager.fetch.quota.window.num", INT, "11",
        "Samples kept to measure reading from remote storage.", rule=at_least(1)),
    ConfigKey("remote.log.manager.fetch.quota.window.size.seconds", INT, "1",
        "Length of one sample of reading from remote storage.", rule=at_least(1)),
    ConfigKey("remote.log.reader.threads", INT, "10",
        "Threads that serve reads from remote storage.", rule=at_least(1), scope=Scope.CLUSTER),
    ConfigKey("remote.log.reader.max.pending.tasks", INT, "100",
        "Remote reads that may wait; further ones are refused.", rule=at_least(1)),
    ConfigKey("remote.fetch.max.wait.ms", INT, "500",
        "Longest wait of a fetch for remote storage.", rule=at_least(1), scope=Scope.CLUSTER),
    ConfigKey("remote.list.offsets.request.timeout.ms", LONG, "30000",
        "Longest wait of a lookup by timestamp for remote storage.", rule=at_least(1), scope=Scope.CLUSTER),
)
# fmt: on

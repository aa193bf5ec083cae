"""Keys that are ours, those of KIP-630 that Kafka specified but never shipped, and those of Kafka after 4.2."""

from broker.config.key import ConfigKey, Scope
from broker.config.rules import at_least, between, one_of
from broker.config.values import ConfigType

BOOLEAN = ConfigType.BOOLEAN
DOUBLE = ConfigType.DOUBLE
INT = ConfigType.INT
LONG = ConfigType.LONG
STRING = ConfigType.STRING

# Two lines a key, which a formatter would make eight.
# fmt: off
OTTLA_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("ottla.http.listener", STRING, "127.0.0.1:9644",
        "Address, host:port, of health checks, metrics and the console; empty for none, port 0 for a free one."),
    ConfigKey("ottla.cluster.metadata.readable", BOOLEAN, "true",
        "Whether ordinary consumers may read the metadata log as the topic __cluster_metadata."),
    ConfigKey("ottla.controller.broker.watch.enable", BOOLEAN, "true",
        "Whether controllers fence a broker at once when its machine says that nobody listens there any more."),
    ConfigKey("ottla.metadata.snapshot.import.uri", STRING, None,
        "Where metadata snapshots made outside are found, a directory or s3://bucket/prefix; a node starts or catches "
        "up from them after checking them."),
    ConfigKey("ottla.metadata.snapshot.import.timeout.ms", INT, "30000",
        "Time after which a node that imports a metadata snapshot fetches from its leader instead, for each 64 MiB of "
        "it, and time for which it then leaves the store alone.", rule=at_least(1000)),
    ConfigKey("ottla.metadata.snapshot.import.max.bytes", LONG, "4294967296",
        "Size of a metadata snapshot above which a node does not import it.", rule=at_least(1)),
    ConfigKey("ottla.metadata.snapshot.compression.type", STRING, "none",
        "Codec of the data batches of metadata snapshots. Replicas write equal files only if it is the same on all.",
        rule=one_of("none", "gzip", "snappy", "lz4", "zstd")),
    ConfigKey("metadata.snapshot.min.changed_records.ratio", DOUBLE, "0.5",
        "Share of records changed since the last snapshot from which another is worth cutting (KIP-630).",
        rule=between(0, 1)),
    ConfigKey("metadata.start.offset.lag.time.max.ms", LONG, "604800000",
        "Time a slow replica of the metadata log is waited for before records below a snapshot go (KIP-630).",
        rule=at_least(0)),
    ConfigKey("ottla.log.remote.storage.enable", BOOLEAN, "false",
        "Whether topics that do not say so themselves keep older segments in remote storage, internal ones never; new "
        "topics keep it as their own."),
    ConfigKey("ottla.remote.log.unknown.topic.retention.ms", LONG, "604800000",
        "How long remote data is kept of a topic that the cluster does not know and did not see deleted; -1 for ever.",
        rule=at_least(-1)),
    ConfigKey("ottla.remote.log.collection.grace.ms", LONG, "3600000",
        "How long a remote segment must have been of no use, or a copy of another broker be under way, before it is "
        "collected. The same on all brokers: a copy is given up after three quarters of it, or after half an hour.",
        rule=at_least(1_000)),
    ConfigKey("ottla.remote.log.hole.patience.ms", LONG, "600000",
        "How long consumers are told to come again for records that are in no known remote segment, before they are "
        "sent past them; -1 for ever.", rule=at_least(-1)),
    ConfigKey("ottla.remote.partition.remover.task.interval.ms", LONG, "60000",
        "Time between two looks for remote data of topics that are gone; KIP-405 names such a key, Kafka has none.",
        rule=at_least(1)),
    ConfigKey("ottla.remote.fetch.result.retention.ms", LONG, "30000",
        "How long what was read from remote storage waits for a consumer whose fetch ended before it was there.",
        rule=at_least(1)),
    ConfigKey("ottla.remote.fetch.result.max.bytes", LONG, "67108864",
        "Most memory for what was read from remote storage and waits for its consumers.", rule=at_least(0)),
    ConfigKey("ottla.remote.storage.compacted.enable", BOOLEAN, "false",
        "Whether topics whose cleanup.policy compacts may have remote storage, too; Kafka refuses them, and so do we "
        "unless this is on."),
    ConfigKey("log.remote.copy.lag.ms", LONG, "0",
        "Age of a closed segment from which it is copied to remote storage; 0 copies at once, -1 follows the local "
        "retention (KIP-1241).", rule=at_least(-1), scope=Scope.CLUSTER),
    ConfigKey("log.remote.copy.lag.bytes", LONG, "-1",
        "Size of what came after a segment from which it is copied before its time; -1 follows the local retention "
        "(KIP-1241).", rule=at_least(-1), scope=Scope.CLUSTER),
    ConfigKey("follower.fetch.last.tiered.offset.enable", BOOLEAN, "false",
        "Whether an empty replica begins where remote storage ends, leaving out what is also on the leader's disk "
        "(KIP-1023).", scope=Scope.CLUSTER),
    ConfigKey("controller.quorum.fetch.max.bytes", INT, "1048576",
        "Most bytes of the metadata log in one answer to a replica that fetches; one batch goes whole (KIP-1219).",
        rule=at_least(1)),
    ConfigKey("controller.quorum.fetch.snapshot.max.bytes", INT, "1048576",
        "Most bytes of a metadata snapshot in one answer to a replica that fetches it (KIP-1219).", rule=at_least(1)),
)
# fmt: on

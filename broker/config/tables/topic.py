"""Topic configs."""

from broker.config.key import ConfigKey
from broker.config.rules import at_least, between, between_or, items_of, one_of, throttled_replicas
from broker.config.values import ConfigType

BOOLEAN = ConfigType.BOOLEAN
DOUBLE = ConfigType.DOUBLE
INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
STRING = ConfigType.STRING

# Two lines per key; a formatter would make eight.
# fmt: off
TOPIC_CONFIG_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("cleanup.policy", LIST, "delete",
        "What happens to old segments: delete, compact, or both; empty keeps everything.",
        rule=items_of("compact", "delete")),
    ConfigKey("compression.type", STRING, "producer",
        "Codec in which records are stored; producer keeps what the client sent.",
        rule=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    ConfigKey("compression.gzip.level", INT, "-1",
        "Level when the broker compresses with gzip.", rule=between_or(1, 9, -1)),
    ConfigKey("compression.lz4.level", INT, "9",
        "Level when the broker compresses with lz4.", rule=between(1, 17)),
    ConfigKey("compression.zstd.level", INT, "3",
        "Level when the broker compresses with zstd.", rule=between(-131072, 22)),
    ConfigKey("delete.retention.ms", LONG, "86400000",
        "Time that tombstones and transaction markers stay readable in a compacted topic.", rule=at_least(0)),
    ConfigKey("file.delete.delay.ms", LONG, "60000",
        "Wait between renaming a file to .deleted and unlinking it.", rule=at_least(0)),
    ConfigKey("flush.messages", LONG, "9223372036854775807",
        "Records after which a partition is flushed to disk.", rule=at_least(1)),
    ConfigKey("flush.ms", LONG, "9223372036854775807",
        "Longest time records stay unflushed.", rule=at_least(0)),
    ConfigKey("follower.replication.throttled.replicas", LIST, "",
        "Replicas whose fetching is throttled, as partition:broker pairs, or * for all.", rule=throttled_replicas),
    ConfigKey("index.interval.bytes", INT, "4096",
        "Bytes of log between two entries of the offset index.", rule=at_least(0)),
    ConfigKey("internal.segment.bytes", INT, None,
        "Segment size for tests, without the lower bound.", internal=True),
    ConfigKey("leader.replication.throttled.replicas", LIST, "",
        "Replicas whose serving is throttled, as partition:broker pairs, or * for all.", rule=throttled_replicas),
    ConfigKey("local.retention.bytes", LONG, "-2",
        "Local size above which segments already in remote storage leave the local disk; -2 follows retention.bytes.",
        rule=at_least(-2)),
    ConfigKey("local.retention.ms", LONG, "-2",
        "Age above which segments already in remote storage leave the local disk; -2 follows retention.ms.",
        rule=at_least(-2)),
    ConfigKey("max.compaction.lag.ms", LONG, "9223372036854775807",
        "Age above which a record is due for compaction, at any dirty ratio.", rule=at_least(1)),
    ConfigKey("max.message.bytes", INT, "1048588",
        "Largest record batch accepted, after compression.", rule=at_least(0)),
    ConfigKey("message.timestamp.after.max.ms", LONG, "3600000",
        "How far a record's timestamp may lie after the broker's clock.", rule=at_least(0)),
    ConfigKey("message.timestamp.before.max.ms", LONG, "9223372036854775807",
        "How far a record's timestamp may lie before the broker's clock.", rule=at_least(0)),
    ConfigKey("message.timestamp.type", STRING, "CreateTime",
        "Whether records carry the producer's time or the time of append.", rule=one_of("CreateTime", "LogAppendTime")),
    ConfigKey("min.cleanable.dirty.ratio", DOUBLE, "0.5",
        "Share of not yet compacted bytes from which a log is compacted.", rule=between(0, 1)),
    ConfigKey("min.compaction.lag.ms", LONG, "0",
        "Age below which a record is left out of compaction.", rule=at_least(0)),
    ConfigKey("min.insync.replicas", INT, "1",
        "Replicas that must be in sync for acks=all to be accepted.", rule=at_least(1)),
    ConfigKey("preallocate", BOOLEAN, "false",
        "Whether a new segment file is created at its full size."),
    ConfigKey("remote.copy.lag.bytes", LONG, "-1",
        "Size of the log after a segment from which the segment is copied early; -1 follows the local retention "
        "(KIP-1241).", rule=at_least(-1)),
    ConfigKey("remote.copy.lag.ms", LONG, "0",
        "Age of a closed segment from which it is copied to remote storage; 0 copies at once, -1 follows the local "
        "retention (KIP-1241).", rule=at_least(-1)),
    ConfigKey("remote.log.copy.disable", BOOLEAN, "false",
        "Stops copying to remote storage; remote segments stay readable."),
    ConfigKey("remote.log.delete.on.disable", BOOLEAN, "false",
        "Allows remote.storage.enable to be turned off, which deletes the remote segments."),
    ConfigKey("remote.storage.enable", BOOLEAN, "false",
        "Whether older segments are kept in remote storage."),
    ConfigKey("retention.bytes", LONG, "-1",
        "Size of a partition above which its oldest segments are removed; -1 sets no bound."),
    ConfigKey("retention.ms", LONG, "604800000",
        "Age above which segments are removed; -1 keeps them.", rule=at_least(-1)),
    ConfigKey("segment.bytes", INT, "1073741824",
        "Size at which a segment is rolled.", rule=at_least(1048576)),
    ConfigKey("segment.index.bytes", INT, "10485760",
        "Largest size of the offset and time index of a segment.", rule=at_least(4)),
    ConfigKey("segment.jitter.ms", LONG, "0",
        "Most time taken off the roll age at random, so that segments do not all roll at once.", rule=at_least(0)),
    ConfigKey("segment.ms", LONG, "604800000",
        "Age at which a segment is rolled.", rule=at_least(1)),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, "false",
        "Whether a replica out of sync may lead when no other can, losing records."),
)
# fmt: on

LATER_THAN_4_2 = frozenset({"remote.copy.lag.bytes", "remote.copy.lag.ms"})
"""Keys that Apache Kafka 4.2 does not have (4.4 does)."""

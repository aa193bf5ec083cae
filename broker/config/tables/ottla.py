"""Keys that are ours, and those of KIP-630 that Kafka specified but never shipped."""

from broker.config.key import ConfigKey
from broker.config.rules import at_least, between
from broker.config.values import ConfigType

BOOLEAN = ConfigType.BOOLEAN
DOUBLE = ConfigType.DOUBLE
LONG = ConfigType.LONG
STRING = ConfigType.STRING

# Two lines a key, which a formatter would make eight.
# fmt: off
OTTLA_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("ottla.http.listener", STRING, "127.0.0.1:9644",
        "Address, host:port, of health checks, metrics and the console; empty for none, port 0 for a free one."),
    ConfigKey("ottla.cluster.metadata.readable", BOOLEAN, "true",
        "Whether ordinary consumers may read the metadata log as the topic __cluster_metadata."),
    ConfigKey("ottla.metadata.snapshot.import.uri", STRING, None,
        "Where metadata snapshots made outside are found; a node starts or catches up from them after checking them."),
    ConfigKey("metadata.snapshot.min.changed_records.ratio", DOUBLE, "0.5",
        "Share of records changed since the last snapshot from which another is worth cutting (KIP-630).",
        rule=between(0, 1)),
    ConfigKey("metadata.start.offset.lag.time.max.ms", LONG, "604800000",
        "Time a slow replica of the metadata log is waited for before records below a snapshot go (KIP-630).",
        rule=at_least(0)),
)
# fmt: on

"""Followers and their leaders."""

from broker.config.key import ConfigKey, Scope
from broker.config.rules import at_least
from broker.config.values import ConfigType

INT = ConfigType.INT
LONG = ConfigType.LONG
STRING = ConfigType.STRING

# Two lines per key; a formatter would make eight.
# fmt: off
REPLICATION_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("num.replica.fetchers", INT, "1",
        "Fetchers per source broker.", rule=at_least(1), scope=Scope.CLUSTER),
    ConfigKey("replica.fetch.min.bytes", INT, "1",
        "Bytes a follower waits for at the leader."),
    ConfigKey("replica.fetch.wait.max.ms", INT, "500",
        "Longest time a follower's fetch waits at the leader."),
    ConfigKey("replica.fetch.max.bytes", INT, "1048576",
        "Bytes that a follower requests per partition; a larger first batch is still returned.", rule=at_least(0)),
    ConfigKey("replica.fetch.response.max.bytes", INT, "10485760",
        "Bytes that a follower requests per fetch; a larger first batch is still returned.", rule=at_least(0)),
    ConfigKey("replica.fetch.backoff.ms", INT, "1000",
        "Wait after a failed fetch of a follower.", rule=at_least(0)),
    ConfigKey("replica.lag.time.max.ms", LONG, "30000",
        "Time a follower may stay behind before it leaves the in-sync replicas."),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", LONG, "5000",
        "Time between two writes of the high-watermark checkpoint."),
    ConfigKey("replica.socket.timeout.ms", INT, "30000",
        "Socket timeout of replication requests; at least replica.fetch.wait.max.ms."),
    ConfigKey("replica.socket.receive.buffer.bytes", INT, "65536",
        "Receive buffer of replication connections.", honoured=False),
    ConfigKey("replica.selector.class", STRING, None,
        "Class that picks the replica a consumer reads from."),
)
# fmt: on

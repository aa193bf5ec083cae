"""Client metrics subscriptions (KIP-714)."""

from broker.config.key import ConfigKey
from broker.config.rules import between
from broker.config.values import ConfigType

INT = ConfigType.INT
LIST = ConfigType.LIST

# Two lines per key; a formatter would make eight.
# fmt: off
CLIENT_METRICS_CONFIG_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("interval.ms", INT, "300000",
        "Time between two pushes of metrics by a matching client; 100 ms to an hour.", rule=between(100, 3600000)),
    ConfigKey("match", LIST, "",
        "Clients of this subscription, as attribute=pattern pairs; empty means all."),
    ConfigKey("metrics", LIST, "",
        "Prefixes of requested metrics; * means all, empty none."),
)
# fmt: on

"""Group configs."""

from broker.config.key import ConfigKey
from broker.config.rules import at_least, offset_reset_strategy, one_of
from broker.config.values import ConfigType

INT = ConfigType.INT
STRING = ConfigType.STRING

# Two lines per key; a formatter would make eight.
# fmt: off
GROUP_CONFIG_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("consumer.heartbeat.interval.ms", INT, "5000",
        "Heartbeat interval given to members of this consumer group.", rule=at_least(1)),
    ConfigKey("consumer.session.timeout.ms", INT, "45000",
        "Time without a heartbeat after which a member of this consumer group is removed.",
        rule=at_least(1)),
    ConfigKey("share.auto.offset.reset", STRING, "latest",
        "Start of a share group on a partition: latest, earliest, or by_duration:PnDTnHnMn.nS before now.",
        rule=offset_reset_strategy),
    ConfigKey("share.heartbeat.interval.ms", INT, "5000",
        "Heartbeat interval given to members of this share group.", rule=at_least(1)),
    ConfigKey("share.isolation.level", STRING, "read_uncommitted",
        "Whether this share group sees records of open and aborted transactions.",
        rule=one_of("read_committed", "read_uncommitted")),
    ConfigKey("share.record.lock.duration.ms", INT, "30000",
        "Time a consumer of this share group has to acknowledge a record.", rule=at_least(1000)),
    ConfigKey("share.session.timeout.ms", INT, "45000",
        "Time without a heartbeat after which a member of this share group is removed.",
        rule=at_least(1)),
    ConfigKey("streams.heartbeat.interval.ms", INT, "5000",
        "Heartbeat interval given to members of this streams group.", rule=at_least(1)),
    ConfigKey("streams.initial.rebalance.delay.ms", INT, "3000",
        "Time this streams group waits for more members before its first assignment.", rule=at_least(0)),
    ConfigKey("streams.num.standby.replicas", INT, "0",
        "Standby copies of each task of this streams group.", rule=at_least(0)),
    ConfigKey("streams.session.timeout.ms", INT, "45000",
        "Time without a heartbeat after which a member of this streams group is removed.",
        rule=at_least(1)),
)
# fmt: on

"""The metadata quorum and its log."""

from broker.config.key import ConfigKey
from broker.config.rules import at_least
from broker.config.values import ConfigType

BOOLEAN = ConfigType.BOOLEAN
INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
STRING = ConfigType.STRING

# Two lines per key; a formatter would make eight.
# fmt: off
QUORUM_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("controller.quorum.voters", LIST, "",
        "Static voters of the metadata quorum, as id@host:port entries."),
    ConfigKey("controller.quorum.bootstrap.servers", LIST, "",
        "Addresses, host:port, of controllers through which a node finds a dynamic quorum and its voters."),
    ConfigKey("controller.quorum.election.timeout.ms", INT, "1000",
        "Time without a reachable leader after which an election is started.", rule=at_least(0)),
    ConfigKey("controller.quorum.election.backoff.max.ms", INT, "1000",
        "Upper bound of the random wait before another election after a failed one.", rule=at_least(0)),
    ConfigKey("controller.quorum.fetch.timeout.ms", INT, "2000",
        "Time without a successful fetch from the leader before a voter becomes a candidate, and without fetches "
        "from a majority before a leader steps down.", rule=at_least(0)),
    ConfigKey("controller.quorum.request.timeout.ms", INT, "2000",
        "Longest wait for a response of another replica of the quorum.", rule=at_least(0)),
    ConfigKey("controller.quorum.retry.backoff.ms", INT, "20",
        "Wait before a failed quorum request is sent again.", rule=at_least(0)),
    ConfigKey("controller.quorum.append.linger.ms", INT, "25",
        "Time the leader collects metadata writes before they are flushed together.", rule=at_least(0)),
    ConfigKey("controller.quorum.auto.join.enable", BOOLEAN, "false",
        "Whether a controller that is not a voter adds itself to the quorum."),
    ConfigKey("controller.socket.timeout.ms", INT, "30000",
        "Socket timeout of requests from the controller to brokers."),
    ConfigKey("controller.performance.always.log.threshold.ms", LONG, "2000",
        "Controller events slower than this are always logged.", rule=at_least(0), internal=True, honoured=False),
    ConfigKey("controller.performance.sample.period.ms", LONG, "60000",
        "Time between two summaries of controller event times.", rule=at_least(100), internal=True, honoured=False),
    ConfigKey("metadata.log.dir", STRING, None,
        "Directory of the metadata log; by default the first of log.dirs."),
    ConfigKey("metadata.log.segment.bytes", INT, "1073741824",
        "Size at which a segment of the metadata log is rolled.", rule=at_least(8388608)),
    ConfigKey("metadata.log.segment.ms", LONG, "604800000",
        "Age at which a segment of the metadata log is rolled."),
    ConfigKey("metadata.log.max.record.bytes.between.snapshots", LONG, "20971520",
        "Bytes of new metadata records after which a snapshot is generated.", rule=at_least(1)),
    ConfigKey("metadata.log.max.snapshot.interval.ms", LONG, "3600000",
        "Age of the last snapshot after which another is generated, if there are new records; 0 turns this off.",
        rule=at_least(0)),
    ConfigKey("metadata.max.idle.interval.ms", INT, "500",
        "Idle time after which the active controller writes a no-op record; 0 writes none.", rule=at_least(0)),
    ConfigKey("metadata.max.retention.bytes", LONG, "104857600",
        "Size of metadata log and snapshots above which old ones are removed."),
    ConfigKey("metadata.max.retention.ms", LONG, "604800000",
        "Age above which metadata log segments and snapshots are removed."),
    ConfigKey("internal.metadata.log.segment.bytes", INT, None,
        "Metadata log segment size for tests, without the lower bound.", internal=True),
    ConfigKey("internal.metadata.max.batch.size.in.bytes", INT, "8388608",
        "Largest batch the metadata log writes.", internal=True),
    ConfigKey("internal.metadata.max.fetch.size.in.bytes", INT, "8388608",
        "Most bytes fetched from the metadata log at a time.", internal=True, honoured=False),
    ConfigKey("internal.metadata.delete.delay.millis", LONG, "60000",
        "Wait before removed files of the metadata log are unlinked.", internal=True, honoured=False),
)
# fmt: on

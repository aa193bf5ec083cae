"""Ottla's own keys, keys that KIP-630 specifies and Kafka never shipped, and keys of Kafka after 4.2."""

from broker.config.key import ConfigKey, Scope
from broker.config.rules import at_least, between, one_of
from broker.config.values import ConfigType

BOOLEAN = ConfigType.BOOLEAN
DOUBLE = ConfigType.DOUBLE
INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
PASSWORD = ConfigType.PASSWORD
STRING = ConfigType.STRING

# Two lines per key; a formatter would make eight.
# fmt: off
OTTLA_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("ottla.http.credentials.location", STRING, "",
        "File with credentials of HTTP clients, one per line: NAME:PASSWORD, or a bearer token without colon; empty "
        "lets in everybody. Health checks need none."),
    ConfigKey("ottla.http.ssl.keystore.location", STRING, "",
        "PEM file with private key and certificate chain of the HTTP listener; empty for HTTP without TLS."),
    ConfigKey("ottla.http.ssl.key.password", PASSWORD, None,
        "Password of that private key."),
    ConfigKey("ottla.http.listener", STRING, "127.0.0.1:9644",
        "Address, host:port, of health checks, metrics and the console; empty for none, port 0 for a free one."),
    ConfigKey("ottla.console.actions.enable", BOOLEAN, "false",
        "Whether the console accepts actions (create, alter, elect, reset offsets), with the rights of the HTTP "
        "credentials; otherwise it is read-only.", scope=Scope.CLUSTER),
    ConfigKey("ottla.slow.request.ms", LONG, "0",
        "Requests that take at least this time, long polls not counted, are logged with the time in each stage; 0 for "
        "none, because the stages of every request have to be measured.", rule=at_least(0), scope=Scope.CLUSTER),
    ConfigKey("ottla.trace.client.id", STRING, "",
        "Client id of the requests that are logged with the time in each stage; a * at its end matches any rest.",
        scope=Scope.CLUSTER),
    ConfigKey("ottla.trace.correlation.id", INT, "-1",
        "Correlation id of the requests that are logged with the time in each stage; -1 for all that the other "
        "filters match.", rule=at_least(-1), scope=Scope.CLUSTER),
    ConfigKey("ottla.trace.apis", LIST, "",
        "APIs, such as Produce or Fetch, of the requests that are logged with the time in each stage; empty for all "
        "that the other filters match.", scope=Scope.CLUSTER),
    ConfigKey("ottla.trace.max.lines.per.second", INT, "10",
        "Lines about slow requests, and lines of traces, that are logged per second; the next line counts those that "
        "were suppressed.", rule=at_least(1), scope=Scope.CLUSTER),
    ConfigKey("ottla.audit.log", STRING, "",
        "File to which the authorizer's decisions are written as JSON lines; empty for none."),
    ConfigKey("ottla.audit.allowed.sample.rate", DOUBLE, "0.01",
        "Share, 0 to 1, of the allowed requests that the audit log shows; it shows all that are denied.",
        rule=between(0, 1)),
    ConfigKey("ottla.audit.log.max.bytes", LONG, "104857600",
        "Size at which the file of the audit log is set aside and another one begins.", rule=at_least(4096)),
    ConfigKey("ottla.audit.log.kept.files", INT, "10",
        "Number of files of the audit log that are kept beside the present one.", rule=at_least(1)),
    ConfigKey("ottla.audit.queued.max.lines", INT, "10000",
        "Lines of the audit log that may wait for the disk; further ones are dropped and counted.", rule=at_least(1)),
    ConfigKey("ottla.brokers.port.step", INT, "10",
        "Distance between the ports of two brokers of one machine (`ottla start --brokers`).", rule=at_least(1)),
    ConfigKey("ottla.scheduling.policy", STRING, "inherit",
        "Scheduling policy of the node: inherit that of the process that starts it, or batch (Linux), under which a "
        "woken node does not interrupt the process that runs on its core. `ottla cluster` and `ottla start --brokers` "
        "set batch.",
        rule=one_of("inherit", "batch")),
    ConfigKey("ottla.otel.endpoint", STRING, "",
        "URL of an OpenTelemetry receiver, http://host:4318, to which the node exports its metrics; /v1/metrics is "
        "added to a URL without a path. Empty for none. Needs pip install 'ottla[otel]'."),
    ConfigKey("ottla.otel.protocol", STRING, "http/protobuf",
        "Protocol of the export.", rule=one_of("http/protobuf")),
    ConfigKey("ottla.otel.interval.ms", LONG, "60000",
        "Pause between two exports of metrics; it doubles with each failure in a row, up to five minutes.",
        rule=at_least(100)),
    ConfigKey("ottla.otel.timeout.ms", LONG, "10000",
        "Time after which an export counts as failed, attempts at repeating it included.", rule=at_least(1)),
    ConfigKey("ottla.otel.max.series", INT, "100000",
        "Most series in one export; further series are left out and counted.", rule=at_least(1)),
    ConfigKey("ottla.otel.resource.attributes", LIST, "",
        "Attributes of the exported resource, NAME=VALUE, beside service.name=ottla and service.instance.id=node.id, "
        "which they may replace."),
    ConfigKey("ottla.otel.headers.location", STRING, "",
        "File with HTTP headers of the export, one per line as NAME: VALUE, such as a token; empty for none."),
    ConfigKey("ottla.otel.traces.enable", BOOLEAN, "false",
        "Whether each request that is logged as slow or as traced also becomes a span, sent to the same receiver; "
        "/v1/traces takes the place of /v1/metrics in the URL."),
    ConfigKey("ottla.otel.traces.interval.ms", LONG, "5000",
        "Pause between two exports of spans; it doubles with each failure in a row, up to five minutes.",
        rule=at_least(100)),
    ConfigKey("ottla.otel.traces.max.spans", INT, "2048",
        "Spans that wait for the next export; when more arrive, the oldest are dropped and counted.",
        rule=at_least(1)),
    ConfigKey("ottla.cluster.metadata.readable", BOOLEAN, "true",
        "Whether ordinary consumers may read the metadata log as the topic __cluster_metadata."),
    ConfigKey("ottla.controller.broker.watch.enable", BOOLEAN, "true",
        "Whether controllers fence a broker at once when its host refuses connections to the broker's port."),
    ConfigKey("ottla.coordinator.snapshot.enable", BOOLEAN, "true",
        "Whether brokers write snapshots of the state of coordinators, beside the logs of __consumer_offsets, "
        "__transaction_state and __share_group_state, and load coordinators from them."),
    ConfigKey("ottla.coordinator.snapshot.interval.ms", LONG, "10000",
        "Pause between two looks whether a snapshot of a coordinator is due.", rule=at_least(100)),
    ConfigKey("ottla.coordinator.snapshot.min.new.records", INT, "20000",
        "Committed records after the last snapshot of a coordinator from which another is due, unless the last one "
        "has more than three times as many records.", rule=at_least(1)),
    ConfigKey("ottla.client.metrics.max.series", INT, "10000",
        "Series of metrics pushed by clients that /metrics shows; further series are dropped and counted.",
        rule=at_least(0)),
    ConfigKey("ottla.controller.quorum.max.observers", INT, "10000",
        "Number of observers (brokers, and controllers that are not voters) whose fetch offsets the leader of the "
        "metadata quorum tracks; beyond it the observer with the oldest fetch is forgotten.", rule=at_least(1)),
    ConfigKey("ottla.authentication.timeout.ms", INT, "60000",
        "Time after which a connection of a SASL listener that has not authenticated is closed.", rule=at_least(1)),
    ConfigKey("ottla.ssl.handshake.timeout.ms", INT, "10000",
        "Time after which a connection whose TLS hand-shake is not complete is closed.", rule=at_least(1)),
    ConfigKey("ottla.ssl.reload.interval.ms", INT, "10000",
        "Time between two checks whether files of key stores and trust stores have changed; changed files are loaded.",
        rule=at_least(1)),
    ConfigKey("ottla.metadata.snapshot.import.uri", STRING, None,
        "Location of metadata snapshots made outside the cluster, a directory or s3://bucket/prefix; a node checks "
        "them and starts or catches up from them."),
    ConfigKey("ottla.metadata.snapshot.import.timeout.ms", INT, "30000",
        "Time per 64 MiB after which a node stops an import of a metadata snapshot and fetches from its leader "
        "instead, and time for which it then does not access the store.", rule=at_least(1000)),
    ConfigKey("ottla.metadata.snapshot.import.max.bytes", LONG, "4294967296",
        "Size of a metadata snapshot above which a node does not import it.", rule=at_least(1)),
    ConfigKey("ottla.metadata.snapshot.compression.type", STRING, "none",
        "Codec of the data batches of metadata snapshots. Replicas write equal files only if it is the same on all.",
        rule=one_of("none", "gzip", "snappy", "lz4", "zstd")),
    ConfigKey("metadata.snapshot.min.changed_records.ratio", DOUBLE, "0.5",
        "Share of records changed since the last snapshot from which another snapshot is generated (KIP-630).",
        rule=between(0, 1)),
    ConfigKey("metadata.start.offset.lag.time.max.ms", LONG, "604800000",
        "Time for which records below a snapshot are kept for a slow replica of the metadata log (KIP-630).",
        rule=at_least(0)),
    ConfigKey("ottla.log.remote.storage.enable", BOOLEAN, "false",
        "Default of remote.storage.enable for topics that do not set it, except internal topics; new topics get the "
        "value as their own config."),
    ConfigKey("ottla.remote.log.unknown.topic.retention.ms", LONG, "604800000",
        "Time for which remote data of an unknown topic, whose deletion was not seen, is kept; -1 keeps it forever.",
        rule=at_least(-1)),
    ConfigKey("ottla.remote.log.collection.grace.ms", LONG, "3600000",
        "Time for which a remote segment must be unreferenced, or a copy by another broker in progress, before it is "
        "deleted. Must be equal on all brokers: a copy is aborted after three quarters of it, or after half an hour.",
        rule=at_least(1_000)),
    ConfigKey("ottla.remote.log.hole.patience.ms", LONG, "600000",
        "Time for which fetches of records that no known remote segment contains get a retriable error, before "
        "consumers skip the records; -1 means forever.", rule=at_least(-1)),
    ConfigKey("ottla.remote.log.metadata.topic.deletion.enable", BOOLEAN, "false",
        "Whether clients may delete the topic __remote_log_metadata while a topic has remote storage; brokers then "
        "forget all remote segments until `ottla remote recover`.", scope=Scope.CLUSTER),
    ConfigKey("ottla.remote.partition.remover.task.interval.ms", LONG, "60000",
        "Time between two checks for remote data of deleted topics (a key of KIP-405 that Kafka does not have).",
        rule=at_least(1)),
    ConfigKey("ottla.remote.fetch.result.retention.ms", LONG, "30000",
        "Time for which a completed remote read is kept for a consumer whose fetch timed out before.",
        rule=at_least(1)),
    ConfigKey("ottla.remote.fetch.result.max.bytes", LONG, "67108864",
        "Memory limit for completed remote reads that wait for their consumers.", rule=at_least(0)),
    ConfigKey("ottla.remote.storage.compacted.enable", BOOLEAN, "false",
        "Whether topics whose cleanup.policy compacts may have remote storage; Kafka always refuses them."),
    ConfigKey("log.remote.copy.lag.ms", LONG, "0",
        "Age of a closed segment from which it is copied to remote storage; 0 copies at once, -1 follows the local "
        "retention (KIP-1241).", rule=at_least(-1), scope=Scope.CLUSTER),
    ConfigKey("log.remote.copy.lag.bytes", LONG, "-1",
        "Size of the log after a segment from which the segment is copied early; -1 follows the local retention "
        "(KIP-1241).", rule=at_least(-1), scope=Scope.CLUSTER),
    ConfigKey("follower.fetch.last.tiered.offset.enable", BOOLEAN, "false",
        "Whether an empty replica starts at the end of remote storage, without records that remote storage has "
        "(KIP-1023).", scope=Scope.CLUSTER),
    ConfigKey("controller.quorum.fetch.max.bytes", INT, "1048576",
        "Most bytes of the metadata log in one fetch response; a single larger batch is returned whole (KIP-1219).",
        rule=at_least(1)),
    ConfigKey("controller.quorum.fetch.snapshot.max.bytes", INT, "1048576",
        "Most bytes of a metadata snapshot in one FetchSnapshot response (KIP-1219).", rule=at_least(1)),
)
# fmt: on

"""The settings of topic-based remote metadata: keys without their prefix `rlmm.config.`.

Kafka's keys have Kafka's defaults. Keys of Kafka's clients apply where they have a meaning here; additional keys begin
with `ottla.`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from broker.metadata.image.topic_names import REMOTE_LOG_METADATA_TOPIC
from broker.sasl.client.login_settings import LOGIN_KEYS
from broker.tls.keys import TLS_KEYS
from protocol.lazy_dataclass import lazy_dataclass

_COMMON: Final = "remote.log.metadata.common.client."
_PRODUCER: Final = "remote.log.metadata.producer."
_CONSUMER: Final = "remote.log.metadata.consumer."
_ADMIN: Final = "remote.log.metadata.admin."
CLIENT_PREFIXES: Final = (_COMMON, _PRODUCER, _CONSUMER, _ADMIN)
DEFAULT_PREFIX: Final = "rlmm.config."
_FIXED: Final = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "client.id",
        "enable.auto.commit",
        "enable.idempotence",
        "group.id",
        "key.deserializer",
        "key.serializer",
        "value.deserializer",
        "value.serializer",
    }
)
"""Settings of clients that Kafka overrides, too."""

TOPIC: Final = REMOTE_LOG_METADATA_TOPIC


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMetadataSettings:
    """Settings named like their keys; times are in ms. `warnings` has a sentence for each key without effect."""

    topic_num_partitions: int
    topic_replication_factor: int
    topic_retention_ms: int
    topic_min_isr: int
    consume_wait_ms: int
    """Time in which an event must be read back."""
    initialization_retry_interval_ms: int
    initialization_retry_max_timeout_ms: int
    """Time after which a failing topic creation is logged as an error; attempts continue."""
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    producer_batch_bytes: int
    max_pending_events: int
    """`ottla.publish.max.pending`: limit of events that wait to be published or read back, for all partitions."""
    snapshot_interval_ms: int
    prune_interval_ms: int
    prune_min_records: int
    """Number of records from which a partition of the topic is pruned; 0 disables pruning."""
    security_protocol: str | None
    """The protocol of the listener, if it is given."""
    warnings: tuple[str, ...] = ()

    @property
    def is_pruned(self) -> bool:
        return self.prune_min_records > 0


def parse_remote_metadata_settings(given: Mapping[str, str], prefix: str = DEFAULT_PREFIX) -> RemoteMetadataSettings:
    """Parse values by key, without the prefix. Raises ValueError with one sentence that names the key."""
    reader = _Reader(given, prefix)
    for name in (*TLS_KEYS, *LOGIN_KEYS):  # read by `client_tls_settings` and `client_sasl_settings`
        reader.text(_client(name, _PRODUCER, _CONSUMER))
    number = reader.number
    settings = RemoteMetadataSettings(
        topic_num_partitions=number(["remote.log.metadata.topic.num.partitions"], 50, 1),
        topic_replication_factor=number(["remote.log.metadata.topic.replication.factor"], 3, 1),
        topic_retention_ms=number(["remote.log.metadata.topic.retention.ms"], -1, -1),
        topic_min_isr=number(["remote.log.metadata.topic.min.isr"], 2, 1),
        consume_wait_ms=number(["remote.log.metadata.consume.wait.ms"], 120_000, 0),
        initialization_retry_interval_ms=number(["remote.log.metadata.initialization.retry.interval.ms"], 100, 1),
        initialization_retry_max_timeout_ms=number(
            ["remote.log.metadata.initialization.retry.max.timeout.ms"], 120_000, 0
        ),
        request_timeout_ms=number(_client("request.timeout.ms", _PRODUCER, _CONSUMER), 30_000, 1),
        retry_backoff_ms=number(_client("retry.backoff.ms", _PRODUCER, _CONSUMER), 100, 1),
        retry_backoff_max_ms=number(_client("retry.backoff.max.ms", _PRODUCER, _CONSUMER), 1_000, 1),
        fetch_max_wait_ms=number(_client("fetch.max.wait.ms", _CONSUMER), 500, 0),
        fetch_max_bytes=number(_client("fetch.max.bytes", _CONSUMER), 52_428_800, 1),
        max_partition_fetch_bytes=number(_client("max.partition.fetch.bytes", _CONSUMER), 1_048_576, 1),
        producer_batch_bytes=number(_client("batch.size", _PRODUCER), 262_144, 1),
        max_pending_events=number(["ottla.publish.max.pending"], 100_000, 1),
        snapshot_interval_ms=number(["ottla.snapshot.interval.ms"], 60_000, 1),
        prune_interval_ms=number(["ottla.prune.interval.ms"], 30_000, 1),
        prune_min_records=number(["ottla.prune.min.records"], 20_000, 0),
        security_protocol=reader.text(_client("security.protocol", _PRODUCER, _CONSUMER)),
        warnings=reader.warnings(),
    )
    if settings.retry_backoff_max_ms < settings.retry_backoff_ms:
        raise ValueError(f"{prefix}{_COMMON}retry.backoff.max.ms must not be below retry.backoff.ms.")
    return settings


def client_tls_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the `ssl.*` settings of the clients, by key without prefix, from values by key.

    They take precedence over those of the listener that the broker connects to.
    """
    return _client_texts(given, TLS_KEYS)


def client_sasl_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the `sasl.*` settings of the clients like `client_tls_settings`; some are secrets."""
    return _client_texts(given, LOGIN_KEYS)


def _client_texts(given: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    reader = _Reader(given, "")
    found = {name: reader.text(_client(name, _PRODUCER, _CONSUMER)) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def client_spelling(given: Mapping[str, str], name: str) -> str:
    """Return the key under which an `ssl.*` or `sasl.*` setting of the clients is given."""
    return next((key for key in _client(name, _PRODUCER, _CONSUMER) if key in given), name)


def _client(name: str, *prefixes: str) -> list[str]:
    """Return the keys of a client setting: special prefixes before the common one."""
    return [*(prefix + name for prefix in prefixes), _COMMON + name]


class _Reader:
    def __init__(self, given: Mapping[str, str], prefix: str) -> None:
        self._given = given
        self._prefix = prefix
        self._known: set[str] = set()
        self._hidden: dict[str, str] = {}  # keys of a value that another key decides

    def text(self, keys: list[str]) -> str | None:
        """Return the value of the first of `keys` that is given."""
        self._known.update(keys)
        return next((self._given[key] for key in keys if key in self._given), None)

    def number(self, keys: list[str], default: int, least: int) -> int:
        """Return the value of the first of `keys` that is given."""
        self._known.update(keys)
        key = next((key for key in keys if key in self._given), None)
        if key is None:
            return default
        self._hidden |= {each: key for each in keys if self._given.get(each, self._given[key]) != self._given[key]}
        text = self._given[key].strip()
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{self._prefix}{key} must be a whole number, not '{text}'.") from None
        if value < least:
            raise ValueError(f"{self._prefix}{key} must be at least {least}, not {value}.")
        return value

    def warnings(self) -> tuple[str, ...]:
        """Return one sentence for each key that has no effect."""
        return tuple(self._warning(key) for key in sorted(self._given) if key not in self._known or key in self._hidden)

    def _warning(self, key: str) -> str:
        name = self._prefix + key
        if key in self._hidden:
            return f"{name} has no effect: {self._prefix}{self._hidden[key]} decides for all requests."
        if key.startswith(CLIENT_PREFIXES):
            return f"{name} has no effect: {_reason(key)}."
        return f"{name} is not a setting of the topic-based remote metadata manager and has no effect."


def _reason(key: str) -> str:
    """Return why a setting of Kafka's clients has no effect."""
    name = key.removeprefix(next(prefix for prefix in CLIENT_PREFIXES if key.startswith(prefix)))
    if name.startswith(("security.", "ssl.", "sasl.", "bootstrap.", "client.dns", "socket.", "connections.")):
        return "the broker uses the connections of the listener remote.log.metadata.manager.listener.name"
    if name in _FIXED:
        return "the value is fixed"
    return "the broker reads and writes the metadata topic without Kafka's clients"

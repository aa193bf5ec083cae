"""Client metrics subscriptions and client instances (KIP-714).

A client asks for its subscription (GetTelemetrySubscriptions): the union of those that match it, with the shortest
interval. It then pushes metrics (PushTelemetry) once per interval. A client that comes earlier is told that it is
throttled, except for the first push after its subscription, a last push, and another try after an error that it can
correct. Changed subscriptions give a client a new subscription id, and its next push fails with
UNKNOWN_SUBSCRIPTION_ID.

State is this broker's own: clients stay with one broker, and another one learns of them at their next request.
Instances leave when their connection closes, and after three intervals without a request, a minute at least.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from broker.config.client_metrics_config import matching_patterns, validate_client_metrics_configs
from broker.config.errors import ConfigError
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.telemetry.otlp import number_points
from broker.telemetry.received_metrics import CLIENT_LABELS, TEXT_MAX, ReceivedMetrics
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import ONE_UUID, ZERO_UUID, Buffer, Uuid, uuid_to_text
from protocol.records.compiled import crc32c
from protocol.records.compression import Codec, decompress
from protocol.records.errors import MalformedRecords

ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000
INSTANCES_MAX: Final = 16_384
EXPIRATION_MS: Final = 60_000
DECOMPRESSED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Size of decompressed metrics; small pushes could otherwise fill the memory."""

ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
_CORRECTABLE: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_SWEEP_INTERVAL_MS: Final = 10_000


class TelemetryClient(NamedTuple):
    """The sender of a request, as subscriptions match it. `connection_id` is unique among connections."""

    client_id: str
    software_name: str
    software_version: str
    host: str
    port: int
    connection_id: str


class ClientPush(NamedTuple):
    """The content of a PushTelemetry request."""

    instance_id: Uuid
    subscription_id: int
    is_terminating: bool
    codec: int
    metrics: Buffer


@lazy_dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """A stored subscription: prefixes of metrics, the interval, and patterns by attribute, all of which must match."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, re.Pattern[str]]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Whether a client with these attributes is subscribed."""
        return all(pattern.fullmatch(attributes[name]) for name, pattern in self.patterns.items())


@lazy_dataclass(slots=True, eq=False)
class ClientInstance:
    """A client with its subscription. Times are monotonic milliseconds, None before the first request of their kind."""

    id: Uuid
    attributes: Mapping[str, str]
    version: int
    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int
    connection_id: str
    seen_ms: float
    get_ms: float | None = None
    push_ms: float | None = None
    may_push_early: bool = False
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the client's series."""
        return {name: self.attributes[name][:TEXT_MAX] for name in CLIENT_LABELS}

    def may_get(self, now_ms: float) -> bool:
        """Whether the client may ask for its subscription; note that it did."""
        last = max((at for at in (self.get_ms, self.push_ms) if at is not None), default=None)
        if last is not None and now_ms - last < self.interval_ms and self.last_error not in _CORRECTABLE:
            return False
        self.get_ms = now_ms
        self.may_push_early = True
        return True

    def may_push(self, now_ms: float) -> bool:
        """Whether the client may push; note that it did. The first push after a subscription may come at once."""
        is_early = self.push_ms is not None and now_ms - self.push_ms < self.interval_ms
        if is_early and not self.may_push_early:
            return False
        self.push_ms = now_ms
        self.may_push_early = False
        return True

    def is_expired(self, now_ms: float) -> bool:
        return now_ms - self.seen_ms >= max(EXPIRATION_MS, 3 * self.interval_ms)


@lazy_dataclass(slots=True)
class TelemetryCounts:
    """Requests since the start: refused for their time, with an unknown subscription, accepted, undecodable."""

    throttled: int = 0
    unknown_subscriptions: int = 0
    pushes: int = 0
    errors: int = 0


@lazy_dataclass(slots=True)
class ClientMetrics:
    """The client metrics of a broker. Install as a metadata publisher.

    `max_bytes` limits a push as it arrives (`telemetry.max.bytes`). `new_id` returns a random UUID.
    """

    received: ReceivedMetrics
    max_bytes: int
    new_id: Callable[[], Uuid]
    counts: TelemetryCounts = field(default_factory=TelemetryCounts)
    _subscriptions: dict[str, MetricsSubscription] = field(default_factory=dict)
    _version: int = 0
    _instances: dict[Uuid, ClientInstance] = field(default_factory=dict)  # least recently seen first
    _by_connection: dict[str, Uuid] = field(default_factory=dict)
    _swept_ms: float = 0.0

    @property
    def instance_count(self) -> int:
        """The number of client instances."""
        return len(self._instances)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changed subscriptions."""
        if delta.configs is None:
            return
        for resource in delta.configs.changed_resources:
            if resource.type == ResourceType.CLIENT_METRICS:
                self._set(resource.name, image.configs.of(resource.type, resource.name))

    def subscribe(self, given_id: Uuid, client: TelemetryClient, now_ms: float) -> ClientInstance:
        """Return the instance of a client, a new one for id zero. Raises KafkaError THROTTLING_QUOTA_EXCEEDED."""
        instance = self._instance(self.new_id() if given_id == ZERO_UUID else given_id, client, now_ms)
        if not instance.may_get(now_ms):
            self.counts.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over yet")
        instance.last_error = ErrorCode.NONE
        return instance

    def push(self, push: ClientPush, client: TelemetryClient, now_ms: float) -> None:
        """Take the metrics of a client. Raises KafkaError."""
        if push.instance_id in (ZERO_UUID, ONE_UUID):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client instance id is reserved")
        instance = self._instance(push.instance_id, client, now_ms)
        try:
            self._check(instance, push, now_ms)
            self._take(instance, push)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.is_terminating = push.is_terminating
        instance.last_error = ErrorCode.NONE

    def on_request(self, connection_id: str) -> bool:
        """Note a request of a connection. Return whether the caller must see to a call of `on_disconnect`."""
        if connection_id in self._by_connection:
            return False
        self._by_connection[connection_id] = ZERO_UUID
        return True

    def on_disconnect(self, connection_id: str) -> None:
        """Forget the instance of a closed connection."""
        instance_id = self._by_connection.pop(connection_id, None)
        instance = None if instance_id is None else self._instances.get(instance_id)
        if instance is not None and instance.connection_id == connection_id:
            self._forget(instance)

    def sweep(self, now_ms: float) -> None:
        """Forget the instances that have expired."""
        self._swept_ms = now_ms
        for instance in [each for each in self._instances.values() if each.is_expired(now_ms)]:
            self._forget(instance)

    def _check(self, instance: ClientInstance, push: ClientPush, now_ms: float) -> None:
        if instance.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has sent its last push")
        if not instance.may_push(now_ms) and not push.is_terminating:
            self.counts.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over yet")
        if push.subscription_id != instance.subscription_id:
            self.counts.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.codec not in tuple(Codec):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(push.metrics) > self.max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"a push has at most {self.max_bytes} bytes")

    def _take(self, instance: ClientInstance, push: ClientPush) -> None:
        if not len(push.metrics):
            return
        try:
            data = memoryview(decompress(push.codec, push.metrics, DECOMPRESSED_BYTES_MAX))
            self.received.add(instance.id, instance.labels, list(number_points(data)))
        except (DecodeError, MalformedRecords) as error:
            self.counts.errors += 1
            raise KafkaError(ErrorCode.INVALID_RECORD, f"the metrics cannot be decoded: {error}") from error
        self.counts.pushes += 1

    def _instance(self, instance_id: Uuid, client: TelemetryClient, now_ms: float) -> ClientInstance:
        instance = self._instances.pop(instance_id, None)
        if instance is None or instance.version != self._version:
            if now_ms - self._swept_ms >= _SWEEP_INTERVAL_MS:
                self.sweep(now_ms)
            attributes = _attributes(instance_id, client) if instance is None else instance.attributes
            instance = self._new_instance(instance_id, attributes, client.connection_id, now_ms)
        instance.seen_ms = now_ms
        instance.connection_id = client.connection_id
        self._instances[instance_id] = instance
        if client.connection_id in self._by_connection:
            self._by_connection[client.connection_id] = instance_id
        if len(self._instances) > INSTANCES_MAX:
            self._forget(next(iter(self._instances.values())))
        return instance

    def _new_instance(
        self, instance_id: Uuid, attributes: Mapping[str, str], connection_id: str, now_ms: float
    ) -> ClientInstance:
        matching = [each for each in self._subscriptions.values() if each.matches(attributes)]
        metrics = {metric for each in matching for metric in each.metrics}
        wanted = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
        subscription_id = _subscription_id(wanted, interval_ms, instance_id)
        return ClientInstance(
            instance_id, attributes, self._version, subscription_id, wanted, interval_ms, connection_id, now_ms
        )

    def _set(self, name: str, configs: Mapping[str, str]) -> None:
        if not configs:
            self._version += self._subscriptions.pop(name, None) is not None
            return
        try:
            values = validate_client_metrics_configs(configs)
        except ConfigError:  # written by another version: refused when it is set here
            return
        metrics, interval_ms = values["metrics"], values["interval.ms"]
        assert isinstance(metrics, tuple)
        assert isinstance(interval_ms, int)
        self._subscriptions[name] = MetricsSubscription(metrics, interval_ms, matching_patterns(values["match"]))
        self._version += 1

    def _forget(self, instance: ClientInstance) -> None:
        self._instances.pop(instance.id, None)
        self.received.forget(instance.id)


def _attributes(instance_id: Uuid, client: TelemetryClient) -> dict[str, str]:
    return {
        "client_instance_id": uuid_to_text(instance_id),
        "client_id": client.client_id,
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.host,
        "client_source_port": str(client.port),
    }


def _subscription_id(metrics: Sequence[str], interval_ms: int, instance_id: Uuid) -> int:
    """Return a signed 32-bit id that changes with metrics, interval and client."""
    unsigned = crc32c(f"{','.join(metrics)} {interval_ms}".encode() + instance_id)
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned

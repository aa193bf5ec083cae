"""Client metrics: subscriptions, client instances, pushes, and their limits (KIP-714)."""

import itertools
from collections.abc import Mapping

import pytest

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.telemetry import client_metrics, received_metrics
from broker.telemetry.client_metrics import (
    DEFAULT_INTERVAL_MS,
    ClientInstance,
    ClientMetrics,
    ClientPush,
    TelemetryClient,
)
from broker.telemetry.received_metrics import ReceivedMetrics
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata_records import ConfigRecord
from protocol.primitives import ONE_UUID, ZERO_UUID, Uuid
from protocol.records.compression import Codec, compress
from tests.broker.telemetry.pushed_metrics import counter, gauge, metrics_data, point

APP = TelemetryClient("app", "librdkafka", "2.6.0", "10.0.0.1", 5000, "connection-1")
CLIENT_METRICS = 16
METRICS = metrics_data([counter("org.apache.kafka.producer.record.total", point(5, {"topic": "t"}))])


class Broker:
    """The client metrics of a broker at a time that the test sets."""

    def __init__(self, *, series_max: int = 1_000, max_bytes: int = 1_000) -> None:
        numbers = itertools.count(100)
        self.metrics = ClientMetrics(ReceivedMetrics(series_max), max_bytes, lambda: Uuid(next(numbers).to_bytes(16)))
        self.image = MetadataImage()
        self.now_ms = 0.0

    def configure(self, name: str, configs: Mapping[str, str | None]) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all(ConfigRecord(CLIENT_METRICS, name, key, value) for key, value in configs.items())
        self.image = delta.apply(self.image.provenance)
        self.metrics.on_metadata(delta, self.image)

    def subscribe(self, instance_id: Uuid = ZERO_UUID, client: TelemetryClient = APP) -> ClientInstance:
        self.metrics.on_request(client.connection_id)
        return self.metrics.subscribe(instance_id, client, self.now_ms)

    def push(
        self,
        instance: ClientInstance,
        data: bytes = METRICS,
        *,
        codec: int = Codec.NONE,
        subscription_id: int | None = None,
        is_terminating: bool = False,
    ) -> ErrorCode:
        number = instance.subscription_id if subscription_id is None else subscription_id
        try:
            self.metrics.push(ClientPush(instance.id, number, is_terminating, codec, data), APP, self.now_ms)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def values(self) -> dict[str, float]:
        return {series.name: series.value for series in self.metrics.received.series()}


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.configure("all", {"metrics": "*", "interval.ms": "1000"})
    return broker


class TestSubscriptions:
    def test_client_without_subscription_pushes_nothing(self) -> None:
        instance = Broker().subscribe()
        assert (instance.metrics, instance.interval_ms) == ((), DEFAULT_INTERVAL_MS)

    def test_matching_subscriptions_are_united(self) -> None:
        broker = Broker()
        broker.configure("a", {"metrics": "x.,y.", "interval.ms": "5000", "match": "client_id=app"})
        broker.configure("b", {"metrics": "y.,z.", "interval.ms": "3000", "match": "client_software_version=2\\..*"})
        broker.configure("c", {"metrics": "*", "interval.ms": "100", "match": "client_id=app,client_source_port=1"})
        instance = broker.subscribe()
        assert (instance.metrics, instance.interval_ms) == (("x.", "y.", "z."), 3_000)

    def test_pattern_matches_the_whole_attribute(self) -> None:
        broker = Broker()
        broker.configure("a", {"metrics": "x", "match": "client_id=ap"})
        assert broker.subscribe().metrics == ()

    def test_all_metrics_stand_for_every_prefix(self, broker: Broker) -> None:
        broker.configure("more", {"metrics": "x."})
        assert broker.subscribe().metrics == ("*",)

    def test_new_client_gets_an_id_and_keeps_it(self, broker: Broker) -> None:
        first = broker.subscribe()
        broker.now_ms += 1_000
        assert broker.subscribe(first.id).id == first.id != broker.subscribe().id

    def test_changed_subscription_has_another_id_at_once(self, broker: Broker) -> None:
        first = broker.subscribe()
        broker.configure("more", {"metrics": "*", "interval.ms": "500"})
        assert broker.push(first) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        second = broker.subscribe(first.id)
        assert (second.interval_ms, second.subscription_id == first.subscription_id) == (500, False)
        assert broker.push(second) == ErrorCode.NONE

    def test_removed_subscription_ends_the_pushes(self, broker: Broker) -> None:
        instance = broker.subscribe()
        broker.configure("all", {"metrics": None, "interval.ms": None})
        assert broker.push(instance) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert broker.subscribe(instance.id).metrics == ()


class TestPushes:
    def test_first_push_may_follow_the_subscription_at_once(self, broker: Broker) -> None:
        instance = broker.subscribe()
        assert broker.push(instance) == ErrorCode.NONE
        assert broker.values() == {"kafka_client_producer_record_total": 5.0}

    def test_early_requests_are_throttled(self, broker: Broker) -> None:
        instance = broker.subscribe()
        with pytest.raises(KafkaError, match="not over"):
            broker.subscribe(instance.id)
        assert broker.push(instance) == ErrorCode.NONE
        broker.now_ms += 999
        assert broker.push(instance) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        broker.now_ms += 1
        assert broker.push(instance) == ErrorCode.NONE
        assert broker.metrics.counts.throttled == 2

    def test_last_push_may_be_early_and_ends_the_instance(self, broker: Broker) -> None:
        instance = broker.subscribe()
        assert [broker.push(instance), broker.push(instance, is_terminating=True)] == [ErrorCode.NONE] * 2
        broker.now_ms += 1_000
        assert broker.push(instance) == ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize("codec", list(Codec))
    def test_compressed_metrics_are_taken(self, broker: Broker, codec: Codec) -> None:
        assert broker.push(broker.subscribe(), compress(codec, METRICS), codec=codec) == ErrorCode.NONE
        assert len(broker.values()) == 1

    def test_invalid_pushes_are_refused(self, broker: Broker) -> None:
        assert broker.push(broker.subscribe(), subscription_id=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        for codec, data, code in (
            (9, METRICS, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            (Codec.NONE, bytes(1_001), ErrorCode.TELEMETRY_TOO_LARGE),
            (Codec.NONE, b"\x0a\x05a", ErrorCode.INVALID_RECORD),
            (Codec.ZSTD, b"no zstd", ErrorCode.INVALID_RECORD),
        ):
            assert broker.push(broker.subscribe(), data, codec=codec) == code
        for reserved in (ZERO_UUID, ONE_UUID):
            push = ClientPush(reserved, 0, False, 0, b"")
            with pytest.raises(KafkaError, match="reserved"):
                broker.metrics.push(push, APP, 0.0)
        assert broker.values() == {}

    def test_client_may_correct_an_unknown_subscription_at_once(self, broker: Broker) -> None:
        instance = broker.subscribe()
        assert broker.push(instance, subscription_id=1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert broker.push(broker.subscribe(instance.id)) == ErrorCode.NONE

    def test_decompressed_size_is_limited(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client_metrics, "DECOMPRESSED_BYTES_MAX", 100_000)
        bomb = compress(Codec.ZSTD, bytes(200_000))
        assert broker.push(broker.subscribe(), bomb, codec=Codec.ZSTD) == ErrorCode.INVALID_RECORD


class TestSeries:
    def test_deltas_are_added_up(self, broker: Broker) -> None:
        instance = broker.subscribe()
        for _ in range(3):
            assert broker.push(instance) == ErrorCode.NONE
            broker.now_ms += 1_000
        assert broker.values() == {"kafka_client_producer_record_total": 15.0}

    def test_labels_name_client_and_attributes(self, broker: Broker) -> None:
        data = metrics_data([gauge("some-lib.queue.total", point(1.5, {"client_id": "liar", "node.id": "3"}))])
        broker.push(broker.subscribe(), data)
        [series] = broker.metrics.received.series()
        assert (series.name, series.is_counter, series.value) == ("kafka_client_some_lib_queue", False, 1.5)
        assert (
            series.labels.items() >= {"client_id": "app", "node_id": "3", "client_software_name": "librdkafka"}.items()
        )

    def test_series_are_limited_in_total_and_by_client(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(received_metrics, "SERIES_PER_CLIENT_MAX", 3)
        broker = Broker(series_max=4)
        broker.configure("all", {"metrics": "*"})
        many = metrics_data([gauge(f"m{number}", point(1)) for number in range(10)])
        counts = []
        for _ in range(2):
            assert broker.push(broker.subscribe(), many) == ErrorCode.NONE
            counts.append(broker.metrics.received.count)
        assert (counts, broker.metrics.received.dropped) == ([3, 4], 16)

    def test_series_leave_with_the_connection(self, broker: Broker) -> None:
        broker.push(broker.subscribe())
        assert not broker.metrics.on_request(APP.connection_id)
        broker.metrics.on_disconnect(APP.connection_id)
        assert (broker.values(), broker.metrics.instance_count, broker.metrics.received.count) == ({}, 0, 0)

    def test_instance_stays_with_its_latest_connection(self, broker: Broker) -> None:
        instance = broker.subscribe()
        broker.now_ms += 1_000
        broker.subscribe(instance.id, APP._replace(connection_id="connection-2"))
        broker.metrics.on_disconnect(APP.connection_id)
        assert broker.metrics.instance_count == 1

    def test_silent_instance_expires(self, broker: Broker) -> None:
        broker.push(broker.subscribe())
        broker.metrics.sweep(59_999.0)
        assert len(broker.values()) == 1
        broker.metrics.sweep(60_000.0)
        assert broker.values() == {}

    def test_instances_are_limited(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client_metrics, "INSTANCES_MAX", 5)
        for _ in range(20):
            broker.push(broker.subscribe())
        assert (broker.metrics.instance_count, broker.metrics.received.count) == (5, 5)

"""Fetches by consumers with a quota: empty responses, their sessions, and what is charged (KIP-13, KIP-219)."""

import pytest

from broker.api.pipeline.quota import ClientThrottle
from broker.metadata.image.quota_image import quota_entity
from broker.quotas.client_quotas import BrokerQuotas
from broker.rates.windowed_rate import QuotaWindows
from tests.broker.api.records.test_fetch import Reader, at, base_offsets, entries, only
from tests.support.harnesses.data_plane import DataPlane

ALL_WINDOWS_MS = 11_000
VALUE = b"v" * 4_000


class Consumer(Reader):
    """A reader whose client may fetch 1000 bytes per second: 10000 at once after a pause."""

    def __init__(self, node: DataPlane) -> None:
        super().__init__(node)
        self.quotas = BrokerQuotas(QuotaWindows())
        self.limit(1_000.0)
        self.handler = node.fetch_handler(client_quota=ClientThrottle(self.quotas, node.clock))

    def limit(self, rate: float | None) -> None:
        self.quotas.fetch.set_rate(quota_entity({"client-id": "client"}), rate)


@pytest.fixture
def node() -> DataPlane:
    node = DataPlane()
    node.create_topic()
    for _ in range(5):
        node.produce(VALUE)
    return node


@pytest.fixture
def consumer(node: DataPlane) -> Consumer:
    return Consumer(node)


def test_response_is_limited_to_what_passes_at_once(consumer: Consumer) -> None:
    answer = consumer.fetch(at(0))
    assert base_offsets(only(answer)) == [0, 1]
    assert (answer.value.throttle_time_ms, consumer.context.connection.mute_ms) == (0, 0)


def test_fetch_above_the_quota_is_empty_and_names_its_throttle_time(node: DataPlane, consumer: Consumer) -> None:
    consumer.fetch(at(0))
    throttled = consumer.fetch(at(2), session=(0, 0)).value
    assert (throttled.responses, throttled.session_id, throttled.error_code) == ([], 0, 0)
    assert throttled.throttle_time_ms == consumer.context.connection.mute_ms > 5_000
    node.advance_ms(ALL_WINDOWS_MS)
    assert base_offsets(only(consumer.fetch(at(2)))) == [2, 3]


def test_session_survives_a_throttled_fetch(node: DataPlane, consumer: Consumer) -> None:
    session = consumer.fetch(at(0), session=(0, 0)).value.session_id
    throttled = consumer.fetch(at(2), session=(session, 1)).value
    assert (throttled.responses, throttled.session_id) == ([], session)
    node.advance_ms(ALL_WINDOWS_MS)
    assert base_offsets(only(consumer.fetch(session=(session, 2)))) == [2, 3]


def test_changed_high_watermark_is_told_after_the_throttling(node: DataPlane, consumer: Consumer) -> None:
    session = consumer.fetch(at(0), session=(0, 0)).value.session_id
    assert consumer.fetch(at(5), session=(session, 1)).value.responses == []
    node.produce(VALUE)
    consumer.fetch(session=(session, 2))
    node.advance_ms(ALL_WINDOWS_MS)
    assert only(consumer.fetch(session=(session, 3))).high_watermark == 6


def test_batch_above_the_whole_quota_is_delivered(consumer: Consumer) -> None:
    consumer.limit(10.0)
    assert base_offsets(only(consumer.fetch(at(0)))) == [0]
    assert consumer.fetch(at(1)).value.throttle_time_ms > 0


def test_followers_are_exempt(node: DataPlane, consumer: Consumer) -> None:
    node.create_topic("replicated", replicas=(1, 2), isr=(1, 2))
    for _ in range(5):
        node.produce(VALUE, topic="replicated")
    for _ in range(3):
        answer = consumer.fetch(at(0), topic="replicated", replica=2)
        assert len(base_offsets(only(answer))) == 5
    assert consumer.context.request.is_quota_exempt
    assert len(consumer.quotas.fetch) == 0


def test_removed_quota_limits_nothing(consumer: Consumer) -> None:
    consumer.fetch(at(0))
    consumer.limit(None)
    assert len(base_offsets(entries(consumer.fetch(at(0)))[0])) == 5

"""Client quotas: precedence, sharing, throttle times, and bounded memory."""

import pytest

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.quota_image import quota_entity, quota_record
from broker.quotas.client_quotas import (
    BrokerQuotas,
    ClientQuotaManager,
    QuotaClient,
    percent_of_loop,
    quota_client,
)
from broker.rates import sensor_table
from broker.rates.sensor_table import SENSOR_EXPIRATION_MS
from broker.rates.windowed_rate import QuotaWindows

ALICE = QuotaClient("alice", "app")
WINDOWS = QuotaWindows()


def manager(*limits: tuple[dict[str, str | None], float]) -> ClientQuotaManager:
    made = ClientQuotaManager(WINDOWS)
    for entity, rate in limits:
        made.set_rate(quota_entity(entity), rate)
    return made


def test_client_of_a_request_is_its_principal_without_type() -> None:
    assert quota_client("User:ANONYMOUS", None) == ("ANONYMOUS", "")
    assert quota_client("User:CN=a:b", "app") == ("CN=a:b", "app")


def test_client_without_quota_has_no_sensor() -> None:
    quotas = manager(({"user": "bob"}, 1.0))
    assert quotas.charge(ALICE, 1e9, 0.0) == 0
    assert quotas.burst(ALICE) is None
    assert len(quotas) == 0


def test_most_specific_quota_decides() -> None:
    quotas = manager(({"user": "alice"}, 1_000.0), ({"user": "alice", "client-id": "app"}, 500.0))
    assert quotas.charge(ALICE, 10_000, 0.0) == 10_000
    assert quotas.charge(QuotaClient("alice", "other"), 10_000, 0.0) == 0


def test_clients_of_a_user_quota_share_it() -> None:
    quotas = manager(({"user": "alice"}, 1_000.0))
    assert quotas.charge(ALICE, 10_000, 0.0) == 0
    assert quotas.charge(QuotaClient("alice", "other"), 1_000, 0.0) == 1_000
    assert len(quotas) == 1


def test_clients_of_a_default_quota_have_it_each() -> None:
    quotas = manager(({"client-id": None}, 1_000.0))
    assert quotas.charge(ALICE, 10_000, 0.0) == 0
    assert quotas.charge(QuotaClient("alice", "other"), 10_000, 0.0) == 0


def test_changed_quota_applies_to_the_next_request() -> None:
    quotas = manager(({"user": "alice"}, 1_000.0))
    assert quotas.charge(ALICE, 20_000, 0.0) == 10_000
    quotas.set_rate(quota_entity({"user": "alice"}), 2_000.0)
    assert quotas.charge(ALICE, 0, 0.0) == 0
    quotas.set_rate(quota_entity({"user": "alice"}), None)
    assert not quotas.is_enabled
    assert quotas.charge(ALICE, 1e12, 0.0) == 0


def test_request_throttle_is_limited_to_one_window() -> None:
    quotas = BrokerQuotas(WINDOWS)
    quotas.request.set_rate(quota_entity({"client-id": "app"}), 1.0)
    assert quotas.request.charge(ALICE, percent_of_loop(60_000), 0.0) == 1_000


def test_refused_delivery_is_not_charged() -> None:
    quotas = manager(({"user": "alice"}, 1_000.0))
    assert quotas.charge_delivery(ALICE, 9_000, 0.0) == 0
    assert quotas.charge_delivery(ALICE, 4_000, 0.0) == 3_000
    assert quotas.charge_delivery(ALICE, 1_000, 0.0) == 0


def test_delivery_above_the_whole_quota_passes_after_a_pause() -> None:
    quotas = manager(({"user": "alice"}, 1_000.0))
    assert quotas.charge_delivery(ALICE, 50_000, 0.0) == 0
    assert quotas.charge_delivery(ALICE, 1, 0.0) > 0


@pytest.mark.parametrize("windows", [QuotaWindows(2, 1_000), QuotaWindows(11, 1_000)])
@pytest.mark.parametrize("response_bytes", [10_000, 40_200, 50_200, 200_000])
@pytest.mark.parametrize("round_trip_ms", [0.5, 5.0])
def test_deliveries_use_their_whole_quota_and_no_more(
    windows: QuotaWindows, response_bytes: int, round_trip_ms: float
) -> None:
    rate, seconds, now_ms, total = 1_000_000.0, 600, 0.0, 0
    quotas = ClientQuotaManager(windows)
    quotas.set_rate(quota_entity({"user": "alice"}), rate)
    while now_ms < seconds * 1000:
        throttle_ms = quotas.charge_delivery(ALICE, response_bytes, now_ms)
        total += response_bytes if throttle_ms == 0 else 0
        now_ms += throttle_ms + round_trip_ms
    assert 0.985 * rate * seconds <= total <= rate * (seconds + windows.burst_s) + response_bytes


def test_wait_after_a_refusal_counts_for_one_window_at_most() -> None:
    quotas = ClientQuotaManager(QuotaWindows(2, 1_000))
    quotas.set_rate(quota_entity({"user": "alice"}), 1_000.0)
    assert quotas.charge_delivery(ALICE, 1_000, 0.0) == 0
    assert quotas.charge_delivery(ALICE, 500, 0.0) == 500
    assert quotas.charge_delivery(ALICE, 1_000, 10_000.0) == 0
    assert quotas.charge_delivery(ALICE, 500, 10_000.0) == 500


def test_unused_sensor_expires() -> None:
    quotas = manager(({"client-id": None}, 1.0))
    quotas.charge(ALICE, 1, 0.0)
    quotas.charge(QuotaClient("alice", "b"), 1, SENSOR_EXPIRATION_MS - 1.0)
    assert len(quotas) == 2
    quotas.charge(QuotaClient("alice", "c"), 1, SENSOR_EXPIRATION_MS)
    assert len(quotas) == 2


def test_sensors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensor_table, "SENSORS_MAX", 100)
    quotas = manager(({"client-id": None}, 1.0))
    for number in range(1_000):
        quotas.charge(QuotaClient("alice", str(number)), 1, 0.0)
    assert len(quotas) == 100
    assert [figures.sharers for figures in quotas.figures(0.0, 2)] == [(None, "999"), (None, "998")]


def test_average_throttle_time_covers_the_last_minute() -> None:
    quotas = manager(({"user": "alice"}, 1.0))
    quotas.charge(ALICE, 1, 0.0)
    quotas.on_throttled(ALICE, 100, 0.0)
    quotas.on_throttled(ALICE, 300, 31_000.0)
    assert [figures.throttle_ms for figures in quotas.figures(31_000.0, 9)] == [200.0]
    assert [figures.throttle_ms for figures in quotas.figures(95_000.0, 9)] == [0.0]


def test_metadata_sets_and_removes_quotas() -> None:
    quotas, image = BrokerQuotas(WINDOWS), MetadataImage()
    entity = quota_entity({"user": "alice"})
    for rate in (5.0, None):
        delta = MetadataDelta(image)
        for key in ("producer_byte_rate", "request_percentage", "controller_mutation_rate"):
            delta.replay(quota_record(entity, key, rate).message)
        quotas.on_metadata(delta, image)
        enabled = [each.is_enabled for each in (quotas.produce, quotas.fetch, quotas.request)]
        assert enabled == [rate is not None, False, rate is not None]

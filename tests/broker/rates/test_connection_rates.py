"""Limits on new connections per second (KIP-612)."""

from broker.rates.connection_rates import UNLIMITED, ConnectionRates
from broker.rates.windowed_rate import QuotaWindows

HOST = "10.0.0.1"


def rates(*, exempt: str | None = None) -> ConnectionRates:
    return ConnectionRates(QuotaWindows(2, 1_000), exempt_listener=exempt)


def admit(limits: ConnectionRates, count: int, *, listener: str = "A", host: str = HOST) -> list[tuple[int, int]]:
    return [limits.admit(listener, host, 0.0) for _ in range(count)]


def test_connections_without_limits_are_only_counted() -> None:
    limits = rates()
    assert admit(limits, 100) == [(0, 0)] * 100
    assert limits.rate.per_second(0.0) == limits.listener("A").rate.per_second(0.0) == 100


def test_broker_above_its_rate_pauses_all_listeners() -> None:
    limits = rates()
    limits.limit = 10
    assert admit(limits, 11)[9:] == [(0, 0), (100, 0)]
    assert admit(limits, 1, listener="B") == [(200, 0)]


def test_listener_above_its_rate_pauses_alone() -> None:
    limits = rates()
    limits.listener("A").limit = 10
    assert admit(limits, 11)[-1] == (100, 0)
    assert admit(limits, 1, listener="B") == [(0, 0)]


def test_exempt_listener_meets_its_own_rate_only() -> None:
    limits = rates(exempt="A")
    limits.limit = 1
    limits.listener("A").limit = 10
    assert admit(limits, 11)[9:] == [(0, 0), (100, 0)]
    assert limits.rate.per_second(0.0) == 0


def test_pause_is_one_window_at_most() -> None:
    limits = rates()
    limits.limit = 1
    assert max(pause_ms for pause_ms, _ in admit(limits, 100)) == 1_000
    limits.limit = 0
    assert admit(limits, 1) == [(1_000, 0)]


def test_refused_connection_of_an_address_counts_for_no_rate() -> None:
    limits = rates()
    limits.default_host_limit = 5
    limits.set_host_limit("10.0.0.2", UNLIMITED)
    assert admit(limits, 7)[5:] == [(0, 200), (0, 200)]
    assert limits.rate.per_second(0.0) == limits.listener("A").rate.per_second(0.0) == 5
    assert admit(limits, 7, host="10.0.0.2") == [(0, 0)] * 7
    limits.set_host_limit("10.0.0.2", None)
    assert limits.host_limit("10.0.0.2") == 5

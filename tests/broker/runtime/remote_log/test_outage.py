"""Log lines about remote storage outages (`broker.runtime.remote_log.outage`)."""

from broker.runtime.remote_log.outage import LOG_INTERVAL_MS, QUIET_MS, RemoteOutage


def test_outage_and_its_end_are_logged_once() -> None:
    outage = RemoteOutage()
    assert [outage.failed(now_ms) for now_ms in (10, 20, 30)] == [True, False, False]
    assert outage.succeeded(40) == 0  # the read may be served from a cache
    assert not outage.failed(50)
    assert outage.succeeded(50 + QUIET_MS) == 4
    assert outage.began_ms == 10
    assert outage.succeeded(60 + QUIET_MS) == 0


def test_long_outage_is_logged_again() -> None:
    outage = RemoteOutage()
    logged_at = [now_ms for now_ms in range(0, 2 * LOG_INTERVAL_MS + 1, 1000) if outage.failed(now_ms)]
    assert logged_at == [0, LOG_INTERVAL_MS, 2 * LOG_INTERVAL_MS]


def test_outage_soon_after_another_is_not_logged() -> None:
    outage = RemoteOutage()
    assert outage.failed(0)
    assert outage.succeeded(QUIET_MS) == 1
    assert not outage.failed(QUIET_MS + 1)
    assert outage.succeeded(2 * QUIET_MS + 1) == 0
    assert outage.failed(LOG_INTERVAL_MS)

"""When the log is told that remote storage is away (`broker.runtime.remote_log.outage`)."""

from broker.runtime.remote_log.outage import LOG_INTERVAL_MS, QUIET_MS, RemoteOutage


def test_an_outage_is_told_once_and_so_is_its_end() -> None:
    outage = RemoteOutage()
    assert [outage.failed(now_ms) for now_ms in (10, 20, 30)] == [True, False, False]
    assert outage.succeeded(40) == 0  # out of a cache, perhaps
    assert not outage.failed(50)
    assert outage.succeeded(50 + QUIET_MS) == 4
    assert outage.began_ms == 10
    assert outage.succeeded(60 + QUIET_MS) == 0


def test_a_long_one_is_told_again() -> None:
    outage = RemoteOutage()
    told = [now_ms for now_ms in range(0, 2 * LOG_INTERVAL_MS + 1, 1000) if outage.failed(now_ms)]
    assert told == [0, LOG_INTERVAL_MS, 2 * LOG_INTERVAL_MS]


def test_one_that_follows_soon_is_not_told_at_all() -> None:
    outage = RemoteOutage()
    assert outage.failed(0)
    assert outage.succeeded(QUIET_MS) == 1
    assert not outage.failed(QUIET_MS + 1)
    assert outage.succeeded(2 * QUIET_MS + 1) == 0
    assert outage.failed(LOG_INTERVAL_MS)

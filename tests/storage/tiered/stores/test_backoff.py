"""Backoff after failures (KIP-405, "remote.log.manager.task.retry.*")."""

from storage.tiered.stores.backoff import Backoff, Failures

KAFKAS = Backoff(500, 30_000, 0.2)


def test_delay_doubles_up_to_the_limit() -> None:
    waits = [Backoff(500, 30_000, 0.0).delay_ms(failures, lambda: 0.9) for failures in range(9)]
    assert waits == [0, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]
    assert KAFKAS.delay_ms(10_000, lambda: 0.5) == 30_000


def test_jitter_shortens_and_lengthens_the_delay() -> None:
    assert KAFKAS.delay_ms(1, lambda: 0.0) == 400
    assert KAFKAS.delay_ms(1, lambda: 0.5) == 500
    assert KAFKAS.delay_ms(1, lambda: 1.0) == 600


def test_success_resets_the_delay() -> None:
    failures = Failures()
    assert [failures.next_delay_ms(KAFKAS, lambda: 0.5) for _ in range(3)] == [500, 1000, 2000]
    failures.clear()
    assert failures.next_delay_ms(KAFKAS, lambda: 0.5) == 500

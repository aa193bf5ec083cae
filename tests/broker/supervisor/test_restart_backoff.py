"""Delays before the restarts of a node."""

from broker.supervisor.restart_backoff import FIRST_DELAY_S, LONG_RUN_S, MAX_DELAY_S, RestartBackoff


def test_delay_doubles_after_short_runs_up_to_a_maximum() -> None:
    backoff = RestartBackoff()
    seen = [backoff.after(0.5) for _ in range(12)]
    assert seen[:4] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S, 8 * FIRST_DELAY_S]
    assert seen[-1] == MAX_DELAY_S


def test_delay_resets_after_a_long_run() -> None:
    backoff = RestartBackoff()
    for _ in range(5):
        backoff.after(0.0)
    assert backoff.after(LONG_RUN_S) == FIRST_DELAY_S
    assert backoff.after(0.0) == 2 * FIRST_DELAY_S

"""Pauses between the lives of a node."""

from broker.supervisor.restarts import FIRST_PAUSE_S, LONG_LIFE_S, LONGEST_PAUSE_S, RestartPauses


def test_short_lives_are_followed_by_ever_longer_pauses_up_to_a_bound() -> None:
    pauses = RestartPauses()
    seen = [pauses.after(0.5) for _ in range(12)]
    assert seen[:4] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, 8 * FIRST_PAUSE_S]
    assert seen[-1] == LONGEST_PAUSE_S


def test_a_long_life_begins_anew() -> None:
    pauses = RestartPauses()
    for _ in range(5):
        pauses.after(0.0)
    assert pauses.after(LONG_LIFE_S) == FIRST_PAUSE_S
    assert pauses.after(0.0) == 2 * FIRST_PAUSE_S

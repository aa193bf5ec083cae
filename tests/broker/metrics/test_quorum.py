"""Metrics of the quorum's replica: names of states, and rates."""

import pytest

from broker.metrics.quorum import RATE_WINDOW_MS, RecentRate, kafka_state
from tests.support.fakes.clock import ManualClock


@pytest.mark.parametrize(
    ("role", "has_leader", "has_voted", "expected"),
    [
        ("leader", True, True, "leader"),
        ("follower", True, True, "follower"),
        ("candidate", False, True, "candidate"),
        ("prospective", False, False, "prospective"),
        ("prospective", False, True, "prospective-voted"),
        ("unattached", False, True, "unattached-voted"),
        ("resigned", False, False, "unattached"),
        ("observer", True, False, "observer"),
        ("observer", False, False, "unattached"),
    ],
)
def test_states_have_kafkas_names(role: str, has_leader: bool, has_voted: bool, expected: str) -> None:
    assert kafka_state(role, has_leader=has_leader, has_voted=has_voted) == expected


def test_rate_covers_recent_windows() -> None:
    clock, counts = ManualClock(), [0]
    rate = RecentRate(lambda: counts[0], clock.monotonic_ms)
    assert rate.read() == 0
    counts[0] = 600
    clock.advance_ms(int(RATE_WINDOW_MS))
    assert rate.read() == 20
    clock.advance_ms(int(RATE_WINDOW_MS))
    assert rate.read() == 10, "the first window still counts"
    clock.advance_ms(int(RATE_WINDOW_MS))
    assert rate.read() == 0

"""Deadlines of elections and fetches, with the jitter that keeps replicas from acting at the same moment."""

from typing import Final, Protocol

from broker.quorum.identity import Instant
from broker.quorum.settings import QuorumSettings

UPDATE_VOTER_FETCH_TIMEOUTS: Final = 3
"""Fetch timeouts after which a follower again compares its entry in the voter set with its own configuration."""


class JitterSource(Protocol):
    """The part of `random.Random` that the quorum uses."""

    def randrange(self, stop: int, /) -> int: ...


class Timeouts:
    """Computes deadlines as monotonic times in ms."""

    def __init__(self, settings: QuorumSettings, random: JitterSource) -> None:
        self._settings = settings
        self._random = random

    def election_deadline(self, now: Instant) -> float:
        """Return a deadline of one to two election timeouts, random so that voters do not stand together."""
        timeout = self._settings.election_timeout_ms
        return now.monotonic_ms + timeout + self._random.randrange(timeout)

    def fetch_deadline(self, now: Instant) -> float:
        """Return a deadline of one fetch timeout plus up to a quarter, because all followers lose a leader together."""
        timeout = self._settings.fetch_timeout_ms
        return now.monotonic_ms + timeout + self._random.randrange(max(1, timeout // 4))

    def update_voter_deadline(self, now: Instant) -> float:
        """Return the time at which a follower next checks its entry in the voter set."""
        return now.monotonic_ms + UPDATE_VOTER_FETCH_TIMEOUTS * self._settings.fetch_timeout_ms

"""Faults of the object store and of the remote metadata."""

from collections.abc import Callable
from typing import Final

from tests.simulation.cluster.fault_source import FaultSource
from tests.simulation.cluster.tier import Tier

_TIMES_MS: Final = (300.0, 1_000.0, 4_000.0)
_AGAIN_MS: Final = 300.0


class StoreFaults(FaultSource):
    """Outages, lost responses, rot, log starts that cannot be read, and metadata without answers."""

    def fail_store(self) -> None:
        """Begin one of the faults."""
        tier = self._simulation.tier
        if tier is not None and not self._is_over:
            faults: tuple[Callable[[Tier], None], ...] = (
                self._end_service,
                self._lose_responses,
                self._rot,
                self._rot,
                self._lose,
                self._hide_log_starts,
                self._leave_unanswered,
            )
            self._random.choice(faults)(tier)

    def _end_service(self, tier: Tier) -> None:
        """Refuse all requests for a while."""
        self._begin("store outages", "the store is down", tier.weather.faulty.vanish, tier.weather.faulty.come_back)

    def _lose_responses(self, tier: Tier) -> None:
        requests = self._random.choice((1, 3, 10))
        self._note(f"the store loses {requests} responses")
        self._count("lost responses of the store")
        tier.lose_responses(requests)

    def rot(self) -> None:
        """Flip a bit of an object."""
        if self._simulation.tier is not None:
            self._rot(self._simulation.tier)

    def _rot(self, tier: Tier) -> None:
        """Flip a bit of an object once there is one; an operator may notice, and restore the former version."""
        if self._is_over:
            return
        if not tier.weather.rot():
            self._after(_AGAIN_MS, lambda: self._rot(tier))
        else:
            self._note("a bit of an object flips")
            self._count("rotten bytes in the store")
            if self._random.random() < 0.5:
                self._after(self._random.choice(_TIMES_MS), tier.weather.restore)

    def _lose(self, tier: Tier) -> None:
        """Lose an object once there is one; an operator may find it again, or only after all faults."""
        if self._is_over:
            return
        if not tier.weather.lose():
            self._after(_AGAIN_MS, lambda: self._lose(tier))
        else:
            self._note("an object is lost")
            self._count("lost objects")
            if self._random.random() < 0.5:
                self._after(self._random.choice(_TIMES_MS), tier.weather.find_again)

    def _hide_log_starts(self, tier: Tier) -> None:
        self._begin(
            "log starts unreadable",
            "log start objects cannot be read",
            tier.weather.hide_log_starts,
            tier.weather.faulty.forget_planned,
        )

    def _leave_unanswered(self, tier: Tier) -> None:
        """Leave a share of the remote metadata's writers without answers for a while."""
        share = self._random.choice((0.2, 0.7))

        def begin() -> None:
            tier.unanswered_share = share

        def end() -> None:
            tier.unanswered_share = 0.0

        self._begin("unanswered metadata", "writers of remote metadata get no answers", begin, end)

    def _begin(self, name: str, text: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
        for_ms = self._random.choice(_TIMES_MS)
        self._note(f"{text} for {for_ms:.0f} ms")
        self._count(name)
        begin()
        self._after(for_ms, end)

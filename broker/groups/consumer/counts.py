"""Counters over the members of a consumer group, so that no heartbeat iterates over them."""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import TypeVar

from broker.groups.consumer.member import ConsumerGroupMember, MemberSubscription

Key = TypeVar("Key", bound=Hashable)


class MemberCounts:
    """The number of members by subscription, assignor and classic protocol; `classic` use the classic protocol."""

    def __init__(self) -> None:
        self.subscriptions: Counter[MemberSubscription] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        self.classic = 0
        self._assignors: Counter[str] = Counter()

    def change(self, member: ConsumerGroupMember, by: int) -> None:
        """Add the member (1), or remove it (-1)."""
        _add(self.subscriptions, member.subscription, by)
        if member.server_assignor is not None:
            _add(self._assignors, member.server_assignor, by)
        if member.classic is not None:
            self.classic += by
            for protocol in member.classic.protocols:
                _add(self.classic_protocols, protocol.name, by)

    def other_subscriptions(self, member: ConsumerGroupMember | None) -> Iterator[MemberSubscription]:
        """Yield the subscriptions of all members but one."""
        own = None if member is None or self.subscriptions[member.subscription] > 1 else member.subscription
        for each in self.subscriptions:
            if each != own:
                yield each

    def regex_count(self, regex: str) -> int:
        """Return the number of members that subscribe by this expression."""
        return sum(count for (_, each), count in self.subscriptions.items() if each == regex)

    def preferred_assignor(
        self, before: ConsumerGroupMember | None = None, after: ConsumerGroupMember | None = None
    ) -> str | None:
        """Return the assignor that most members name, with `after` in the place of `before`; None without any."""
        counts = self._assignors.copy()
        if before is not None and before.server_assignor is not None:
            _add(counts, before.server_assignor, -1)
        if after is not None and after.server_assignor is not None:
            _add(counts, after.server_assignor, 1)
        return max(counts, key=counts.__getitem__, default=None)


def _add(counts: Counter[Key], key: Key, by: int) -> None:
    counts[key] += by
    if not counts[key]:
        del counts[key]

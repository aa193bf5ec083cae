"""When a voter that stops may leave the quorum: nodes that stop together need it until the last has taken its leave.

A broker leaves with the consent of a controller, and there is a controller only as long as a majority of the voters is
there. Whoever would break that majority by going waits a little for brokers that were told to stop at the same moment,
lest they look for a controller in vain. It does not know who was told; but brokers in controlled shutdown show in the
metadata, and the others ask within milliseconds of one another.
"""

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from broker.metadata.image.cluster_image import ClusterImage
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage

LINGER_MS: Final = 300
"""How long nothing must have happened before brokers that serve are taken for such as were not told to stop."""
LIMIT_MS: Final = 2_000


class ShutdownDecision(Enum):
    """What a voter may do that wants to leave."""

    LEAVE = auto()
    LINGER = auto()
    """Somebody might need it, and does not say so."""
    WAIT = auto()


def shutdown_decision(brokers: ClusterImage, voter_ids: Iterable[int], node_id: int) -> ShutdownDecision:
    """For the node `node_id`, whose broker, if it is one, has the controller's consent.

    A voter whose broker is fenced counts as gone. Before the own fencing shows, who else went is not known either.
    """
    own = brokers.get(node_id)
    if own is not None and not own.fenced:
        return ShutdownDecision.WAIT
    voters = frozenset(voter_ids)
    others = [broker for broker in brokers.alive() if broker.id != node_id]
    if node_id not in voters or can_elect_without(node_id, brokers, voters) or not others:
        return ShutdownDecision.LEAVE
    return ShutdownDecision.WAIT if any(broker.in_controlled_shutdown for broker in others) else ShutdownDecision.LINGER


def can_elect_without(node_id: int, brokers: ClusterImage, voters: frozenset[int]) -> bool:
    """Whether those who stay are a majority of the voters."""
    remaining = sum(1 for each in voters if each != node_id and not _is_gone(brokers, each))
    return remaining > len(voters) // 2


def _is_gone(brokers: ClusterImage, node_id: int) -> bool:
    broker = brokers.get(node_id)
    return broker is not None and broker.fenced


class VoterShutdown:
    """A metadata publisher. `voter_ids` are those of the quorum at the time of the call."""

    def __init__(self, node_id: int, voter_ids: Callable[[], Iterable[int]]) -> None:
        self._node_id = node_id
        self._voter_ids = voter_ids
        self._brokers = ClusterImage()
        self._news = asyncio.Event()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if image.brokers is not self._brokers:
            self._brokers = image.brokers
            self._news.set()

    @property
    def can_others_elect(self) -> bool:
        """Whether there is a majority without this node."""
        return can_elect_without(self._node_id, self._brokers, frozenset(self._voter_ids()))

    async def wait(self, *, linger_ms: float = LINGER_MS, limit_ms: float = LIMIT_MS) -> None:
        """Return when this node may leave the quorum, after `limit_ms` at the latest."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + limit_ms / 1000
        while (left_s := give_up_at - loop.time()) > 0:
            advice = shutdown_decision(self._brokers, self._voter_ids(), self._node_id)
            if advice is ShutdownDecision.LEAVE:
                return
            patience_s = min(left_s, linger_ms / 1000) if advice is ShutdownDecision.LINGER else left_s
            if not await self._is_there_news(patience_s):
                return

    async def _is_there_news(self, within_s: float) -> bool:
        self._news.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

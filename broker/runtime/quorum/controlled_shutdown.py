"""When a stopping voter may leave the quorum, so that other stopping nodes can complete their controlled shutdown.

A controlled shutdown needs the active controller, and the controller needs a majority of the voters. A voter without
which there is no majority therefore waits briefly for other brokers that may have been stopped at the same time. It
cannot know about them directly, but brokers in controlled shutdown are visible in the metadata, and brokers stopped
together request their shutdown within milliseconds.
"""

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

from broker.metadata.image.cluster_image import ClusterImage
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage

LINGER_MS: Final = 300
"""Time without a broker change after which the active brokers are assumed not to be stopping."""
LIMIT_MS: Final = 2_000


class ShutdownDecision(Enum):
    """Whether a stopping voter may leave the quorum."""

    LEAVE = auto()
    LINGER = auto()
    """Wait for LINGER_MS: an active broker may be about to request its shutdown."""
    WAIT = auto()


def shutdown_decision(brokers: ClusterImage, voter_ids: Iterable[int], node_id: int) -> ShutdownDecision:
    """Decide for `node_id`, whose broker, if it has one, has completed its controlled shutdown.

    A voter whose broker is fenced counts as stopped. The decision waits until the metadata shows this node's own
    fencing, because earlier metadata do not show the other nodes' state either.
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
    """Whether the voters that have not stopped, without `node_id`, are a majority."""
    remaining = sum(1 for each in voters if each != node_id and not _is_stopped(brokers, each))
    return remaining > len(voters) // 2


def _is_stopped(brokers: ClusterImage, node_id: int) -> bool:
    broker = brokers.get(node_id)
    return broker is not None and broker.fenced


class VoterShutdown:
    """A metadata publisher that delays the shutdown of a voter. `voter_ids` returns the present voters."""

    def __init__(self, node_id: int, voter_ids: Callable[[], Iterable[int]]) -> None:
        self._node_id = node_id
        self._voter_ids = voter_ids
        self._brokers = ClusterImage()
        self._changed = asyncio.Event()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if image.brokers is not self._brokers:
            self._brokers = image.brokers
            self._changed.set()

    @property
    def can_others_elect(self) -> bool:
        """Whether the remaining voters are a majority without this node."""
        return can_elect_without(self._node_id, self._brokers, frozenset(self._voter_ids()))

    async def wait(self, *, linger_ms: float = LINGER_MS, limit_ms: float = LIMIT_MS) -> None:
        """Return when this node may leave the quorum, or after `limit_ms`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_ms / 1000
        while (left_s := deadline - loop.time()) > 0:
            decision = shutdown_decision(self._brokers, self._voter_ids(), self._node_id)
            if decision is ShutdownDecision.LEAVE:
                return
            timeout_s = min(left_s, linger_ms / 1000) if decision is ShutdownDecision.LINGER else left_s
            if not await self._wait_for_change(timeout_s):
                return

    async def _wait_for_change(self, within_s: float) -> bool:
        self._changed.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

"""Delays of topic creation responses until the new partitions are hosted here.

The controller's response means that a topic is committed. This broker may still have to receive the metadata and to
create the logs. A client that got "created" uses the topic at once and would get UNKNOWN_TOPIC_OR_PARTITION or
NOT_LEADER_OR_FOLLOWER. The wait is bounded, since the creation of a log can fail (its log directory is offline), and
the response promises the commit alone.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage


class CreatingPartitions(Protocol):
    """Creates logs as the metadata demands (`ReplicaAssignments`)."""

    async def wait_created(self) -> None: ...


class CreationWait:
    """A metadata publisher. Install it after `partitions`, so that the creation of the logs has begun."""

    def __init__(self, partitions: CreatingPartitions, *, wait_max_ms: int) -> None:
        self._partitions = partitions
        self._wait_max_s = wait_max_ms / 1000
        self._image = EMPTY_IMAGE
        self._published = asyncio.Event()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._image = image
        self._published.set()  # wakes the present waiters only
        self._published.clear()

    async def wait_for(self, is_known: Callable[[MetadataImage], bool]) -> None:
        """Return when this broker's metadata satisfies `is_known` and no log is being created, or at the time limit."""
        try:
            async with asyncio.timeout(self._wait_max_s):
                while not is_known(self._image):
                    await self._published.wait()
                await self._partitions.wait_created()
        except TimeoutError:
            return

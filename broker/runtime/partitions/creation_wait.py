"""Creation that is told when it can be used: answers of the controller, held until their partitions are hosted here.

The controller's answer says that a topic is committed. This broker still has to hear of it, when the controller is
another node, and to make the logs. A client that was told "created" asks for the topic right away, and would meet
UNKNOWN_TOPIC_OR_PARTITION or NOT_LEADER_OR_FOLLOWER. Waiting is bounded, since creation can also fail for good (a disk
that went offline), and what the client was promised is the commit alone.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage


class CreatingPartitions(Protocol):
    """Makes logs after the metadata says so."""

    async def wait_created(self) -> None: ...


class CreationWait:
    """A publisher of metadata behind `partitions`, so that what it has heard of they have begun to create."""

    def __init__(self, partitions: CreatingPartitions, *, wait_max_ms: int) -> None:
        self._partitions = partitions
        self._wait_max_s = wait_max_ms / 1000
        self._image = EMPTY_IMAGE
        self._published = asyncio.Event()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._image = image
        self._published.set()  # wakes those who wait now, and nobody later
        self._published.clear()

    async def wait_for(self, is_known: Callable[[MetadataImage], bool]) -> None:
        """Return when the metadata here satisfies `is_known` and no log is being created, or when time is up."""
        try:
            async with asyncio.timeout(self._wait_max_s):
                while not is_known(self._image):
                    await self._published.wait()
                await self._partitions.wait_created()
        except TimeoutError:
            return

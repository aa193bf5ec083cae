"""The moment when this node knows the cluster's metadata: until then nothing can be decided by it."""

import asyncio

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage


class FirstImage:
    """A publisher that waits for the first image."""

    def __init__(self) -> None:
        self._is_there = asyncio.Event()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._is_there.set()

    async def wait(self) -> None:
        """Return once an image was published."""
        await self._is_there.wait()

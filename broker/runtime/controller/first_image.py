"""The arrival of the first metadata image, before which the node cannot decide anything by metadata."""

import asyncio

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage


class FirstImage:
    """A metadata publisher that waits for the first image."""

    def __init__(self) -> None:
        self._is_there = asyncio.Event()

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._is_there.set()

    @property
    def is_there(self) -> bool:
        """Whether the first image was published."""
        return self._is_there.is_set()

    async def wait(self) -> None:
        """Return once an image is published."""
        await self._is_there.wait()

"""The last published metadata image, read by all request handlers."""

from typing import Protocol

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage


class ImageSource(Protocol):
    """A holder of the latest published image, such as `MetadataCache`."""

    @property
    def image(self) -> MetadataImage: ...


class MetadataCache:
    """A metadata publisher that holds `image`. Add it first, so that later publishers find the same image here."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image

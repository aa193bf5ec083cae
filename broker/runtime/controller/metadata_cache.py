"""The metadata this broker works with: the last published image, for all handlers to read."""

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage


class MetadataCache:
    """Holds `image`. Install it as the first publisher, so that the others find what they are told of."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image

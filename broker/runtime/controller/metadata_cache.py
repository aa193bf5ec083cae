"""The last published metadata image, read by all request handlers."""

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage


class MetadataCache:
    """A metadata publisher that holds `image`. Add it first, so that later publishers find the same image here."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image

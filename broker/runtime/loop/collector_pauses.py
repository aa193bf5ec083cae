"""Keeps Python's cycle collector away from large images.

A full collection looks at every container there is: a second for a million partitions, in which the node answers
nobody. Images hold no cycles, so looking at them finds nothing. While a snapshot is loaded the collector is off; and
whenever an image has grown by `SETTLED_PARTITIONS`, what is alive then is collected once more and set aside for good
(`gc.freeze`). Reference counts free it all the same when an image is replaced; what they cannot free, cycles that were
alive at that moment and end later, stays, which is why nothing is set aside for small images. From then on the
collector also looks less often: what changes in a big image is young at first, and would be looked at again and again.
"""

import gc
from typing import Final

from broker.metadata.image.metadata_image import MetadataImage

SETTLED_PARTITIONS: Final = 20_000
"""Looking at so many once more takes some 20 ms."""
SPARING_THRESHOLDS: Final = (10_000, 20, 50)
"""When the collector looks, once there is a big image: a thousand changed partitions are six thousand new objects."""


class CollectorPauses:
    """For the images of one node. The collector is the process's: several of these in one process do no harm."""

    def __init__(self) -> None:
        self._settled = 0
        self._was_enabled = False
        self._loads = 0

    def begin_load(self) -> None:
        """Many objects are about to be made, none of them garbage. Loads may overlap; each is ended."""
        if not self._loads:
            self._was_enabled = gc.isenabled()
            gc.disable()
        self._loads += 1

    def end_load(self, image: MetadataImage | None) -> None:
        """The image is there, or, None, will not come. It is set aside unlooked at, before the collector is on again:
        it would look at everything that was made meanwhile.
        """
        if image is not None and image.topics.partition_count >= SETTLED_PARTITIONS:
            self._set_aside(image.topics.partition_count)
        self._loads = max(0, self._loads - 1)
        if self._was_enabled and not self._loads:
            gc.enable()

    def on_image(self, image: MetadataImage) -> None:
        """Records led to an image. If it has grown by enough, what is new is looked at once more and set aside."""
        count = image.topics.partition_count
        self._settled = min(self._settled, count)
        if count - self._settled >= SETTLED_PARTITIONS:
            gc.collect()
            self._set_aside(count)

    def _set_aside(self, partition_count: int) -> None:
        self._settled = partition_count
        gc.freeze()
        if gc.get_threshold()[0]:  # 0: somebody wants no collections at all
            gc.set_threshold(*SPARING_THRESHOLDS)

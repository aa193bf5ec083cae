"""Exclusion of large metadata images from Python's cyclic garbage collector.

A full collection visits every container: one second for a million partitions, during which the node does not respond.
Images contain no cycles, so the visit is useless. The collector is disabled while a snapshot loads. Whenever an image
has grown by `SETTLED_PARTITIONS`, all live objects are collected once and moved to the permanent generation
(`gc.freeze`). Reference counting still frees them when an image is replaced. Cycles that were alive at the freeze leak,
so small images are not frozen. Afterwards the collector also runs less often, because changed parts of a large image
are young objects, which it would visit repeatedly.
"""

import gc
from typing import Final

from broker.metadata.image.metadata_image import MetadataImage

SETTLED_PARTITIONS: Final = 20_000
"""A collection of this many partitions takes about 20 ms."""
NODE_THRESHOLDS: Final = (5_000, 10, 20)
"""Collector thresholds of a node. Groups and connections that come at once are new objects that stay; at Python's own
thresholds (700, 10, 10), their collections take 6 % of the CPU while 500 members join a group."""
SPARING_THRESHOLDS: Final = (10_000, 20, 50)
"""Collector thresholds with a large image: a thousand changed partitions are six thousand new objects."""


class CollectorPauses:
    """Collector control for the images of one node. Several instances per process are allowed."""

    def __init__(self) -> None:
        self._settled = 0
        self._was_enabled = False
        self._loads = 0

    def begin_load(self) -> None:
        """Disable the collector for a load. Loads may overlap; each needs `end_load`."""
        if not self._loads:
            self._was_enabled = gc.isenabled()
            gc.disable()
        self._loads += 1

    def end_load(self, image: MetadataImage | None) -> None:
        """End a load; `image` is None after a failure. A large image is frozen before the collector is enabled again,
        because the collector would visit all new objects.
        """
        if image is not None and image.topics.partition_count >= SETTLED_PARTITIONS:
            self._freeze(image.topics.partition_count)
        self._loads = max(0, self._loads - 1)
        if self._was_enabled and not self._loads:
            gc.enable()

    def on_image(self, image: MetadataImage) -> None:
        """Process a new image. If it has grown enough, collect once and freeze the live objects."""
        count = image.topics.partition_count
        self._settled = min(self._settled, count)
        if count - self._settled >= SETTLED_PARTITIONS:
            gc.collect()
            self._freeze(count)

    def _freeze(self, partition_count: int) -> None:
        self._settled = partition_count
        gc.freeze()
        if gc.get_threshold()[0]:  # 0: collections are disabled by configuration
            gc.set_threshold(*SPARING_THRESHOLDS)

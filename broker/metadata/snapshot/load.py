"""A snapshot on its way into the controller: checked, folded, indexed, and compared with what publishers have seen.

In steps of a millisecond or two (`slices.py`), for it may hold a million partitions.
"""

from typing import Final, NamedTuple

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.image_difference import difference
from broker.metadata.image.metadata_image import MetadataImage, Provenance
from broker.metadata.image.partition_index import PartitionIndex
from broker.metadata.image.slices import Steps
from broker.metadata.snapshot.codec import InvalidSnapshot, SnapshotReading
from broker.metadata.snapshot.fold import SnapshotFold
from protocol.primitives import Buffer

_FRAMES_PER_STEP: Final = 256


class LoadedSnapshot(NamedTuple):
    """`delta` leads from the image before to `image`, or is empty if nobody has seen that. `record_count` counts the
    metadata records of the snapshot.
    """

    image: MetadataImage
    delta: MetadataDelta
    partitions: PartitionIndex
    record_count: int


class SnapshotLoad:
    """Takes in the snapshot that stands for the records below `end_offset`, the last of which has `epoch`.

    `base` is the image before, which publishers have seen if the new one is to be compared with it. Without
    `is_indexed` the partitions' index stays empty.
    """

    def __init__(
        self, end_offset: int, epoch: int, base: MetadataImage, *, is_compared: bool = True, is_indexed: bool = True
    ) -> None:
        self._end_offset = end_offset
        self._epoch = epoch
        self._base = base
        self._is_compared = is_compared
        self._is_indexed = is_indexed
        self._reading = SnapshotReading()
        self._fold = SnapshotFold(base)
        self._record_count = 0

    def take(self, piece: Buffer) -> Steps[None]:
        """The next bytes. Raises InvalidSnapshot, DecodeError, InvalidMetadata or UnsupportedFeatureLevel."""
        for frames in self._reading.feed(piece):
            self._record_count += len(frames)
            for start in range(0, len(frames), _FRAMES_PER_STEP):
                self._fold.add(frames[start : start + _FRAMES_PER_STEP])
                yield

    def finish(self) -> Steps[LoadedSnapshot]:
        """All bytes were taken. Raises InvalidSnapshot if they are no whole snapshot of the id."""
        reading = self._reading
        reading.end()
        if reading.epoch != self._epoch:
            raise InvalidSnapshot(f"the snapshot's batches have epoch {reading.epoch}, its name says {self._epoch}")
        image = self._fold.finish(Provenance(self._end_offset - 1, self._epoch, reading.last_timestamp_ms))
        partitions = (yield from PartitionIndex.of_in_steps(image.topics)) if self._is_indexed else PartitionIndex()
        delta = (yield from difference(self._base, image)) if self._is_compared else MetadataDelta(self._base)
        return LoadedSnapshot(image, delta, partitions, self._record_count)

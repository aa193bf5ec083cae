"""Loading a snapshot into the controller: checked, folded, indexed, and compared with the published image.

The work runs in steps of a millisecond or two (`slices.py`), since a snapshot may hold a million partitions.
"""

from typing import Final, NamedTuple

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.image_difference import difference
from broker.metadata.image.metadata_image import MetadataImage, Provenance
from broker.metadata.image.partition_index import PartitionIndex
from broker.metadata.image.slices import Steps
from broker.metadata.snapshot.codec import InvalidSnapshot, SnapshotReading
from broker.metadata.snapshot.fold import SnapshotFold
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer

_FRAMES_PER_STEP: Final = 256


class LoadedSnapshot(NamedTuple):
    """A loaded snapshot. `delta` leads from the previous image to `image`, and is empty if none was published.
    `record_count` counts the metadata records.
    """

    image: MetadataImage
    delta: MetadataDelta
    partitions: PartitionIndex
    record_count: int


class SnapshotLoad:
    """Loads the snapshot of the records below `end_offset`, the last of which has `epoch`.

    `base` is the previous image; `is_compared` requests the delta from it. Without `is_indexed` the partition index
    stays empty.
    """

    def __init__(
        self,
        end_offset: int,
        epoch: LeaderEpoch,
        base: MetadataImage,
        *,
        is_compared: bool = True,
        is_indexed: bool = True,
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
        """Load the next bytes. Raises InvalidSnapshot, DecodeError, InvalidMetadata or UnsupportedFeatureLevel."""
        for frames in self._reading.feed(piece):
            self._record_count += len(frames)
            for start in range(0, len(frames), _FRAMES_PER_STEP):
                self._fold.add(frames[start : start + _FRAMES_PER_STEP])
                yield

    def finish(self) -> Steps[LoadedSnapshot]:
        """Return the result after all bytes.

        Raises InvalidSnapshot if the snapshot is incomplete or has another epoch.
        """
        reading = self._reading
        reading.end()
        if reading.epoch != self._epoch:
            raise InvalidSnapshot(f"the batches have epoch {reading.epoch}, the snapshot's name has {self._epoch}")
        image = self._fold.finish(Provenance(self._end_offset - 1, self._epoch, reading.last_timestamp_ms))
        partitions = (yield from PartitionIndex.of_in_steps(image.topics)) if self._is_indexed else PartitionIndex()
        delta = (yield from difference(self._base, image)) if self._is_compared else MetadataDelta(self._base)
        return LoadedSnapshot(image, delta, partitions, self._record_count)

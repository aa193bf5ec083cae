"""The committed metadata, replayed batch by batch: the reference for the images and controllers of all nodes."""

from collections.abc import Callable, Sequence

from broker.metadata.image.loader import MetadataLoader, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.records import decode_record
from broker.runtime.quorum.quorum import CommittedBatch
from protocol.ids import LeaderEpoch


class CommittedMetadata:
    """Replays every committed batch once, as the first node reports it. `images` has the image at each offset."""

    def __init__(self, on_image: Callable[[MetadataImage], None]) -> None:
        self._on_image = on_image
        self._loader = MetadataLoader()
        self.images: dict[int, MetadataImage] = {-1: EMPTY_IMAGE}
        self.end = 0
        """The end offset of the committed log."""
        self._epoch_starts: list[tuple[int, int]] = []
        """The epochs of the committed log in order, each with its first offset."""

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    def end_for_epoch(self, epoch: int) -> int:
        """Return the end offset of the committed records of `epoch` and of former epochs."""
        later = (start for each, start in reversed(self._epoch_starts) if each > epoch)
        return min(later, default=self.end)

    def add(self, batches: Sequence[CommittedBatch]) -> int | None:
        """Replay the batches that are new; return the offset of a gap before them, None without one."""
        for batch in batches:
            if batch.base_offset > self.end:
                return self.end
            if batch.base_offset == self.end:
                self._replay(batch)
        return None

    def _replay(self, batch: CommittedBatch) -> None:
        before = self._loader.image
        if not self._epoch_starts or batch.epoch > self._epoch_starts[-1][0]:
            self._epoch_starts.append((batch.epoch, batch.base_offset))
        records = [decode_record(frame) for frame in batch.frames]
        self._loader.load(
            [RecordBatch(batch.base_offset, batch.last_offset, LeaderEpoch(batch.epoch), batch.timestamp_ms, records)]
        )
        self.end = batch.last_offset + 1
        image = self._loader.image
        if image is not before:
            self.images[image.offset] = image
            self._on_image(image)

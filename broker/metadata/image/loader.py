"""From committed batches to images: offsets in order, metadata transactions held back until they end (KIP-868).

One of these runs on every node. On the active controller it is fed the batches as they are written, which makes the
controller's view and the published image the same object; on all others, what the quorum committed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import SUPPORTED_FEATURES, VersionRange
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metadata.image.records import InvalidMetadata, MetadataRecord
from protocol.messages.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

_MARKERS: Final = frozenset({BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord})


class RecordBatch(NamedTuple):
    """A batch of the metadata log, decoded. A control batch takes offsets and carries no records."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    records: Sequence[MetadataRecord]


class Publication(NamedTuple):
    """One step for publishers: what changed, and the image after it."""

    delta: MetadataDelta
    image: MetadataImage


@dataclass(frozen=True, slots=True)
class LoaderState:
    """All that a loader knows, immutable: keep one to be able to go back to it.

    `image` is the latest complete one. `pending` holds the records of an open transaction, which began at
    `transaction_offset` (-1 when none is open). `last_offset` is the last offset consumed, control records included.
    `has_records` tells a log that never held metadata from one whose metadata was removed again.
    """

    image: MetadataImage = EMPTY_IMAGE
    last_offset: int = -1
    transaction_offset: int = -1
    pending: tuple[MetadataRecord, ...] = ()
    has_records: bool = False

    @property
    def in_transaction(self) -> bool:
        return self.transaction_offset >= 0


class MetadataLoader:
    """Replays batches in order; `state` may be read at any time and put back to undo.

    `supported` are the feature levels to go on with: None takes any, as tools do that only read.
    """

    def __init__(
        self, state: LoaderState = LoaderState(), *, supported: Mapping[str, VersionRange] | None = SUPPORTED_FEATURES
    ) -> None:
        self.state = state
        self._supported = supported

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    def skip_to(self, offset: int) -> None:
        """What lies before `offset` and was not loaded are control records, which the quorum wrote on its own."""
        self.state = replace(self.state, last_offset=offset - 1)

    def install(self, image: MetadataImage) -> None:
        """Go on from an image that was not made here, as a snapshot gives it; an open transaction is forgotten."""
        self.state = LoaderState(image, image.offset, has_records=True)

    def load(self, batches: Sequence[RecordBatch]) -> Publication:
        """Take in batches that follow on from what was loaded; one delta covers them all.

        While a transaction is open its records wait and the image stands before it, in content and offset. Raises
        InvalidMetadata for a gap, a nested transaction, or an end without a beginning, and UnsupportedFeatureLevel; the
        state is then as before.
        """
        state = self.state
        delta = MetadataDelta(state.image)
        provenance = state.image.provenance
        last_offset, begun = state.last_offset, state.transaction_offset
        pending, has_records = list(state.pending), state.has_records
        for batch in batches:
            if last_offset >= 0 and batch.base_offset != last_offset + 1:
                raise InvalidMetadata(f"a batch begins at {batch.base_offset} after offset {last_offset}")
            if begun < 0 and not any(type(record) in _MARKERS for record in batch.records):
                delta.replay_all(batch.records)
            else:
                for offset, record in enumerate(batch.records, batch.base_offset):
                    begun = _route(record, offset, begun, delta, pending)
            has_records = has_records or bool(batch.records)
            last_offset = batch.last_offset
            stable_offset = batch.last_offset if begun < 0 else begun - 1
            if stable_offset >= batch.base_offset:
                is_aligned = stable_offset == batch.last_offset
                provenance = Provenance(stable_offset, batch.epoch, batch.timestamp_ms, is_aligned)
        if delta.features is not None and self._supported is not None:
            delta.features.check(self._supported)
        image = delta.apply(provenance)
        self.state = LoaderState(image, last_offset, begun, tuple(pending), has_records)
        return Publication(delta, image)


def _route(record: MetadataRecord, offset: int, begun: int, delta: MetadataDelta, pending: list[MetadataRecord]) -> int:
    """Send a record to the delta or to the open transaction; returns where the open transaction began, or -1."""
    match record:
        case BeginTransactionRecord():
            if begun >= 0:
                raise InvalidMetadata(f"a metadata transaction begins at {offset} inside the one begun at {begun}")
            return offset
        case EndTransactionRecord() | AbortTransactionRecord():
            if begun < 0:
                raise InvalidMetadata(f"a metadata transaction ends at {offset} that never began")
            if isinstance(record, EndTransactionRecord):
                delta.replay_all(pending)
            pending.clear()
            return -1
        case _ if begun >= 0:
            pending.append(record)
        case _:
            delta.replay(record)
    return begun

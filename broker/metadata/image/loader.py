"""Replay of committed batches into images, with records of metadata transactions held back (KIP-868).

Every node runs a loader. The active controller feeds it batches as it appends them, so that its view and the published
image are the same object; all other nodes feed it committed batches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import SUPPORTED_FEATURES, VersionRange
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metadata.image.records import InvalidMetadata, MetadataRecord
from protocol.ids import LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

_MARKERS: Final = frozenset({BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord})


class RecordBatch(NamedTuple):
    """A decoded batch of the metadata log. A control batch covers offsets without records."""

    base_offset: int
    last_offset: int
    epoch: LeaderEpoch
    timestamp_ms: int
    records: Sequence[MetadataRecord]


class Publication(NamedTuple):
    """A delta and the image after it, for publishers."""

    delta: MetadataDelta
    image: MetadataImage


@lazy_dataclass(frozen=True, slots=True)
class LoaderState:
    """The complete state of a loader; immutable, so that a reference suffices to revert.

    `image` is the latest complete image. `pending` holds the records of an open transaction, which began at
    `transaction_offset` (-1 without one). `last_offset` is the last consumed offset, including control records.
    `has_records` distinguishes a log without metadata from one whose metadata was removed.
    """

    image: MetadataImage = EMPTY_IMAGE
    last_offset: int = -1
    transaction_offset: int = -1
    pending: tuple[MetadataRecord, ...] = ()
    has_records: bool = False

    @property
    def in_transaction(self) -> bool:
        return self.transaction_offset >= 0


_EMPTY: Final = LoaderState()


class MetadataLoader:
    """Replays batches in order; `state` may be read at any time, and assigned to revert.

    `supported` are the accepted feature levels; None accepts all, for tools that only read.
    """

    def __init__(
        self, state: LoaderState = _EMPTY, *, supported: Mapping[str, VersionRange] | None = SUPPORTED_FEATURES
    ) -> None:
        self.state = state
        self._supported = supported

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    def skip_to(self, offset: int) -> None:
        """Skip offsets below `offset`, which hold control records of the quorum."""
        self.state = replace(self.state, last_offset=offset - 1)

    def install(self, image: MetadataImage) -> None:
        """Continue from another image, such as a snapshot's; an open transaction is dropped."""
        self.state = LoaderState(image, image.offset, has_records=True)

    def load(self, batches: Sequence[RecordBatch]) -> Publication:
        """Replay consecutive batches into one delta.

        Records of an open transaction are held back, and the image stays at the offset before it. Raises
        InvalidMetadata for a gap, a nested transaction or an end without a beginning, and UnsupportedFeatureLevel; the
        state is then unchanged.
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
    """Apply a record to the delta or hold it back; return where the open transaction began, or -1."""
    match record:
        case BeginTransactionRecord():
            if begun >= 0:
                raise InvalidMetadata(
                    f"the metadata transaction at offset {offset} is nested in that at offset {begun}"
                )
            return offset
        case EndTransactionRecord() | AbortTransactionRecord():
            if begun < 0:
                raise InvalidMetadata(f"the end of a metadata transaction at offset {offset} has no beginning")
            if isinstance(record, EndTransactionRecord):
                delta.replay_all(pending)
            pending.clear()
            return -1
        case _ if begun >= 0:
            pending.append(record)
        case _:
            delta.replay(record)
    return begun

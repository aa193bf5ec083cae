"""The producers of a log before an offset, out of what remote storage has of them.

A producer snapshot goes with each segment, of the state at its end. Where a log agrees with a segment only up to some
offset within it, that snapshot tells of records that the log does not have. Then the snapshot of the segment before is
brought up to date with the records up to the offset.
"""

from collections.abc import Iterable, Iterator

from protocol.primitives import Buffer
from protocol.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, parse_header
from protocol.records.errors import MalformedBatch
from storage.errors import CorruptBatch, CorruptCheckpoint
from storage.producer_state import ProducerState
from storage.replay import apply_to_producers, marker_of
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.errors import CorruptRemoteData, RemoteResourceNotFound
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment


def producers_before(
    offset: int,
    segment: RemoteSegment,
    others: Iterable[RemoteSegment],
    lineage: Lineage,
    storage: RemoteStorageManager,
) -> ProducerState:
    """The state before `offset`, which lies within `segment` or right behind it, of the log with `lineage`.

    `others` are finished segments, one of which may end where `segment` begins, or between that and `offset`. Without
    one, what was before `segment` is forgotten: a producer that is not known is believed, one that is known wrongly is
    not. Raises RemoteStorageError, CorruptRemoteData.
    """
    if segment.end_offset + 1 == offset:
        return _snapshot(segment, storage)
    near = [each for each in others if segment.start_offset <= each.end_offset + 1 <= offset and lineage.holds(each)]
    last = max(near, key=lambda each: each.end_offset, default=None)
    if last is None:
        state = ProducerState()
        state.end_offset = segment.start_offset
    else:
        state = _snapshot(last, storage)
    if state.end_offset < offset:
        _replay(state, segment, offset, storage)
    return state


def _snapshot(segment: RemoteSegment, storage: RemoteStorageManager) -> ProducerState:
    """The state at the end of a segment; empty if it has none (logs older than producers)."""
    end = segment.end_offset + 1
    try:
        content = storage.read_index(segment, IndexKind.PRODUCER_SNAPSHOT)
        return ProducerState.decode(f"the producer snapshot of {segment.id}", content, end)
    except RemoteResourceNotFound:
        state = ProducerState()
        state.end_offset = end
        return state
    except CorruptCheckpoint as error:
        raise CorruptRemoteData(str(error)) from error


def _replay(state: ProducerState, segment: RemoteSegment, end: int, storage: RemoteStorageManager) -> None:
    """Applies the records of a segment from where the state stands to before `end`."""
    try:
        for header, batch in _batches(storage.read_segment(segment, 0)):
            if header.last_offset >= end:
                break
            if header.base_offset >= state.end_offset:
                apply_to_producers(state, header, marker_of(header, batch))
    except (MalformedBatch, CorruptBatch) as error:
        raise CorruptRemoteData(f"{segment.id}: {error}") from error
    state.end_offset = end
    state.on_high_watermark(end)


def _batches(pieces: Iterator[memoryview]) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Whole batches out of pieces that end anywhere. Raises MalformedBatch, CorruptBatch."""
    held = bytearray()
    for piece in pieces:
        held += piece
        at = 0
        while at + HEADER_SIZE <= len(held):
            header = parse_header(held, at)
            if at + header.size > len(held):
                break
            if not crc_is_valid(held, at, header.size):
                raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} differs")
            yield header, bytes(held[at : at + header.size])
            at += header.size
        del held[:at]

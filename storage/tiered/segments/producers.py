"""Producer state of a log before an offset, from remote storage.

Each segment has a producer snapshot of its end. If a log agrees with a segment only up to an offset within it, the
snapshot covers records that the log does not have. Then the previous segment's snapshot is brought up to date with the
records up to the offset.
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
    """Return the producer state before `offset`, which lies within or right behind `segment`, for the log with
    `lineage`.

    `others` are finished segments, one of which may end between the start of `segment` and `offset`. Without it the
    state before `segment` is dropped: an unknown producer is accepted, a producer with a wrong state is not. Raises
    RemoteStorageError, CorruptRemoteData.
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
    """Return the state at the end of a segment; empty for logs older than producer snapshots."""
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
    """Apply the records of a segment from the state's end to before `end`."""
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
    """Yield whole batches from pieces. Raises MalformedBatch, CorruptBatch."""
    held = bytearray()
    for piece in pieces:
        held += piece
        at = 0
        while at + HEADER_SIZE <= len(held):
            header = parse_header(held, at)
            if at + header.size > len(held):
                break
            if not crc_is_valid(held, at, header.size):
                raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not match")
            yield header, bytes(held[at : at + header.size])
            at += header.size
        del held[:at]

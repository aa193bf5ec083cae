"""The effect of an appended batch on a log's leader epochs, producers and aborted transactions.

Appends, replication, recovery and truncation share this code path, so that all of them reach the same state.
"""

from protocol.primitives import Buffer
from protocol.records.batch import CONTROL_FLAG, BatchHeader
from protocol.records.control import read_marker
from protocol.records.errors import MalformedRecords
from storage.errors import CorruptBatch
from storage.index.transaction import AbortedTxn
from storage.producer_state import EndTransactionMarker, ProducerState
from storage.segment import LogSegment


def marker_of(header: BatchHeader, batch: Buffer) -> EndTransactionMarker | None:
    """Return the transaction marker in a batch, or None. Raises CorruptBatch for a malformed control batch."""
    if not header.attributes & CONTROL_FLAG or header.producer_id < 0:
        return None
    try:
        found = read_marker(batch)
    except MalformedRecords as error:
        raise CorruptBatch(f"control batch at offset {header.base_offset}: {error}") from error
    return None if found is None else EndTransactionMarker(*found)


def apply_to_producers(
    producers: ProducerState, header: BatchHeader, marker: EndTransactionMarker | None
) -> AbortedTxn | None:
    """Apply one batch; return the entry for the transaction index if the batch aborts a transaction."""
    producers.end_offset = header.next_offset
    if header.producer_id < 0:
        return None
    if marker is None:
        if not header.attributes & CONTROL_FLAG:
            producers.apply(header)
        return None
    completed = producers.apply_marker(header, marker)
    if completed is None or not completed.is_aborted:
        return None
    return AbortedTxn(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        producers.stable_offset_after(completed),
    )


def replay_segment(producers: ProducerState, segment: LogSegment, start: int, end: int) -> None:
    """Apply the batches of a segment that begin in [start, end) to `producers` alone."""
    for position, header in segment.headers(segment.find(start) or 0):
        if header.base_offset >= end:
            return
        if header.base_offset < start or header.producer_id < 0:
            continue
        is_control = header.attributes & CONTROL_FLAG
        marker = marker_of(header, segment.file.read(position, header.size)) if is_control else None
        apply_to_producers(producers, header, marker)
    producers.end_offset = max(producers.end_offset, min(end, segment.next_offset))

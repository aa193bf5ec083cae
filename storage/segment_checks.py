"""Cheap checks of one segment before recovery decides whether to read all of it, and a walk over headers."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from protocol.records.batch import BatchHeader
from protocol.records.errors import MalformedBatch
from storage.segment import LogSegment


def tail_is_whole(segment: LogSegment) -> bool:
    """Whether the batches after the last index entry end at the end of the file."""
    end = segment.offset_index.last.position
    try:
        for position, header in segment.headers(end):
            end = position + header.size
    except MalformedBatch:
        return False
    return end == segment.size


def indexes_lie_within(segment: LogSegment) -> bool:
    """Whether the indexes of a finished segment hold whole entries only, and the last entries lie within its
    offsets.
    """
    indexes = segment.offset_index, segment.time_index
    lasts = [index.last.offset for index in indexes if len(index.entries)]
    is_whole = all(index.entries.is_whole for index in indexes) and segment.time_index.ascends
    return is_whole and all(segment.base_offset <= offset < segment.next_offset for offset in lasts)


def has_index_entries(segment: LogSegment) -> bool:
    """Whether any index of a segment has an entry."""
    return any((len(segment.offset_index.entries), len(segment.time_index.entries), segment.txn_index.entries))


def has_batch_beyond(segment: LogSegment, interval: int) -> bool:
    """Whether a batch begins after the first batch that lies beyond one index interval."""
    crossed = False
    try:
        for position, _ in segment.headers():
            if crossed:
                return True
            crossed = position > interval
    except MalformedBatch:
        return True
    return False


def shows_compaction(segment: LogSegment) -> bool:
    expected = segment.base_offset
    for _, header in segment.headers():
        if header.base_offset != expected or header.record_count != header.last_offset_delta + 1:
            return True
        expected = header.next_offset
    return False


def headers_between(segments: Iterable[LogSegment], start: int, end: int) -> Iterator[BatchHeader]:
    """Yield the headers of batches with offsets in [start, end), up to the first damaged one."""
    with suppress(MalformedBatch):
        for segment in segments:
            if start < segment.next_offset and segment.base_offset < end and start < end:
                for _, header in segment.headers():
                    if header.base_offset >= end:
                        return
                    if header.last_offset >= start:
                        yield header

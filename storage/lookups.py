"""Lookups over the segments of a log: by timestamp, by greatest timestamp, and of aborted transactions.

Lookups read indexes first and open the one batch in question.
"""

from protocol.records.reader import iter_records
from storage.index.transaction import AbortedTxn
from storage.segment import FoundTimestamp, LogSegment
from storage.segments import Segments


def first_at_or_after(segments: Segments, timestamp: int, log_start_offset: int) -> FoundTimestamp | None:
    """Return the first record at or above the log start offset whose timestamp is at least `timestamp`, or None.

    Raises OSError, and MalformedBatch or MalformedRecords if the batch in question does not parse.
    """
    for segment in segments.from_offset(log_start_offset):
        if segment.max_timestamp_so_far.timestamp < timestamp:
            continue
        found = _find_timestamp(segment, timestamp, log_start_offset)
        if found is not None:
            return found
    return None


def first_of_the_latest(segments: Segments, log_start_offset: int) -> FoundTimestamp | None:
    """Return the first record with the greatest timestamp; None in an empty log. Raises as `first_at_or_after`."""
    candidates = [segment for segment in segments if segment.size]
    if not candidates:
        return None
    newest = max(candidates, key=lambda segment: segment.max_timestamp_so_far.timestamp)
    return _find_timestamp(newest, newest.max_timestamp_so_far.timestamp, log_start_offset)


def _find_timestamp(segment: LogSegment, timestamp: int, from_offset: int) -> FoundTimestamp | None:
    """Return the first record at or after `from_offset` whose timestamp is at least `timestamp`.

    Reads one batch, rarely more. Raises MalformedRecords if that batch does not parse.
    """
    first = max(segment.time_index.lookup(timestamp).offset, from_offset)
    start = segment.offset_index.lookup(first).position
    for position, header in segment.headers(start):
        if header.max_timestamp < timestamp or header.last_offset < from_offset:
            continue
        for record in iter_records(segment.file.read(position, header.size)):
            if record.timestamp >= timestamp and record.offset >= from_offset:
                return FoundTimestamp(record.timestamp, record.offset, header.leader_epoch)
    return None


def aborted_between(segments: Segments, fetch_offset: int, upper: int) -> list[AbortedTxn]:
    """Return the aborted transactions with records in [fetch_offset, upper)."""
    found: list[AbortedTxn] = []
    for segment in segments.from_offset(fetch_offset):
        for txn in segment.txn_index.entries:
            if txn.last_offset >= fetch_offset and txn.first_offset < upper:
                found.append(txn)
            if txn.last_stable_offset >= upper:
                return found
    return found

"""The end of one micro-batch: the end of a batch of the log, at or below the high watermark.

The end is found with the fetch that also waits for new records, and at most another fetch of a single batch: a response
contains the whole batch with the requested offset, whose header has its end offset and epoch.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from protocol.ids import LeaderEpoch
from protocol.records.batch import BatchHeader
from spark_jobs.metadata_source.metadata_log import FetchedMetadata, LogTrimmed
from spark_jobs.metadata_source.position import MetadataPosition

PROBE_BYTES: Final = 64 * 1024
"""Enough for all new records at most tails, and to measure the density of a log at a distant position."""


class TriggerLimit(NamedTuple):
    """The limits of a micro-batch: rows or bytes (None: no limit), rounded up to a whole batch, and the exclusive end
    offset `before`, which is the end of a batch.
    """

    rows: int | None = None
    bytes: int | None = None
    before: int | None = None


class FetchableLog(Protocol):
    """The part of `MetadataLogClient` that finds the end of a micro-batch."""

    def fetch(self, offset: int, max_bytes: int = ..., *, max_wait_ms: int = ...) -> FetchedMetadata: ...

    def batch_at(self, offset: int) -> BatchHeader | None: ...


def next_end(log: FetchableLog, start: MetadataPosition, limit: TriggerLimit, max_wait_ms: int = 0) -> MetadataPosition:
    """Return the end of the micro-batch that begins at `start`; `start` itself without records within `max_wait_ms`.

    If the log begins after `start`, return the end of the snapshot that replaces the deleted records.
    """
    if limit.before is not None and start.offset >= limit.before:
        return start
    try:
        probe = log.fetch(start.offset, PROBE_BYTES, max_wait_ms=max_wait_ms)
    except LogTrimmed as trimmed:
        return start._replace(offset=trimmed.snapshot.end, epoch=LeaderEpoch(trimmed.snapshot.epoch))
    headers = probe.headers()
    if not headers:
        return start
    wanted = _wanted(headers, start.offset, probe.high_watermark, limit)
    last = next((each for each in headers if each.next_offset >= wanted), None) or log.batch_at(wanted - 1)
    if last is None:  # a new leader may know a lower high watermark than the one before
        return start
    return start._replace(offset=last.next_offset, epoch=last.leader_epoch)


def _wanted(headers: Sequence[BatchHeader], start: int, high_watermark: int, limit: TriggerLimit) -> int:
    ends = [high_watermark]
    if limit.before is not None:
        ends.append(limit.before)
    if limit.rows is not None:
        ends.append(start + limit.rows)
    if limit.bytes is not None:
        ends.append(start + int(limit.bytes / _bytes_per_offset(headers)))
    return max(start + 1, min(ends))


def _bytes_per_offset(headers: Sequence[BatchHeader]) -> float:
    return sum(each.size for each in headers) / (headers[-1].next_offset - headers[0].base_offset)

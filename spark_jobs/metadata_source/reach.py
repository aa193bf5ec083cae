"""How far one micro-batch reaches: to the end of a batch of the log, at or below what is committed.

That end is found with the one fetch that also waits for news, and at most another one of a single batch: a fetch
answers with the whole batch that has the offset asked for, and its header tells where it ends and of which epoch it is.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from protocol.records.batch import BatchHeader
from spark_jobs.metadata_source.metadata_log import FetchedMetadata, LogTrimmed
from spark_jobs.metadata_source.position import MetadataPosition

PROBE_BYTES: Final = 64 * 1024
"""Enough for all that is new in most tails, and to see how dense a log is that is read from afar."""


class Reach(NamedTuple):
    """What a micro-batch may take: so many rows or bytes (None: any), rounded up to a whole batch of the log, and
    nothing from `before` on, which is the end of a batch.
    """

    rows: int | None = None
    bytes: int | None = None
    before: int | None = None


class FetchableLog(Protocol):
    """`MetadataLog` has it."""

    def fetch(self, offset: int, max_bytes: int = ..., *, max_wait_ms: int = ...) -> FetchedMetadata: ...

    def batch_at(self, offset: int) -> BatchHeader | None: ...


def next_end(log: FetchableLog, start: MetadataPosition, reach: Reach, max_wait_ms: int = 0) -> MetadataPosition:
    """Where the micro-batch that begins at `start` ends; `start` itself if nothing came within `max_wait_ms`.

    Where the log begins later, it ends with the snapshot that stands for the rest.
    """
    if reach.before is not None and start.offset >= reach.before:
        return start
    try:
        probe = log.fetch(start.offset, PROBE_BYTES, max_wait_ms=max_wait_ms)
    except LogTrimmed as trimmed:
        return start._replace(offset=trimmed.snapshot.end, epoch=trimmed.snapshot.epoch)
    headers = probe.headers()
    if not headers:
        return start
    wanted = _wanted(headers, start.offset, probe.high_watermark, reach)
    last = next((each for each in headers if each.next_offset >= wanted), None) or log.batch_at(wanted - 1)
    if last is None:  # whoever serves now knows of less than the one before
        return start
    return start._replace(offset=last.next_offset, epoch=last.leader_epoch)


def _wanted(headers: Sequence[BatchHeader], start: int, high_watermark: int, reach: Reach) -> int:
    ends = [high_watermark]
    if reach.before is not None:
        ends.append(reach.before)
    if reach.rows is not None:
        ends.append(start + reach.rows)
    if reach.bytes is not None:
        ends.append(start + int(reach.bytes / _bytes_per_offset(headers)))
    return max(start + 1, min(ends))


def _bytes_per_offset(headers: Sequence[BatchHeader]) -> float:
    return sum(each.size for each in headers) / (headers[-1].next_offset - headers[0].base_offset)

"""A part of a micro-batch as rows: a range of the log fetched piece by piece, or the pages of a snapshot."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

from broker.client import ConnectionLost
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.errors import MalformedBatch
from spark_jobs.metadata.log_rows import FROM_SNAPSHOT, MalformedLog, rows_of
from spark_jobs.metadata_source.metadata_log import MetadataLogClient
from spark_jobs.metadata_source.plan import LogRange, Part, WholeSnapshot

MAX_WAIT_MS: Final = 500
PATIENCE_S: Final = 60
"""Seconds that committed records may be missing: a new leader has to catch up."""


def read_part(
    log: MetadataLogClient, part: Part, monotonic: Callable[[], float] = time.monotonic
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part in order. Raises LogTrimmed, MalformedLog, and the exceptions of the log client."""
    match part:
        case LogRange():
            yield from _read_range(log, part, monotonic)
        case WholeSnapshot():
            yield from snapshot_rows(log.snapshot(part.name), part.name.end)


def _read_range(log: MetadataLogClient, part: LogRange, monotonic: Callable[[], float]) -> Iterator[pa.RecordBatch]:
    offset, deadline = part.start, monotonic() + PATIENCE_S
    while offset < part.end:
        found = log.fetch(offset, max_wait_ms=MAX_WAIT_MS)
        headers = found.headers()
        if headers:
            yield rows_of(found.data, start=offset, end=part.end)
            offset, deadline = headers[-1].next_offset, monotonic() + PATIENCE_S
        elif monotonic() >= deadline:
            raise ConnectionLost(f"no broker has the committed offset {offset} of the metadata log.")


def snapshot_rows(pieces: Iterable[Buffer], end: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a snapshot that ends at `end`, from pieces of any size. Raises MalformedLog unless it is
    complete.
    """
    rest, next_offset, is_closed = b"", 0, False
    for piece in pieces:
        data = b"".join((rest, piece))
        headers = _headers(data)
        if headers:
            if headers[0][1].base_offset != next_offset:
                raise MalformedLog(f"the snapshot that ends at {end} has a gap before record {next_offset}")
            next_offset, is_closed = headers[-1][1].next_offset, headers[-1][1].is_control
            yield rows_of(data, start=0, end=end, origin=FROM_SNAPSHOT)
            data = data[headers[-1][0] + headers[-1][1].size :]
        rest = data
    if rest or not is_closed:
        raise MalformedLog(f"the snapshot that ends at {end} is cut short")


def _headers(data: bytes) -> list[tuple[int, BatchHeader]]:
    try:
        return list(iter_headers(data))
    except MalformedBatch as error:
        raise MalformedLog(str(error)) from error

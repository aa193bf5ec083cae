"""The index files of a segment, entry by entry, and their consistency with the segment's log.

An index in use, or left by a crash, ends in preallocated zeros. The zeros are not entries and are not printed.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from broker.cli.dump.entries import DumpEntry, FieldsLine, TextLine
from protocol.records.batch import HEADER_SIZE, BatchHeader, parse_header
from protocol.records.errors import MalformedBatch

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
TRANSACTION_ENTRY = Struct(">hqqqq")
CHUNK_ENTRIES = 4096

BatchAt = Callable[[int], BatchHeader | None]


def dump_offset_index(
    file: BinaryIO, path: Path, base_offset: int, *, quiet: bool, sanity: bool
) -> Iterator[DumpEntry]:
    """Yield the entries of a `.index`, each checked against its batch."""
    entries = _used(file, OFFSET_ENTRY)
    if sanity:
        yield _sanity(path, OFFSET_ENTRY, (offset for offset, _ in entries))
        return
    mismatches = []
    empty = True
    with _SegmentLog(path) as log:
        for relative, position in entries:
            empty = False
            offset = base_offset + relative
            batch = log.batch_at(position)
            if batch is not None and batch.last_offset != offset:
                mismatches.append(f"  Index offset: {offset}, log offset: {batch.last_offset}")
            if not quiet:
                yield FieldsLine("offsetIndex", {"offset": offset, "position": position})
    yield from _ending(path, empty, "Mismatches in", mismatches)


def dump_time_index(file: BinaryIO, path: Path, base_offset: int, *, quiet: bool, sanity: bool) -> Iterator[DumpEntry]:
    """Yield the entries of a `.timeindex`, whose timestamps and offsets must increase."""
    entries = _used(file, TIME_ENTRY)
    if sanity:
        yield _sanity(path, TIME_ENTRY, (offset for _, offset in entries))
        return
    mismatches = []
    empty = True
    last_timestamp, last_offset = -1, base_offset - 1
    for timestamp, relative in entries:
        offset = base_offset + relative
        if timestamp < last_timestamp or (not empty and offset < last_offset):
            mismatches.append(f"  Index timestamp: {timestamp} offset: {offset} after {last_timestamp}, {last_offset}")
        empty = False
        last_timestamp, last_offset = timestamp, offset
        if not quiet:
            yield FieldsLine("timeIndex", {"timestamp": timestamp, "offset": offset})
    yield from _ending(path, empty, "Found timestamps out of order in", mismatches)


def dump_transaction_index(file: BinaryIO) -> Iterator[DumpEntry]:
    """Yield the entries of a `.txnindex`: the aborted transactions of a segment."""
    for version, producer_id, first, last, stable in _entries(file, TRANSACTION_ENTRY):
        yield FieldsLine(
            "abortedTransaction",
            {
                "version": version,
                "producerId": producer_id,
                "firstOffset": first,
                "lastOffset": last,
                "lastStableOffset": stable,
            },
        )


def _entries(file: BinaryIO, layout: Struct) -> Iterator[tuple[int, ...]]:
    """Yield complete entries; ignore a fragment at the end."""
    while chunk := file.read(layout.size * CHUNK_ENTRIES):
        yield from layout.iter_unpack(chunk[: len(chunk) - len(chunk) % layout.size])


def _used(file: BinaryIO, layout: Struct) -> Iterator[tuple[int, ...]]:
    """Yield the entries before the preallocated zeros."""
    for entry in _entries(file, layout):
        if not any(entry):
            return
        yield entry


def _ending(path: Path, empty: bool, heading: str, mismatches: list[str]) -> Iterator[DumpEntry]:
    if empty:
        yield TextLine(f"{path} is empty.")
    if mismatches:
        yield TextLine(f"{heading} :{path}", "mismatch")
        for mismatch in mismatches:
            yield TextLine(mismatch, "mismatch")


def _sanity(path: Path, layout: Struct, relative_offsets: Iterator[int]) -> DumpEntry:
    """Run Kafka's index check at startup: complete entries, and a last offset not below the base offset."""
    size = os.stat(path).st_size
    if size % layout.size:
        return TextLine(f"{path} failed sanity check: {size} bytes are not a multiple of {layout.size}", "mismatch")
    last = deque(relative_offsets, maxlen=1)
    if last and last[0] < 0:
        return TextLine(f"{path} failed sanity check: its last offset is below its first", "mismatch")
    return TextLine(f"{path} passed sanity check.", "sanity")


class _SegmentLog:
    """The `.log` of an index, for batch lookups. Without the log there are no checks."""

    def __init__(self, index: Path) -> None:
        path = index.with_suffix(".log")
        self._file = path.open("rb") if path.exists() else None

    def __enter__(self) -> "_SegmentLog":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def batch_at(self, position: int) -> BatchHeader | None:
        if self._file is None:
            return None
        self._file.seek(position)
        try:
            return parse_header(self._file.read(HEADER_SIZE))
        except MalformedBatch:
            return None

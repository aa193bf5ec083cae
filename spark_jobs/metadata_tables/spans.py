"""The names of the tables' files, which say what offsets they cover. Names only.

`<table>/<start %020d>-<end %020d>/part-<part>.parquet` holds what the records from `start` to before `end` did: a row's
offset lies in its file's span. A span that lies within another one was merged into that.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

MERGED: Final = "merged"
"""Followed by a level: how often its rows were merged."""
SMALL: Final = "small"
_LEVEL: Final = re.compile(rf"/part-{MERGED}(\d+)\.parquet$")
_NAME: Final = re.compile(r"(?P<table>[a-z]+)/(?P<start>\d{20})-(?P<end>\d{20})/part-(?P<part>[a-z0-9]+)\.parquet")


class FileSpan(NamedTuple):
    """From `start` to before `end`."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start:020d}-{self.end:020d}"

    def covers(self, other: "FileSpan") -> bool:
        return self != other and self.start <= other.start and other.end <= self.end


class TableFile(NamedTuple):
    name: str
    table: str
    span: FileSpan
    size: int = 0

    @property
    def level(self) -> int:
        found = _LEVEL.search(self.name)
        return 0 if found is None else int(found[1])


def file_name(table: str, span: tuple[int, int], part: str) -> str:
    return f"{table}/{FileSpan(*span)}/part-{part}.parquet"


def parse_file(name: str, size: int = 0) -> TableFile | None:
    """None for a name of another kind."""
    match = _NAME.fullmatch(name)
    return (
        None
        if match is None
        else TableFile(name, match["table"], FileSpan(int(match["start"]), int(match["end"])), size)
    )


def covered(files: Iterable[TableFile]) -> list[TableFile]:
    """Those of one table that were merged into others of them, and are still there."""
    found: list[TableFile] = []
    widest = FileSpan(0, 0)
    for file in sorted(files, key=lambda each: (each.span.start, -each.span.end)):
        if widest.covers(file.span):
            found.append(file)
        elif file.span.end > widest.end:
            widest = file.span
    return found


def to_be_merged(files: Iterable[TableFile], small_bytes: int, at_least: int) -> list[list[TableFile]]:
    """Neighbouring small spans of one table that are to be made one each, of twice as many bytes as are small at most.

    As digits of a counter: `at_least` steps make a span of level 1, as many of those one of level 2, so that what a
    step brought is not written more often than there are levels. Those before a large span are merged as they are, for
    they get no more.
    """
    found: list[list[list[TableFile]]] = []
    small: list[list[TableFile]] = []
    for of_span in by_span(files):
        if is_small(of_span, small_bytes):
            small.append(of_span)
        else:
            found += _pieces(small, small_bytes)
            small = []
    for _, same in groupby(small, _level):
        run = list(same)
        if len(run) >= at_least or sum(map(bytes_of, run)) >= small_bytes:
            found += _pieces(run, small_bytes)
    return [[file for of_span in piece for file in of_span] for piece in found if len(piece) > 1]


def _pieces(spans: Iterable[list[TableFile]], limit: int) -> Iterator[list[list[TableFile]]]:
    """Each of so many spans as reach the limit."""
    piece: list[list[TableFile]] = []
    for of_span in spans:
        piece.append(of_span)
        if sum(map(bytes_of, piece)) >= limit:
            yield piece
            piece = []
    yield piece


def _level(of_span: Iterable[TableFile]) -> int:
    return max(file.level for file in of_span)


def by_span(files: Iterable[TableFile]) -> list[list[TableFile]]:
    """Files of one table, those of a span together, in order."""
    found: dict[FileSpan, list[TableFile]] = {}
    for file in files:
        found.setdefault(file.span, []).append(file)
    return [found[span] for span in sorted(found)]


def is_small(of_span: Iterable[TableFile], limit: int) -> bool:
    """Whether all files of a span may be merged with others, up to a limit of bytes."""
    return bytes_of(of_span) < limit


def bytes_of(of_span: Iterable[TableFile]) -> int:
    return sum(file.size for file in of_span)

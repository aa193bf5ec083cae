"""The names of the tables' files, which contain the offsets that they cover.

`<table>/<start %020d>-<end %020d>/part-<part>.parquet` holds the changes of the records from `start` to before `end`: a
row's offset lies in its file's span. A span inside another one was merged into that.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

MERGED: Final = "merged"
"""Followed by the level: the number of merges of its rows."""
SMALL: Final = "small"
_LEVEL: Final = re.compile(rf"/part-{MERGED}(\d+)\.parquet$")
_NAME: Final = re.compile(r"(?P<table>[a-z]+)/(?P<start>\d{20})-(?P<end>\d{20})/part-(?P<part>[a-z0-9]+)\.parquet")


class FileSpan(NamedTuple):
    """The offsets from `start` to before `end`."""

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
    """Parse a file name; None for another kind of name."""
    match = _NAME.fullmatch(name)
    return (
        None
        if match is None
        else TableFile(name, match["table"], FileSpan(int(match["start"]), int(match["end"])), size)
    )


def covered(files: Iterable[TableFile]) -> list[TableFile]:
    """Return the files of one table that were merged into other files of it and are still there."""
    found: list[TableFile] = []
    widest = FileSpan(0, 0)
    for file in sorted(files, key=lambda each: (each.span.start, -each.span.end)):
        if widest.covers(file.span):
            found.append(file)
        elif file.span.end > widest.end:
            widest = file.span
    return found


def to_be_merged(files: Iterable[TableFile], small_bytes: int, at_least: int) -> list[list[TableFile]]:
    """Return groups of adjacent small spans of one table to merge, each of at most twice `small_bytes`.

    Levels work like digits of a counter: `at_least` spans of level 0 make a span of level 1, as many of those one of
    level 2, so that a row is rewritten at most once per level. Small spans before a large one are merged in any number,
    because no more will come.
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
    """Yield groups of as many spans as reach the limit."""
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
    """Group the files of one table by span, in order."""
    found: dict[FileSpan, list[TableFile]] = {}
    for file in files:
        found.setdefault(file.span, []).append(file)
    return [found[span] for span in sorted(found)]


def is_small(of_span: Iterable[TableFile], limit: int) -> bool:
    """Whether the files of a span are small enough, in bytes, to be merged."""
    return bytes_of(of_span) < limit


def bytes_of(of_span: Iterable[TableFile]) -> int:
    return sum(file.size for file in of_span)

"""The names of the tables' files, which say what offsets they cover. Names only.

`<table>/<start %020d>-<end %020d>/part-<part>.parquet` holds what the records from `start` to before `end` did: a row's
offset lies in its file's span. A span that lies within another one was merged into that.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"(?P<table>[a-z]+)/(?P<start>\d{20})-(?P<end>\d{20})/part-(?P<part>[a-z0-9]+)\.parquet")
MERGED: Final = "merged"
SMALL: Final = "small"


class Span(NamedTuple):
    """From `start` to before `end`."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start:020d}-{self.end:020d}"

    def covers(self, other: "Span") -> bool:
        return self != other and self.start <= other.start and other.end <= self.end


class TableFile(NamedTuple):
    name: str
    table: str
    span: Span
    size: int = 0

    @property
    def is_merged(self) -> bool:
        return self.name.endswith(f"/part-{MERGED}.parquet")


def file_name(table: str, span: tuple[int, int], part: str) -> str:
    return f"{table}/{Span(*span)}/part-{part}.parquet"


def parse_file(name: str, size: int = 0) -> TableFile | None:
    """None for a name of another kind."""
    match = _NAME.fullmatch(name)
    return (
        None if match is None else TableFile(name, match["table"], Span(int(match["start"]), int(match["end"])), size)
    )


def covered(files: Iterable[TableFile]) -> list[TableFile]:
    """Those of one table that were merged into others of them, and are still there."""
    found: list[TableFile] = []
    widest = Span(0, 0)
    for file in sorted(files, key=lambda each: (each.span.start, -each.span.end)):
        if widest.covers(file.span):
            found.append(file)
        elif file.span.end > widest.end:
            widest = file.span
    return found


def to_be_merged(files: Iterable[TableFile], small_bytes: int, at_least: int) -> list[list[TableFile]]:
    """Runs of `at_least` small spans of one table with no large one in between."""
    runs: list[list[TableFile]] = [[]]
    lengths = [0]
    for of_span in by_span(files):
        if is_small(of_span, small_bytes):
            runs[-1] += of_span
            lengths[-1] += 1
        elif runs[-1]:
            runs.append([])
            lengths.append(0)
    return [run for run, length in zip(runs, lengths, strict=True) if length >= at_least]


def by_span(files: Iterable[TableFile]) -> list[list[TableFile]]:
    """Files of one table, those of a span together, in order."""
    found: dict[Span, list[TableFile]] = {}
    for file in files:
        found.setdefault(file.span, []).append(file)
    return [found[span] for span in sorted(found)]


def is_small(of_span: Iterable[TableFile], small_bytes: int) -> bool:
    """Whether all files of a span may be merged with others."""
    return sum(file.size for file in of_span) < small_bytes

"""What executors read for one micro-batch: ranges of offsets side by side, or a snapshot where the log begins later."""

import itertools
from dataclasses import dataclass
from typing import Final, TypeAlias

from spark_jobs.metadata_source.metadata_log import LogTrimmed, SnapshotName
from spark_jobs.metadata_source.position import MetadataPosition
from spark_jobs.metadata_source.reach import FetchableLog

ROWS_PER_RANGE: Final = 100_000
"""A range is not made smaller than this: starting another worker would cost more than it saves."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Offsets from `start` to before `end`; they may lie within batches."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WholeSnapshot:
    """A snapshot in place of all records before its end."""

    name: SnapshotName


Part: TypeAlias = LogRange | WholeSnapshot


def plan(log: FetchableLog, start: MetadataPosition, end: MetadataPosition, most: int) -> list[Part]:
    """At most `most` ranges from `start` to `end`, and a snapshot before them if the log begins after `start`.

    The snapshot may even end after `end`, when the log was trimmed since that was found.
    """
    if start.offset >= end.offset:
        return []
    try:
        log.fetch(start.offset, 1)
    except LogTrimmed as trimmed:
        return [WholeSnapshot(trimmed.snapshot), *ranges(trimmed.snapshot.end, end.offset, most)]
    return list(ranges(start.offset, end.offset, most))


def ranges(start: int, end: int, most: int) -> list[LogRange]:
    """`start` to `end` in at most `most` ranges of about the same length."""
    count = max(0, min(most, -(-(end - start) // ROWS_PER_RANGE)))
    bounds = [start + (end - start) * index // count for index in range(count)] + [end]
    return [LogRange(*bound) for bound in itertools.pairwise(bounds)]

"""The plan of one micro-batch for executors: adjacent ranges of offsets, or a snapshot if the log begins later."""

import itertools
from dataclasses import dataclass
from typing import Final, TypeAlias

from spark_jobs.metadata_source.batch_end import FetchableLog
from spark_jobs.metadata_source.metadata_log import LogTrimmed, SnapshotName
from spark_jobs.metadata_source.position import MetadataPosition

ROWS_PER_RANGE: Final = 100_000
"""The smallest range: starting another worker would cost more than it saves."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Offsets from `start` to before `end`, which may lie within batches."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WholeSnapshot:
    """A snapshot that replaces all records before its end."""

    name: SnapshotName


Part: TypeAlias = LogRange | WholeSnapshot


def plan(log: FetchableLog, start: MetadataPosition, end: MetadataPosition, most: int) -> list[Part]:
    """Return at most `most` ranges from `start` to `end`, after a snapshot if the log begins after `start`.

    The snapshot may end after `end` if the log was trimmed since `end` was determined.
    """
    if start.offset >= end.offset:
        return []
    try:
        log.fetch(start.offset, 1)
    except LogTrimmed as trimmed:
        return [WholeSnapshot(trimmed.snapshot), *ranges(trimmed.snapshot.end, end.offset, most)]
    return list(ranges(start.offset, end.offset, most))


def ranges(start: int, end: int, most: int) -> list[LogRange]:
    """Split `start` to `end` into at most `most` ranges of about the same length."""
    count = max(0, min(most, -(-(end - start) // ROWS_PER_RANGE)))
    bounds = [start + (end - start) * index // count for index in range(count)] + [end]
    return [LogRange(*bound) for bound in itertools.pairwise(bounds)]

"""Offset resets of --reset-offsets: scopes, strategies and the resulting offsets. Pure: no client, no clock.

The command collects the candidates (committed, earliest, latest, by time) and calls `new_offset` per partition.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from protocol.lazy_dataclass import lazy_dataclass
from storage.directories.checkpoints import TopicPartition


class ResetError(Exception):
    """A reset that is invalid or impossible."""


class ResetStrategy(Enum):
    """The kinds of reset. BY_TIME covers --to-datetime and --by-duration."""

    TO_OFFSET = auto()
    TO_EARLIEST = auto()
    TO_LATEST = auto()
    TO_CURRENT = auto()
    SHIFT_BY = auto()
    BY_TIME = auto()
    FROM_FILE = auto()


@lazy_dataclass(frozen=True, slots=True)
class ResetSpecification:
    """A reset. `number` is the offset, the shift, or the time in ms since 1970, depending on the strategy."""

    strategy: ResetStrategy
    number: int = 0


@lazy_dataclass(frozen=True, slots=True)
class ResetCandidates:
    """Offsets of a partition. `committed` is None without a commit, `by_time` without a record at or after the time."""

    earliest: int
    latest: int
    committed: int | None
    by_time: int | None


def new_offset(specification: ResetSpecification, partition: TopicPartition, candidates: ResetCandidates) -> int:
    """Return the offset to commit, limited to the partition's offsets. Raises ResetError."""
    match specification.strategy:
        case ResetStrategy.TO_EARLIEST:
            return candidates.earliest
        case ResetStrategy.TO_LATEST:
            return candidates.latest
        case ResetStrategy.TO_CURRENT:
            return candidates.latest if candidates.committed is None else candidates.committed
        case ResetStrategy.BY_TIME:
            return candidates.latest if candidates.by_time is None else candidates.by_time
        case ResetStrategy.SHIFT_BY:
            if candidates.committed is None:
                raise ResetError(
                    f"Cannot shift offset for partition {partition} since there is no current committed offset."
                )
            wanted = candidates.committed + specification.number
        case ResetStrategy.TO_OFFSET | ResetStrategy.FROM_FILE:
            wanted = specification.number
    return min(max(wanted, candidates.earliest), candidates.latest)


def parse_scope(text: str) -> tuple[str, list[int] | None]:
    """Parse "topic" or "topic:0,1" to (topic, partitions or None for all). Raises ResetError."""
    topic, colon, partitions = text.rpartition(":")
    if not colon:
        return text, None
    try:
        return topic, [int(partition) for partition in partitions.split(",")]
    except ValueError as error:
        raise ResetError(f"--topic {text}: use TOPIC or TOPIC:0,1,2.") from error


def parse_datetime_ms(text: str) -> int:
    """Parse "2020-01-31T12:00:00.000", in UTC unless a zone is given, to ms since 1970. Raises ResetError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ResetError(f"{text!r} is not a time; use YYYY-MM-DDThh:mm:ss.sss.") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


_DURATION = re.compile(
    r"([+-]?)P(?:([+-]?\d+)D)?(?:T(?=.)(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def parse_duration_ms(text: str) -> int:
    """Parse "P1DT2H3M4.5S" to ms. Raises ResetError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise ResetError(f"{text!r} is not a duration; use PnDTnHnMnS.")
    sign, days, hours, minutes, seconds = match.groups()
    span = timedelta(days=int(days or 0), hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0))
    return (-1 if sign == "-" else 1) * round(span.total_seconds() * 1000)


def read_plan(lines: Iterable[str], groups: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
    """Read offsets by group from CSV rows: topic,partition,offset for a single group, else with the group in front.

    Raises ResetError for a malformed row, or for a group that is not in `groups`.
    """
    wanted = list(groups)
    plan: dict[str, dict[TopicPartition, int]] = {group: {} for group in wanted}
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row:
            continue
        cells = [wanted[0], *row] if len(row) == 3 and len(wanted) == 1 else row
        if len(cells) != 4 or not (_is_number(cells[2]) and _is_number(cells[3])):
            raise ResetError(f"line {number} of the file is not [group,]topic,partition,offset.")
        if cells[0] not in plan:
            raise ResetError(f"line {number} of the file names group {cells[0]!r}, which is not given by --group.")
        plan[cells[0]][TopicPartition(cells[1], int(cells[2]))] = int(cells[3])
    return plan


def _is_number(text: str) -> bool:
    return text.strip().isdigit()


def written_plan(plan: Mapping[str, Mapping[TopicPartition, int]]) -> list[str]:
    """Return the plan as CSV lines for `read_plan`, with the group only if there are several."""
    several = len(plan) > 1
    return [
        ",".join([*([group] if several else []), partition.topic, str(partition.partition), str(offset)])
        for group, offsets in plan.items()
        for partition, offset in offsets.items()
    ]

"""What --reset-offsets means: its scopes, its specifications, and the offsets they come to. Pure: no client, no clock.

The command gathers the facts (committed, earliest, latest, by time) and asks `new_offset` per partition.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from storage.directories.checkpoints import TopicPartition


class ResetError(Exception):
    """A specification that cannot be followed; one sentence."""


class ResetStrategy(Enum):
    """The kinds of specification. BY_TIME covers --to-datetime and --by-duration."""

    TO_OFFSET = auto()
    TO_EARLIEST = auto()
    TO_LATEST = auto()
    TO_CURRENT = auto()
    SHIFT_BY = auto()
    BY_TIME = auto()
    FROM_FILE = auto()


@dataclass(frozen=True, slots=True)
class ResetSpecification:
    """`number` is the offset, the shift, or the time in ms that `how` speaks of."""

    how: ResetStrategy
    number: int = 0


@dataclass(frozen=True, slots=True)
class ResetCandidates:
    """What is known of one partition. None: nothing committed, or no record at or after the time."""

    earliest: int
    latest: int
    committed: int | None
    by_time: int | None


def new_offset(specification: ResetSpecification, partition: TopicPartition, facts: ResetCandidates) -> int:
    """The offset to commit, within what the partition holds. Raises ResetError."""
    match specification.how:
        case ResetStrategy.TO_EARLIEST:
            return facts.earliest
        case ResetStrategy.TO_LATEST:
            return facts.latest
        case ResetStrategy.TO_CURRENT:
            return facts.latest if facts.committed is None else facts.committed
        case ResetStrategy.BY_TIME:
            return facts.latest if facts.by_time is None else facts.by_time
        case ResetStrategy.SHIFT_BY:
            if facts.committed is None:
                raise ResetError(
                    f"Cannot shift offset for partition {partition} since there is no current committed offset."
                )
            wanted = facts.committed + specification.number
        case ResetStrategy.TO_OFFSET | ResetStrategy.FROM_FILE:
            wanted = specification.number
    return min(max(wanted, facts.earliest), facts.latest)


def parse_scope(text: str) -> tuple[str, list[int] | None]:
    """ "topic" or "topic:0,1" as (topic, partitions or None for all). Raises ResetError."""
    topic, colon, partitions = text.rpartition(":")
    if not colon:
        return text, None
    try:
        return topic, [int(partition) for partition in partitions.split(",")]
    except ValueError as error:
        raise ResetError(f"--topic {text}: write TOPIC or TOPIC:0,1,2.") from error


def parse_datetime_ms(text: str) -> int:
    """ "2020-01-31T12:00:00.000", with or without a zone (UTC without), in ms since the epoch. Raises ResetError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ResetError(f"{text!r} is not a time: write YYYY-MM-DDThh:mm:ss.sss.") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


_DURATION = re.compile(
    r"([+-]?)P(?:([+-]?\d+)D)?(?:T(?=.)(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def parse_duration_ms(text: str) -> int:
    """ "P1DT2H3M4.5S" in ms. Raises ResetError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise ResetError(f"{text!r} is not a duration: write PnDTnHnMnS.")
    sign, days, hours, minutes, seconds = match.groups()
    span = timedelta(days=int(days or 0), hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0))
    return (-1 if sign == "-" else 1) * round(span.total_seconds() * 1000)


def read_plan(lines: Iterable[str], groups: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
    """The offsets of a CSV file by group: rows topic,partition,offset for the one group, or with the group in front.

    Raises ResetError for a row that is neither, or that names a group not asked for.
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
            raise ResetError(f"line {number} of the file names the group {cells[0]!r}, which --group does not.")
        plan[cells[0]][TopicPartition(cells[1], int(cells[2]))] = int(cells[3])
    return plan


def _is_number(text: str) -> bool:
    return text.strip().isdigit()


def written_plan(plan: Mapping[str, Mapping[TopicPartition, int]]) -> list[str]:
    """The plan as lines of CSV that `read_plan` takes; the group is named only when there are several."""
    several = len(plan) > 1
    return [
        ",".join([*([group] if several else []), partition.topic, str(partition.partition), str(offset)])
        for group, offsets in plan.items()
        for partition, offset in offsets.items()
    ]

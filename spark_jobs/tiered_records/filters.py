"""Translation of a query's filters on topic, partition, offset and time to bounds."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from spark_jobs.tiered_records.bounds import EVER, EVERYTHING, ReadBounds

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


def narrowed(bounds: ReadBounds, filters: Iterable[Filter]) -> ReadBounds:
    """Restrict the bounds to rows that all filters may accept, ignoring other filters."""
    for each in filters:
        match getattr(each, "attribute", None):
            case ("topic",):
                wanted = _one_of(each, str)
                bounds = bounds if wanted is None else bounds.among_topics(wanted)
            case ("partition",):
                numbers = _one_of(each, int)
                bounds = bounds if numbers is None else bounds.among(numbers)
            case ("offset",):
                bounds = bounds.between(*_between(each, _offset))
            case ("timestamp",):
                bounds = bounds.during(*_between(each, _floor_ms))
    return bounds


def _one_of(filter: Filter, kind: type[T]) -> list[T] | None:
    """Return the values that a filter accepts; None for another kind of filter."""
    match filter:
        case EqualTo(value=wanted) if isinstance(wanted, kind):
            return [wanted]
        case In(value=wanted) if all(isinstance(each, kind) for each in wanted):
            return list(wanted)
    return None


def _between(filter: Filter, number: Callable[[Any], int | None]) -> tuple[int, int]:
    """Return (from, to), with `to` exclusive. A time between two milliseconds counts as the earlier one."""
    found = number(getattr(filter, "value", None))
    if found is None:
        return EVER, EVERYTHING
    match filter:
        case EqualTo():
            return found, found + 1
        case GreaterThan() | GreaterThanOrEqual():
            return found, EVERYTHING
        case LessThan() | LessThanOrEqual():
            return EVER, found + 1
    return EVER, EVERYTHING


def _offset(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _floor_ms(value: object) -> int | None:
    """Return the milliseconds; None for a time without a zone."""
    return (value - _EPOCH) // _MS if isinstance(value, datetime) and value.tzinfo is not None else None

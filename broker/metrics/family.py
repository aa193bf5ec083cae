"""A metric family: name, help text, kind, and the source of its values.

Values are read at a scrape. Hot paths do not know families; they add to plain integers that the families read.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from protocol.lazy_dataclass import lazy_dataclass

Kind: TypeAlias = Literal["counter", "gauge", "summary"]
NO_LABELS: Mapping[str, str] = {}


class Sample(NamedTuple):
    """A value. `suffix` is empty, except for the `_count` and `_sum` of a summary."""

    value: float
    labels: Mapping[str, str] = NO_LABELS
    suffix: str = ""


@lazy_dataclass(frozen=True, slots=True)
class Family:
    """All values of one name. A counter's name ends in `_total`.

    The exposition consumes the result of `read` in slices, between which the node continues to work. `read` must
    therefore iterate over a snapshot of its own (a list of the objects, say), and should create each sample when it is
    reached.
    """

    name: str
    help: str
    kind: Kind
    read: Callable[[], Iterable[Sample]]


def gauge(name: str, help_text: str, read: Callable[[], float]) -> Family:
    """Return a family with a single value that rises and falls."""
    return Family(name, help_text, "gauge", lambda: [Sample(read())])


def counter(name: str, help_text: str, read: Callable[[], float]) -> Family:
    """Return a family with a single value that only grows."""
    return Family(name, help_text, "counter", lambda: [Sample(read())])

"""What a metric is to those who declare and render it: a name, a sentence, a kind, and where its values come from.

Values are read when somebody scrapes. Nothing on a hot path knows of families; it adds to plain integers that the
families read.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "summary"]
NO_LABELS: Mapping[str, str] = {}


class Sample(NamedTuple):
    """One value. `suffix` is empty, but for the `_count` and `_sum` of a summary."""

    value: float
    labels: Mapping[str, str] = NO_LABELS
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """All values of one name. A counter's name ends in `_total`.

    What `read` returns is gone through in slices, between which the node works on: it must walk over a snapshot of its
    own (a list of the objects, say), and had better make each sample when it is reached.
    """

    name: str
    help: str
    kind: Kind
    read: Callable[[], Iterable[Sample]]


def gauge(name: str, help_text: str, read: Callable[[], float]) -> Family:
    """A single value that goes up and down."""
    return Family(name, help_text, "gauge", lambda: [Sample(read())])


def counter(name: str, help_text: str, read: Callable[[], float]) -> Family:
    """A single value that only grows."""
    return Family(name, help_text, "counter", lambda: [Sample(read())])

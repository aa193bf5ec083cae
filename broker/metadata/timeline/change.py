"""One change of cluster metadata, as a sentence."""

from typing import Final, NamedTuple

LIST_MAX: Final = 8
"""Numbers that a sentence lists before it counts the rest."""


class Change(NamedTuple):
    """A change of one resource. `then` and `now` are the values before and after it, where they are short."""

    sentence: str
    kind: str
    resource: str
    then: str | None = None
    now: str | None = None


def count_of(number: int, noun: str) -> str:
    """Return `1 partition` or `3 partitions`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(numbers: tuple[int, ...] | list[int]) -> str:
    """Return numbers with commas; the count of the rest where they are many; `none` without any."""
    if not numbers:
        return "none"
    text = ", ".join(map(str, numbers[:LIST_MAX]))
    return text if len(numbers) <= LIST_MAX else f"{text} and {len(numbers) - LIST_MAX} more"

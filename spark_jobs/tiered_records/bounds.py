"""The bounds of a read: topics, partitions, offsets and times, from options and from filters of a query.

Bounds exclude only rows that cannot match; an included row may still fail the query's filter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

EVERYTHING: Final = 2**63 - 1
"""Upper bound of offsets or times that excludes nothing."""
EVER: Final = -(2**63)
"""Lower bound of times that excludes nothing: a producer may send timestamps before 1970."""


ANY_TOPIC: Final = ""


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """The bounds. `topics` and `partitions` are None for all.

    Offsets from `first` to before `end`; `firsts` and `ends` by topic and partition take precedence over those by
    partition alone (ANY_TOPIC), and these over the common ones. Records with `from_ms` <= timestamp < `to_ms`.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    end: int = EVERYTHING
    firsts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    from_ms: int = EVER
    to_ms: int = EVERYTHING

    def wants(self, topic: str, partition: int) -> bool:
        is_wanted = self.partitions is None or partition in self.partitions
        return is_wanted and (self.topics is None or topic in self.topics)

    def offsets_of(self, topic: str, partition: int) -> tuple[int, int]:
        """Return (first, end)."""
        first = _offset_for(self.firsts, topic, partition, 0)
        end = _offset_for(self.ends, topic, partition, EVERYTHING)
        return max(first, self.first), min(end, self.end)

    def among_topics(self, topics: Iterable[str]) -> "ReadBounds":
        wanted = frozenset(topics)
        return replace(self, topics=wanted if self.topics is None else self.topics & wanted)

    def among(self, partitions: Iterable[int]) -> "ReadBounds":
        wanted = frozenset(partitions)
        return replace(self, partitions=wanted if self.partitions is None else self.partitions & wanted)

    def between(self, first: int, end: int) -> "ReadBounds":
        """Restrict the bounds to these offsets."""
        return replace(self, first=max(self.first, first), end=min(self.end, end))

    def during(self, from_ms: int, to_ms: int) -> "ReadBounds":
        """Restrict the bounds to this time."""
        return replace(self, from_ms=max(self.from_ms, from_ms), to_ms=min(self.to_ms, to_ms))


def _offset_for(offsets: Mapping[tuple[str, int], int], topic: str, partition: int, default: int) -> int:
    return offsets.get((topic, partition), offsets.get((ANY_TOPIC, partition), default))

"""Which part of a topic is wanted: by topic, partition, offset and time, from options and from filters of a query.

ReadBounds only ever leave out what cannot be wanted; a row that they let through may still fail the query's filter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

EVERYTHING: Final = 2**63 - 1
"""An end, of offsets or times, that leaves out nothing."""
EVER: Final = -(2**63)
"""A beginning of times, which a producer may have made up from before 1970, that leaves out nothing."""


ANY_TOPIC: Final = ""


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """`topics` and `partitions` are None for all. Offsets from `first` to before `end`; where they are told by topic
    and partition, these take the place of those told by partition alone, ANY_TOPIC, and these of the common one.
    Records with `from_ms` <= timestamp < `to_ms`.
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
        """(first, end)."""
        first = _told(self.firsts, topic, partition, 0)
        end = _told(self.ends, topic, partition, EVERYTHING)
        return max(first, self.first), min(end, self.end)

    def among_topics(self, topics: Iterable[str]) -> "ReadBounds":
        wanted = frozenset(topics)
        return replace(self, topics=wanted if self.topics is None else self.topics & wanted)

    def among(self, partitions: Iterable[int]) -> "ReadBounds":
        wanted = frozenset(partitions)
        return replace(self, partitions=wanted if self.partitions is None else self.partitions & wanted)

    def between(self, first: int, end: int) -> "ReadBounds":
        """Also within these offsets."""
        return replace(self, first=max(self.first, first), end=min(self.end, end))

    def during(self, from_ms: int, to_ms: int) -> "ReadBounds":
        """Also within this time."""
        return replace(self, from_ms=max(self.from_ms, from_ms), to_ms=min(self.to_ms, to_ms))


def _told(offsets: Mapping[tuple[str, int], int], topic: str, partition: int, default: int) -> int:
    return offsets.get((topic, partition), offsets.get((ANY_TOPIC, partition), default))

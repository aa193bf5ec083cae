"""Ranges of message versions in schema notation: "none", "3", "0-4", "7+"."""

import re
from typing import NamedTuple

HIGHEST = 0x7FFF
_RANGE = re.compile(r"(\d+)(?:(\+)|-(\d+))?")


class Versions(NamedTuple):
    """A closed range of versions; `Versions(first, HIGHEST)` is open-ended, and `NONE` holds no version."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Parse "none", "N", "N-M" with N <= M, or "N+". Raises ValueError."""
        if text == "none":
            return NONE
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(f"not a range of versions: {text!r}")
        first = int(match[1])
        last = HIGHEST if match[2] else int(match[3] or match[1])
        if not first <= last <= HIGHEST:
            raise ValueError(f"not a range of versions: {text!r}")
        return cls(first, last)

    def __contains__(self, version: object) -> bool:
        """Whether the range holds `version`; a NamedTuple would look for it among `first` and `last`."""
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.first > self.last:
            return "none"
        if self.last == HIGHEST:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def within(self, other: "Versions") -> bool:
        """Whether every version of this range is in `other`."""
        return self.first > self.last or (other.first <= self.first and self.last <= other.last)


NONE = Versions(0, -1)
ALL = Versions(0, HIGHEST)

"""The time index (`N.timeindex`): from a timestamp to an offset before which all records are older. 12 bytes per entry.

Each entry holds the largest timestamp so far and the last offset, relative to the segment's base offset, of the first
batch with it; an entry is added only when that timestamp has grown. One slot stays free for the final entry of a
segment.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from storage.files import FileSystem
from storage.index.entries import EntryFile

ENTRY = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class TimeIndex:
    def __init__(self, fs: FileSystem, path: str, base_offset: int, max_bytes: int) -> None:
        self.entries = EntryFile(fs, path, ENTRY)
        self._base_offset = base_offset
        self.max_entries = max_bytes // ENTRY.size
        self._last_timestamp: int | None = -1
        """None until it is looked up."""

    @property
    def is_full(self) -> bool:
        return self.entries.count >= self.max_entries - 1

    @property
    def last(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if there is none."""
        return self._entry(-1) if len(self.entries) else TimestampOffset(-1, self._base_offset)

    @property
    def ascends(self) -> bool:
        """Whether the last entry is above the first, as required. With zeros in the file, retention would date the
        segment to 1970.
        """
        return len(self.entries) < 2 or self.last.timestamp > self._entry(0).timestamp

    def load(self) -> None:
        self.entries.load()
        self._last_timestamp = None

    def reset(self) -> None:
        self.entries.reset()
        self._last_timestamp = -1

    def maybe_append(self, timestamp: int, offset: int, *, final: bool = False) -> None:
        """Add an entry if `timestamp` is above the last one; `final` may use the reserved slot."""
        last = self._last_timestamp
        if last is None:
            last = self._last_timestamp = self.last.timestamp
        if timestamp > last and (final or not self.is_full):
            self.entries.append(timestamp, offset - self._base_offset)
            self._last_timestamp = timestamp

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry at or below `timestamp`; (-1, base offset) if there is none."""
        number = self.entries.floor(timestamp)
        return TimestampOffset(-1, self._base_offset) if number < 0 else self._entry(number)

    def _entry(self, number: int) -> TimestampOffset:
        timestamp, relative = self.entries.get(number)
        return TimestampOffset(timestamp, self._base_offset + relative)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`; offsets ascend with the timestamps."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle).offset < offset:
                low = middle + 1
            else:
                high = middle
        self.entries.cut(low)
        self._last_timestamp = self.last.timestamp

    def __iter__(self) -> Iterator[TimestampOffset]:
        for timestamp, relative in self.entries:
            yield TimestampOffset(timestamp, self._base_offset + relative)

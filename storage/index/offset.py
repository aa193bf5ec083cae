"""The offset index (`N.index`): from an offset to the position in the segment where a search starts. 8 bytes per entry.

Each entry holds the last offset of a batch, relative to the segment's base offset, and the position of the batch.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from storage.files import FileSystem
from storage.index.entries import EntryFile

ENTRY = struct.Struct(">ii")


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class OffsetIndex:
    def __init__(self, fs: FileSystem, path: str, base_offset: int, max_bytes: int) -> None:
        self.entries = EntryFile(fs, path, ENTRY)
        self._base_offset = base_offset
        self.max_entries = max_bytes // ENTRY.size

    @property
    def is_full(self) -> bool:
        return self.entries.count >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Append an entry whose `offset` is above all others; a full index ignores it."""
        if self.entries.count < self.max_entries:
            self.entries.append(offset - self._base_offset, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry at or below `offset`; (base offset, 0) if there is none."""
        number = self.entries.floor(offset - self._base_offset)
        return OffsetPosition(self._base_offset, 0) if number < 0 else self._entry(number)

    def position_floor(self, position: int, from_offset: int) -> int:
        """Return the greatest indexed position at or below `position`, from the entry for `from_offset` on; -1 if
        none.
        """
        return self.entries.value_floor(position, max(0, self.entries.floor(from_offset - self._base_offset)))

    def _entry(self, number: int) -> OffsetPosition:
        relative, position = self.entries.get(number)
        return OffsetPosition(self._base_offset + relative, position)

    @property
    def last(self) -> OffsetPosition:
        return self._entry(-1) if len(self.entries) else OffsetPosition(self._base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self.entries.cut(self.entries.floor(offset - self._base_offset - 1) + 1)

    def __iter__(self) -> Iterator[OffsetPosition]:
        for relative, position in self.entries:
            yield OffsetPosition(self._base_offset + relative, position)

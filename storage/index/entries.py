"""A file of (key, value) entries of fixed size, sorted by key: the common part of the offset and the time index.

Owns the place of entries (the file, or the tail in memory) and the search; the two indexes interpret them.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from storage.files import FileSystem, write_file

SPILL_ENTRIES = 1024
"""Entries that stay in memory: a tail of twice this length is written out except for the newest, the target of most
lookups. 16 bytes of memory each.
"""
BLOCK_ENTRIES = 512
"""Entries per read when a lookup needs the file: about a page."""


class _Block(NamedTuple):
    """Entries of the file from number `start` on."""

    start: int
    keys: "array[int]"
    values: "array[int]"

    def holds(self, number: int) -> bool:
        return self.start <= number < self.start + len(self.keys)


class EntryFile:
    """The sorted entries. `entry` is the layout of one entry, two integers of which the first is the key; keys never
    decrease.
    """

    def __init__(self, fs: FileSystem, path: str, entry: struct.Struct) -> None:
        self._fs = fs
        self.path = path
        self._entry = entry
        self.is_whole = True
        """Whether the file held whole entries only when it was loaded."""
        self.count = 0
        """Number of entries; an attribute, because each append reads it."""
        self._filed = 0
        """Number of entries that only the file holds. Those in the tail follow; the file has the first `_saved` of them
        too.
        """
        self._saved = 0
        self._keys = array("q")
        self._values = array("q")
        self._block = _Block(0, array("q"), array("q"))

    def __len__(self) -> int:
        return self.count

    def load(self) -> None:
        """Load the file as it is, ignoring a trailing partial entry. Raises FileNotFoundError."""
        size = self._fs.size(self.path)
        self.is_whole = size % self._entry.size == 0
        self._forget(size // self._entry.size)

    def reset(self) -> None:
        """Drop all entries and empty the file."""
        self._forget(0)
        write_file(self._fs, self.path, b"", sync=False)

    def _forget(self, filed: int) -> None:
        self.count = self._filed = filed
        self._saved = 0
        self._keys = array("q")
        self._values = array("q")
        self._block = _Block(0, array("q"), array("q"))

    def append(self, key: int, value: int) -> None:
        self._keys.append(key)
        self._values.append(value)
        self.count += 1
        if self.count - self._filed >= 2 * SPILL_ENTRIES:
            self._spill()

    def _spill(self) -> None:
        self.save()
        cut = len(self._keys) - SPILL_ENTRIES
        self._filed += cut
        self._saved -= cut
        del self._keys[:cut]
        del self._values[:cut]

    def save(self) -> None:
        """Write the missing entries to the file, without fsync."""
        if self._saved == len(self._keys):
            return
        new = map(self._entry.pack, self._keys[self._saved :], self._values[self._saved :])
        file = self._fs.open(self.path)
        try:
            file.write((self._filed + self._saved) * self._entry.size, b"".join(new))
        finally:
            file.close()
        self._saved = len(self._keys)

    def release(self) -> None:
        """Save, and drop the entries from memory; for a segment that gets no more appends."""
        self.save()
        self._forget(len(self))

    def get(self, number: int) -> tuple[int, int]:
        """Return (key, value) of an entry; negative numbers count from the end."""
        if number < 0:
            number += len(self)
        if number >= self._filed:
            return self._keys[number - self._filed], self._values[number - self._filed]
        block = self._block_of(number)
        return block.keys[number - block.start], block.values[number - block.start]

    def floor(self, key: int) -> int:
        """Return the number of the last entry whose key is at most `key`; -1 if there is none."""
        if self._keys and self._keys[0] <= key:
            return self._filed + bisect_right(self._keys, key) - 1
        return self._floor_in_file(key)

    def _floor_in_file(self, key: int) -> int:
        """Search the last block first, which holds the key for a sequential reader, then the whole file."""
        if not self._filed:
            return -1
        block = self._block
        if not block.keys or not block.keys[0] <= key < block.keys[-1]:
            number = self._search_blocks(key)
            if number < 0:
                return -1
            block = self._block_of(number)
        return block.start + bisect_right(block.keys, key) - 1

    def _search_blocks(self, key: int) -> int:
        """Return the number of the first entry of the block that may contain `key`, by the blocks' first keys; -1 if
        none.
        """
        low, high = 0, -(-self._filed // BLOCK_ENTRIES)
        file = self._fs.open_existing(self.path)
        try:
            while low < high:
                middle = (low + high) // 2
                entry = file.read(middle * BLOCK_ENTRIES * self._entry.size, self._entry.size)
                if self._entry.unpack(entry)[0] <= key:
                    low = middle + 1
                else:
                    high = middle
        finally:
            file.close()
        return (low - 1) * BLOCK_ENTRIES

    def _block_of(self, number: int) -> _Block:
        if not self._block.holds(number):
            start = number - number % BLOCK_ENTRIES
            keys, values = zip(*self._read(start), strict=True)
            self._block = _Block(start, array("q", keys), array("q", values))
        return self._block

    def _read(self, start: int) -> list[tuple[int, int]]:
        size = self._entry.size
        file = self._fs.open_existing(self.path)
        try:
            data = file.read(start * size, min(BLOCK_ENTRIES, self._filed - start) * size)
        finally:
            file.close()
        return list(self._entry.iter_unpack(data))

    def value_floor(self, value: int, number: int) -> int:
        """Return the greatest value that is at most `value` from entry `number` on, where values ascend; -1 if none."""
        found = -1
        while number < self._filed:
            block = self._block_of(number)
            index = bisect_right(block.values, value, lo=number - block.start)
            if index > number - block.start:
                found = block.values[index - 1]
            number = block.start + len(block.keys)
            if index < len(block.values):
                return found
        start = number - self._filed
        index = bisect_right(self._values, value, lo=start)
        return self._values[index - 1] if index > start else found

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self._filed, BLOCK_ENTRIES):
            yield from self._read(start)
        yield from zip(self._keys, self._values, strict=True)

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        self._block = _Block(0, array("q"), array("q"))
        if count < self._filed:
            self._forget(count)
        else:
            del self._keys[count - self._filed :]
            del self._values[count - self._filed :]
            self._saved = min(self._saved, len(self._keys))
            self.count = self._filed + len(self._keys)
        file = self._fs.open(self.path)
        try:
            file.truncate((self._filed + self._saved) * self._entry.size)
        finally:
            file.close()

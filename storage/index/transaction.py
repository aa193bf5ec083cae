"""The transaction index (`N.txnindex`): aborted transactions with a marker in the segment. 34 bytes per entry.

The first entry creates the file. Entries are in the order of their markers.
"""

import struct
from typing import NamedTuple

from storage.files import FileSystem, read_file

ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    """An aborted transaction. `last_offset` is the offset of the ABORT marker; `last_stable_offset` the one after the
    marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """All entries in memory, loaded on first use: aborted transactions are few, and most segments have none."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self.path = path
        self._entries: list[AbortedTxn] | None = None

    @property
    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def _load(self) -> list[AbortedTxn]:
        if not self._fs.exists(self.path):
            return []
        data = read_file(self._fs, self.path)
        whole = len(data) - len(data) % ENTRY.size
        return [AbortedTxn(*fields[1:]) for fields in ENTRY.iter_unpack(data[:whole])]

    def append(self, txn: AbortedTxn) -> None:
        """Append the entry, to the file at once without fsync."""
        entries = self.entries
        file = self._fs.open(self.path)
        try:
            file.write(len(entries) * ENTRY.size, ENTRY.pack(_VERSION, *txn))
        finally:
            file.close()
        entries.append(txn)

    def reset(self) -> None:
        self._entries = []
        self._fs.remove(self.path)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`."""
        kept = [txn for txn in self.entries if txn.last_offset < offset]
        if len(kept) == len(self.entries):
            return
        file = self._fs.open(self.path)
        try:
            file.truncate(len(kept) * ENTRY.size)
        finally:
            file.close()
        self._entries = kept

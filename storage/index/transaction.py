"""The transaction index (`N.txnindex`): the aborted transactions whose markers lie in the segment. 34 bytes an entry.

Created with its first entry. Entries come in the order of their markers.
"""

import struct
from typing import NamedTuple

from storage.files import FileSystem, read_file

ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    """`last_offset` is that of the ABORT marker; `last_stable_offset` the one right after it was applied."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Kept in memory whole: aborted transactions are few, and most segments have none. Loaded at the first use."""

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
        """Also to the file, at once, without fsync."""
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
        """Drops the transactions whose marker is at or above `offset`."""
        kept = [txn for txn in self.entries if txn.last_offset < offset]
        if len(kept) == len(self.entries):
            return
        file = self._fs.open(self.path)
        try:
            file.truncate(len(kept) * ENTRY.size)
        finally:
            file.close()
        self._entries = kept

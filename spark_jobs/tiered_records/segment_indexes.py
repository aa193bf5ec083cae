"""The indexes of a remote segment. Blocks.

All functions raise RemoteResourceNotFound, RetriableRemoteStorageError, RemoteStorageError and CorruptRemoteData.
"""

import struct
from collections.abc import Iterator

from storage.index import offset as offset_index
from storage.index import time as time_index
from storage.index import transaction as transaction_index
from storage.index.offset import OffsetPosition
from storage.index.transaction import AbortedTxn
from storage.tiered.errors import RemoteResourceNotFound
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment


def offset_entries(storage: RemoteStorageManager, segment: RemoteSegment) -> Iterator[OffsetPosition]:
    """Yield ascending entries: the last offset of some batches, and the position of that batch or of one shortly before
    it.
    """
    content = _whole(storage.read_index(segment, IndexKind.OFFSET), offset_index.ENTRY)
    for relative, position in offset_index.ENTRY.iter_unpack(content):
        yield OffsetPosition(segment.start_offset + relative, position)


def offset_before(storage: RemoteStorageManager, segment: RemoteSegment, timestamp_ms: int) -> int:
    """Return an offset before which no record has that timestamp or a later one: entries hold the highest so far."""
    content = _whole(storage.read_index(segment, IndexKind.TIME), time_index.ENTRY)
    before = [relative for highest, relative in time_index.ENTRY.iter_unpack(content) if highest < timestamp_ms]
    return segment.start_offset + max(before, default=0)


def aborted_in(storage: RemoteStorageManager, segment: RemoteSegment) -> list[AbortedTxn]:
    """Return the transactions with ABORT markers in the segment, in order. A segment may have no such index; a removed
    segment raises RemoteResourceNotFound.
    """
    try:
        content = storage.read_index(segment, IndexKind.TRANSACTION)
    except RemoteResourceNotFound:
        storage.read_index(segment, IndexKind.LEADER_EPOCH)  # every segment has this index
        return []
    entries = transaction_index.ENTRY.iter_unpack(_whole(content, transaction_index.ENTRY))
    return [AbortedTxn(*fields[1:]) for fields in entries]


def _whole(content: bytes, entry: struct.Struct) -> bytes:
    return content[: len(content) - len(content) % entry.size]

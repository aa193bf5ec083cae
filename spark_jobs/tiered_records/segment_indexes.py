"""What the indexes that go with a segment tell. Blocks.

Everything raises RemoteResourceNotFound, RetriableRemoteStorageError, RemoteStorageError and CorruptRemoteData.
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
    """Ascending: the last offset of some batches, where a batch begins that is it or one soon before it."""
    content = _whole(storage.read_index(segment, IndexKind.OFFSET), offset_index.ENTRY)
    for relative, position in offset_index.ENTRY.iter_unpack(content):
        yield OffsetPosition(segment.start_offset + relative, position)


def offset_before(storage: RemoteStorageManager, segment: RemoteSegment, timestamp_ms: int) -> int:
    """No record before this offset has that timestamp or a later one: entries hold the highest so far."""
    content = _whole(storage.read_index(segment, IndexKind.TIME), time_index.ENTRY)
    before = [relative for highest, relative in time_index.ENTRY.iter_unpack(content) if highest < timestamp_ms]
    return segment.start_offset + max(before, default=0)


def aborted_in(storage: RemoteStorageManager, segment: RemoteSegment) -> list[AbortedTxn]:
    """The transactions whose ABORT markers are in the segment, in their order. A segment may have no such index; of one
    that is gone it is not known.
    """
    try:
        content = storage.read_index(segment, IndexKind.TRANSACTION)
    except RemoteResourceNotFound:
        storage.read_index(segment, IndexKind.LEADER_EPOCH)  # which each has
        return []
    entries = transaction_index.ENTRY.iter_unpack(_whole(content, transaction_index.ENTRY))
    return [AbortedTxn(*fields[1:]) for fields in entries]


def _whole(content: bytes, entry: struct.Struct) -> bytes:
    return content[: len(content) - len(content) % entry.size]

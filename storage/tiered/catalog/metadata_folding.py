"""Fast path from record bytes to cache entries, for the two usual kinds of events.

A starting node may have millions of events to read. Nearly all have one of two shapes: COPY_STARTED of a segment with
one leader epoch, and its COPY_FINISHED, both without custom metadata. Their fields have fixed positions behind the
partition's name, whose bytes are the same every time. So one look-up by these bytes and one struct suffice, instead of
five objects. Every other event takes the general path (`metadata_records.py`, `MaterializedMetadata.apply`), which
defines the meaning of events.
"""

import struct
from typing import Final

from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.catalog.metadata_records import FRAME_VERSION, RECORD_VERSION, decode_event, partition_of
from storage.tiered.segment_metadata import SegmentState

_ADD: Final = 0
_UPDATE: Final = 1
_ADD_FRAME: Final = bytes((FRAME_VERSION, _ADD, RECORD_VERSION))
_UPDATE_FRAME: Final = bytes((FRAME_VERSION, _UPDATE, RECORD_VERSION))
_NAME_AT: Final = 3
_AFTER_NAME: Final = _NAME_AT + 21
"""Topic id, partition number and no tagged fields; the size of the name is encoded as size + 1."""
_LONGEST_NAME: Final = 127
"""Longest name whose size takes one byte. The first byte of a longer one is greater and never found."""
_ADD_FIELDS: Final = struct.Struct(">16sBqqiqqBiqBiBbB")
"""Id, no tags, start, end, broker, timestamps; one epoch: number, start, no tags; size, custom, state, tags."""
_UPDATE_FIELDS: Final = struct.Struct(">16sBiqBbB")
"""Id, no tags, broker, timestamp, custom, state, tags."""
_ONE_EPOCH: Final = 2
_NO_CUSTOM: Final = 0
_TXN_INDEX_EMPTY: Final = b"\x00\x01\x01"
"""The only tagged field of a segment without aborted transactions: number, size, value."""


class MetadataFolding:
    """Applies record values to `metadata`, which nothing else may change."""

    __slots__ = ("_caches", "_metadata")

    def __init__(self, metadata: MaterializedMetadata) -> None:
        self._metadata = metadata
        self._caches: dict[bytes, RemoteLogMetadataCache] = {}

    def apply(self, value: bytes | None) -> None:
        """Apply the next event. Raises UndecodableEvent, and InvalidSegmentTransition for an event that must be
        ignored.
        """
        if value is not None and len(value) > _AFTER_NAME and self._is_applied(value):
            return
        event = decode_event(value)
        self._metadata.apply(event)
        cache = self._metadata.cache(partition_of(event))
        if cache.is_empty:
            self._caches.clear()  # the partition gets another cache next
        elif value is not None and (key := _partition_bytes(value)) is not None:
            self._caches[key] = cache

    def _is_applied(self, value: bytes) -> bool:
        """Apply the event if it has a usual shape; return whether it did."""
        begin = value[_NAME_AT] + _AFTER_NAME
        cache = self._caches.get(value[_NAME_AT:begin])
        if cache is None:
            return False
        rest = len(value) - begin
        if rest == _UPDATE_FIELDS.size and value.startswith(_UPDATE_FRAME):
            segment_id, no_tags, broker, event_ms, custom, state, tags = _UPDATE_FIELDS.unpack_from(value, begin)
            if no_tags or custom != _NO_CUSTOM or state != SegmentState.COPY_FINISHED or tags:
                return False
            return cache.finish_plain(segment_id, event_ms, broker)
        if not value.startswith(_ADD_FRAME):
            return False
        if rest == _ADD_FIELDS.size:
            is_empty = False
        elif rest == _ADD_FIELDS.size + len(_TXN_INDEX_EMPTY) and value.endswith(_TXN_INDEX_EMPTY):
            is_empty = True
        else:
            return False
        return _is_added(cache, value, begin, is_empty)


def _partition_bytes(value: bytes) -> bytes | None:
    """Return the bytes that name the partition, if they have the usual shape."""
    size = value[_NAME_AT]
    end = size + _AFTER_NAME
    return value[_NAME_AT:end] if size <= _LONGEST_NAME and end <= len(value) and value[end - 1] == 0 else None


def _is_added(cache: RemoteLogMetadataCache, value: bytes, begin: int, is_empty: bool) -> bool:
    fields = _ADD_FIELDS.unpack_from(value, begin)
    segment_id, id_tags, start, end, broker, max_ms, event_ms, epochs, epoch, first, epoch_tags, size, *rest = fields
    if (id_tags, epochs, epoch_tags) != (0, _ONE_EPOCH, 0) or rest != [_NO_CUSTOM, SegmentState.COPY_STARTED, is_empty]:
        return False
    if first != start or not 0 <= start <= end:
        return False
    return cache.add_plain(segment_id, (start, end, max_ms, event_ms, size, broker, epoch, is_empty))

"""A fast decoder of TopicRecords: a large cluster has a hundred thousand of them."""

from typing import Final

from broker.metadata.image.records import FRAME_VERSION, decode_record
from protocol.errors import DecodeError
from protocol.messages.metadata_records import TopicRecord
from protocol.primitives import Uuid

_HEAD: Final = bytes((FRAME_VERSION, TopicRecord.API_KEY, 0))
_AROUND_NAME: Final = 20
"""Bytes of a frame without the name, plus one because the size of the name is stored as size + 1: head, id, no tagged
fields.
"""
_LONG: Final = 0x80


def topic_record(frame: bytes) -> TopicRecord:
    """Decode the record in a TopicRecord frame. Raises DecodeError."""
    size = frame[3] if len(frame) > _AROUND_NAME else 0
    if 0 < size < _LONG and len(frame) == size + _AROUND_NAME and frame.startswith(_HEAD) and not frame[-1]:
        try:
            return TopicRecord(frame[4 : 3 + size].decode(), Uuid(frame[3 + size : -1]))
        except UnicodeDecodeError as error:
            raise DecodeError(f"the name of a topic: {error}") from error
    record = decode_record(frame)
    assert isinstance(record, TopicRecord)
    return record

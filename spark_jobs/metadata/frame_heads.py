"""The heads of many frames at once: record key, record version, and where the body begins.

Nearly every frame begins with three bytes (frame version 1, key, version, each below 128); what does not is read with
the node's own varint reader, one by one.
"""

from typing import Final, NamedTuple, get_args

import numpy as np

from broker.metadata.image.records import FRAME_VERSION, MetadataRecord
from protocol.errors import DecodeError
from protocol.primitives import decode_uvarint
from spark_jobs.metadata.byte_columns import Bools, Ints, Strings

_USUAL_HEAD: Final = 3
_MAX_NUMBER: Final = 32_767
"""Of a key or version: int16, as Kafka has it."""


class MalformedLog(Exception):
    """Bytes that are no record batches, or a known record that does not parse."""


class UnknownRecord(Exception):
    """A record of a key or version that this program does not know: whoever goes on would lose it."""

    def __init__(self, offset: int, key: int, version: int) -> None:
        super().__init__(
            f"the record at offset {offset} has key {key} and version {version}, which this program does not know"
        )
        self.offset = offset
        self.key = key
        self.version = version

    def __reduce__(self) -> tuple[type["UnknownRecord"], tuple[int, int, int]]:
        return UnknownRecord, (self.offset, self.key, self.version)


class FrameHeads(NamedTuple):
    """Of each frame: key, version, and the position in the pool where the body begins."""

    keys: Ints
    versions: Ints
    bodies: Ints


def frame_heads(frames: Strings, offsets: Ints) -> FrameHeads:
    """Read the heads. `offsets` are those of the log, for errors. Raises MalformedLog and UnknownRecord."""
    long_enough = frames.lengths >= _USUAL_HEAD
    at = np.where(long_enough, frames.starts, 0)
    pool = frames.pool if len(frames.pool) >= _USUAL_HEAD else np.zeros(_USUAL_HEAD, np.uint8)
    keys, versions = pool[at + 1].astype(np.int64), pool[at + 2].astype(np.int64)
    usual = long_enough & (pool[at] == FRAME_VERSION) & (keys < 0x80) & (versions < 0x80)
    bodies = frames.starts + _USUAL_HEAD
    for row in np.flatnonzero(~usual).tolist():
        keys[row], versions[row], size = _head(frames.value(row), int(offsets[row]))
        bodies[row] = frames.starts[row] + size
    return FrameHeads(keys, versions, bodies)


def known(keys: Ints, versions: Ints) -> Bools:
    """Where key and version are those of a record that this program knows."""
    at = np.clip(keys, -1, len(_MIN_VERSIONS) - 1)
    found: Bools = (keys == at) & (keys >= 0) & (versions >= _MIN_VERSIONS[at]) & (versions <= _MAX_VERSIONS[at])
    return found


def require_known(keys: Ints, versions: Ints, offsets: Ints) -> None:
    """Raises UnknownRecord for the first that is not known."""
    unknown = np.flatnonzero(~known(keys, versions))
    if len(unknown):
        row = unknown[np.argmin(offsets[unknown])]
        raise UnknownRecord(int(offsets[row]), int(keys[row]), int(versions[row]))


def _head(frame: bytes, offset: int) -> tuple[int, int, int]:
    try:
        frame_version, position = decode_uvarint(frame, 0)
        if frame_version != FRAME_VERSION:
            raise MalformedLog(f"the record at offset {offset} has frame version {frame_version}")
        key, position = decode_uvarint(frame, position)
        version, position = decode_uvarint(frame, position)
    except DecodeError as error:
        raise MalformedLog(f"the record at offset {offset} does not parse: {error}") from error
    if max(key, version) > _MAX_NUMBER:
        raise UnknownRecord(offset, key, version)
    return key, version, position


def _versions() -> tuple[Ints, Ints]:
    """The least and greatest known version by key; none for a key that is unknown."""
    types = get_args(MetadataRecord)
    least = np.ones(max(each.API_KEY for each in types) + 1, np.int64)
    greatest = np.zeros_like(least)
    for each in types:
        least[each.API_KEY], greatest[each.API_KEY] = each.MIN_VERSION, each.MAX_VERSION
    return least, greatest


_MIN_VERSIONS, _MAX_VERSIONS = _versions()

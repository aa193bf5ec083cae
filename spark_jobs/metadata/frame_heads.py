"""The heads of many frames at once: record key, record version, and the start of the body.

Nearly every frame begins with three bytes (frame version 1, key, version, each below 128); the node's varint reader
reads the others one by one.
"""

from typing import Final, NamedTuple

import numpy as np

from broker.metadata.image.records import FRAME_VERSION, METADATA_RECORDS
from protocol.errors import DecodeError
from protocol.primitives import decode_uvarint
from spark_jobs.metadata.byte_columns import Bools, Ints, Strings
from spark_jobs.metadata.folded_records import supported_versions

_USUAL_HEAD: Final = 3
_MAX_NUMBER: Final = 32_767
"""Largest key or version: int16, as in Kafka."""


class MalformedLog(Exception):
    """Bytes are not record batches, or a known record does not parse."""


class UnknownRecord(Exception):
    """A record whose type or version the fold does not support. The job stops, because skipping it would lose state."""

    def __init__(self, offset: int, key: int, version: int) -> None:
        name = _NAMES.get(key, "a record of unknown type")
        super().__init__(
            f"the metadata log holds {name} (API key {key}, version {version}) at offset {offset}, which this version "
            "of Ottla cannot fold; upgrade Ottla and run the job again: it resumes before that record"
        )
        self.offset = offset
        self.key = key
        self.version = version

    def __reduce__(self) -> tuple[type["UnknownRecord"], tuple[int, int, int]]:
        return UnknownRecord, (self.offset, self.key, self.version)


class FrameHeads(NamedTuple):
    """The key, the version, and the position of the body in the pool, for each frame."""

    keys: Ints
    versions: Ints
    bodies: Ints


def frame_heads(frames: Strings, offsets: Ints) -> FrameHeads:
    """Read the heads; `offsets` of the log are for error messages. Raises MalformedLog and UnknownRecord."""
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
    """Return a mask of the keys and versions of supported records."""
    at = np.clip(keys, -1, len(_MIN_VERSIONS) - 1)
    found: Bools = (keys == at) & (keys >= 0) & (versions >= _MIN_VERSIONS[at]) & (versions <= _MAX_VERSIONS[at])
    return found


def require_known(keys: Ints, versions: Ints, offsets: Ints) -> None:
    """Raise UnknownRecord for the record of lowest offset that the fold does not support."""
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
    """Return the lowest and highest supported version by API key; an empty range for an unsupported key."""
    supported = supported_versions()
    least = np.ones(max(each.API_KEY for each in supported) + 1, np.int64)
    greatest = np.zeros_like(least)
    for each, (lowest, highest) in supported.items():
        least[each.API_KEY], greatest[each.API_KEY] = lowest, highest
    return least, greatest


_MIN_VERSIONS, _MAX_VERSIONS = _versions()
_NAMES: Final = {each.API_KEY: each.__name__ for each in METADATA_RECORDS}

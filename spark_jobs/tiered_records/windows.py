"""The bytes of a segment, which come in pieces of any size, cut into windows of whole batches."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.records.batch import ATTRIBUTES_POSITION, HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC, MIN_BATCH_LENGTH
from protocol.records.compiled import crc32c
from spark_jobs.metadata.byte_columns import Ints, items
from storage.tiered.errors import CorruptRemoteData
from storage.tiered.segment_metadata import RemoteSegment

HEADERS: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""As `protocol.records.batch.BatchHeader`."""

_LENGTH_AND_MAGIC: Final = struct.Struct(">i4xb")
_LENGTH_POSITION: Final = 8


@dataclass(frozen=True, slots=True)
class Window:
    """Whole batches one behind the other. `position` is where `data` begins in the segment, a place is where a batch
    begins in `data`; the last batch ends at `size`.
    """

    data: bytes
    position: int
    places: Ints
    headers: npt.NDArray[Any]
    size: int

    def __len__(self) -> int:
        return len(self.places)

    @property
    def last_offset(self) -> int:
        """Of the last batch."""
        return int(self.headers["base_offset"][-1]) + int(self.headers["last_offset_delta"][-1])

    @property
    def ends(self) -> Ints:
        """Where batches end in `data`."""
        return np.append(self.places[1:], self.size)

    def column(self, name: str) -> Ints:
        """A field of the headers."""
        values: Ints = self.headers[name].astype(np.int64)
        return values

    def check(self, batches: Ints) -> None:
        """Raises CorruptRemoteData for a batch whose checksum is wrong."""
        data = memoryview(self.data)
        begins = (self.places[batches] + ATTRIBUTES_POSITION).tolist()
        said = self.headers["crc"][batches].tolist()
        for number, begin, end, crc in zip(batches.tolist(), begins, self.ends[batches].tolist(), said, strict=True):
            if crc32c(data[begin:end]) != crc:
                raise self.corrupt(number, "its checksum does not match")

    def corrupt(self, batch: int, reason: str) -> CorruptRemoteData:
        """What to raise for a batch."""
        base_offset, place = self.headers["base_offset"][batch], self.position + self.places[batch]
        return CorruptRemoteData(f"the batch at offset {base_offset}, byte {place}: {reason}")


def windows(
    segment: RemoteSegment, pieces: Iterator[memoryview], position: int, end: int, least_bytes: int
) -> Iterator[Window]:
    """`pieces` are the bytes of a segment from `position` to before `end`, where batches begin or the segment ends. A
    window has `least_bytes`, until they end, and a batch wholly.

    Raises CorruptRemoteData for what is not a batch of this segment, after what comes before it.
    """
    held: list[bytes | memoryview] = []
    size, wanted = 0, least_bytes
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size < wanted:
            continue
        data = b"".join(held)
        held.clear()
        cut = _cut(segment, data, position, end)
        yield from cut.given()
        held.append(data[cut.window.size :])
        size, wanted, position = len(held[0]), max(cut.wanted, least_bytes), position + cut.window.size
        del cut, data
    cut = _cut(segment, b"".join(held), position, end)
    held.clear()
    yield from cut.given()
    if position + cut.window.size != end:
        raise CorruptRemoteData(f"it ends early, at byte {position + size} instead of {end}")


class _Cut(NamedTuple):
    """`wanted` bytes are needed for the batch after the window; `fault` is what is wrong with that."""

    window: Window
    wanted: int
    fault: CorruptRemoteData | None

    def given(self) -> Iterator[Window]:
        if len(self.window):
            yield self.window
        if self.fault is not None:
            raise self.fault


def _cut(segment: RemoteSegment, data: bytes, position: int, end: int) -> _Cut:
    places: list[int] = []
    at, wanted, fault = 0, 0, None
    while at + HEADER_SIZE <= len(data):
        length, magic = _LENGTH_AND_MAGIC.unpack_from(data, at + _LENGTH_POSITION)
        after = at + length + LENGTH_PREFIX_SIZE
        if magic != MAGIC or length < MIN_BATCH_LENGTH or position + after > end:
            fault = CorruptRemoteData(f"byte {position + at}: a batch of magic {magic} and length {length} cannot be")
            break
        if after > len(data):
            wanted = after - at
            break
        places.append(at)
        at = after
    window = Window(data, position, np.array(places, np.int64), _headers(data, places), at)
    bases = window.column("base_offset")
    strange = np.flatnonzero((bases < segment.start_offset) | (bases > segment.end_offset))
    if not len(strange):
        return _Cut(window, wanted, fault)
    first = int(strange[0])
    known = Window(data, position, window.places[:first], window.headers[:first], places[first])
    return _Cut(known, wanted, window.corrupt(first, "it is not of this segment"))


def _headers(data: bytes, places: list[int]) -> npt.NDArray[Any]:
    taken = items(np.frombuffer(data, np.uint8), HEADER_SIZE)[np.array(places, np.int64)]
    return taken.view(HEADERS)

"""Windows of whole batches, cut from a segment's bytes that arrive in pieces of any size."""

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
"""The layout of `protocol.records.batch.BatchHeader`."""

_LENGTH_AND_MAGIC: Final = struct.Struct(">i4xb")
_LENGTH_POSITION: Final = 8


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive whole batches. `position` is the start of `data` in the segment, a place is the start of a batch in
    `data`; the last batch ends at `size`.
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
        """The last offset of the last batch."""
        return int(self.headers["base_offset"][-1]) + int(self.headers["last_offset_delta"][-1])

    @property
    def ends(self) -> Ints:
        """The ends of batches in `data`."""
        return np.append(self.places[1:], self.size)

    def column(self, name: str) -> Ints:
        """Return one header field of all batches."""
        values: Ints = self.headers[name].astype(np.int64)
        return values

    def check(self, batches: Ints) -> None:
        """Raise CorruptRemoteData for a batch with a wrong checksum."""
        data = memoryview(self.data)
        begins = (self.places[batches] + ATTRIBUTES_POSITION).tolist()
        said = self.headers["crc"][batches].tolist()
        for number, begin, end, crc in zip(batches.tolist(), begins, self.ends[batches].tolist(), said, strict=True):
            if crc32c(data[begin:end]) != crc:
                raise self.corrupt(number, "the checksum does not match")

    def corrupt(self, batch: int, reason: str) -> CorruptRemoteData:
        """Return the exception for a batch."""
        base_offset, place = self.headers["base_offset"][batch], self.position + self.places[batch]
        return CorruptRemoteData(f"the batch at offset {base_offset}, byte {place}: {reason}")


def windows(
    segment: RemoteSegment, pieces: Iterator[memoryview], position: int, end: int, least_bytes: int
) -> Iterator[Window]:
    """Yield windows. `pieces` are the bytes of a segment from `position` to before `end`, at batch boundaries or the
    end of the segment. A window has whole batches and, except for the last, at least `least_bytes`.

    Raises CorruptRemoteData for bytes that are no batch of this segment, after the batches before them.
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
        raise CorruptRemoteData(f"the segment ends early, at byte {position + size} instead of {end}")


class _Cut(NamedTuple):
    """`wanted` bytes are needed for the batch after the window; `fault` is the problem of that batch."""

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
            fault = CorruptRemoteData(f"byte {position + at}: magic {magic} and length {length} are invalid")
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
    return _Cut(known, wanted, window.corrupt(first, "the batch does not belong to this segment"))


def _headers(data: bytes, places: list[int]) -> npt.NDArray[Any]:
    taken = items(np.frombuffer(data, np.uint8), HEADER_SIZE)[np.array(places, np.int64)]
    return taken.view(HEADERS)

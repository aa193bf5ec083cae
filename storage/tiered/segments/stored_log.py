"""The log of one segment as it lies in a store: whole chunks out of ranges of its object."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO

from protocol.primitives import Buffer
from protocol.records.compiled import crc32c
from storage.tiered.errors import CorruptRemoteData
from storage.tiered.format.chunk_index import ChunkIndex
from storage.tiered.format.manifest import SegmentManifest
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.format.transforms import ChunkTransform
from storage.tiered.object_store import ObjectStore
from storage.tiered.segments.store_errors import store_errors


@dataclass(frozen=True, slots=True)
class StoredLog:
    """Implements ChunkSource."""

    store: ObjectStore
    keys: ObjectKeys
    object_key: str
    manifest: SegmentManifest
    transform: ChunkTransform

    @property
    def index(self) -> ChunkIndex:
        return self.manifest.chunks

    def download(self, numbers: range) -> Iterator[Buffer]:
        chunks = [self.index.chunk(number) for number in numbers]
        first, last = chunks[0].stored_position, chunks[-1].stored_position + chunks[-1].stored_size - 1
        with store_errors(self.keys, "reading"):
            stored = cut(self.store.get(self.object_key, first, last), (chunk.stored_size for chunk in chunks))
            for chunk, data in zip(chunks, stored, strict=True):
                self._check(chunk.number, data)
                yield self.transform.restore(data, chunk.size)

    def _check(self, number: int, stored: Buffer) -> None:
        crcs = self.manifest.chunk_crcs
        if crcs is not None and crc32c(stored) != crcs[number]:
            key = self.keys.shown(self.object_key)
            raise CorruptRemoteData(f"chunk {number} of {key} is not what was stored: its CRC is another")


def cut(pieces: Iterator[bytes], sizes: Iterable[int]) -> Iterator[Buffer]:
    """`pieces` cut anew, into pieces of `sizes`; one that is of the right size already is not copied.

    Raises CorruptRemoteData where there are too few bytes, or too many.
    """
    rest: bytes | memoryview = b""
    for size in sizes:
        rest = rest or (_next(pieces, size) if size else b"")
        if len(rest) == size and isinstance(rest, bytes):
            whole, rest = rest, b""
            yield whole
        else:
            data, rest = _gathered(rest, pieces, size)
            yield data
    if rest or any(pieces):
        raise CorruptRemoteData("more bytes came than were asked for")


def _gathered(rest: bytes | memoryview, pieces: Iterator[bytes], size: int) -> tuple[bytes, memoryview]:
    """So many bytes, and what is left of the last piece. A piece is let go of when it is copied, for the next to take
    its memory: large memory that is new costs more than what is copied into it.
    """
    gathered = BytesIO()
    missing = size
    while True:
        part = memoryview(rest)[:missing]
        gathered.write(part)
        missing -= len(part)
        rest = memoryview(rest)[len(part) :]
        if not missing:
            return gathered.getvalue(), rest
        rest = _next(pieces, missing)


def _next(pieces: Iterator[bytes], missing: int) -> bytes:
    """The next that is not empty."""
    for piece in pieces:
        if piece:
            return piece
    raise CorruptRemoteData(f"the object ends {missing} bytes too early")

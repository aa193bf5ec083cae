"""The log of one segment as it lies in a store: whole chunks out of ranges of its object."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from protocol.primitives import Buffer
from protocol.records.compiled import crc32c
from storage.tiered.chunk_index import ChunkIndex
from storage.tiered.errors import CorruptRemoteData
from storage.tiered.manifest import SegmentManifest
from storage.tiered.object_keys import ObjectKeys
from storage.tiered.object_store import ObjectStore
from storage.tiered.store_errors import store_errors
from storage.tiered.transforms import ChunkTransform


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


def cut(pieces: Iterator[bytes], sizes: Iterable[int]) -> Iterator[bytes]:
    """`pieces` cut anew, into pieces of `sizes`; one that is of the right size already is not copied.

    Raises CorruptRemoteData where there are too few bytes, or too many.
    """
    rest: bytes | memoryview = b""
    for size in sizes:
        parts: list[bytes | memoryview] = []
        missing = size
        while missing:
            rest = rest or _next(pieces, missing)
            part = rest if len(rest) <= missing else memoryview(rest)[:missing]
            rest = memoryview(rest)[len(part) :]
            parts.append(part)
            missing -= len(part)
        yield parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)
    if rest or any(pieces):
        raise CorruptRemoteData("more bytes came than were asked for")


def _next(pieces: Iterator[bytes], missing: int) -> bytes:
    """The next that is not empty."""
    for piece in pieces:
        if piece:
            return piece
    raise CorruptRemoteData(f"the object ends {missing} bytes too early")

"""The log of one segment in an object store: whole chunks from ranges of its object."""

from collections.abc import Iterable, Iterator
from io import BytesIO

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Buffer
from protocol.records.compiled import crc32c
from storage.tiered.errors import CorruptRemoteData
from storage.tiered.format.chunk_index import ChunkIndex
from storage.tiered.format.manifest import SegmentManifest
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.format.transforms import ChunkTransform
from storage.tiered.object_store import ObjectStore
from storage.tiered.segments.store_errors import store_errors


@lazy_dataclass(frozen=True, slots=True)
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
            raise CorruptRemoteData(f"chunk {number} of {key} differs from the stored one: its CRC does not match")


def cut(pieces: Iterator[bytes], sizes: Iterable[int]) -> Iterator[Buffer]:
    """Cut `pieces` into pieces of `sizes`; a piece of the right size is not copied.

    Raises CorruptRemoteData for too few or too many bytes.
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
        raise CorruptRemoteData("the store sent more bytes than requested")


def _gathered(rest: bytes | memoryview, pieces: Iterator[bytes], size: int) -> tuple[bytes, memoryview]:
    """Return `size` bytes and the rest of the last piece. Each piece is released after it was copied, so that the next
    one reuses its memory: fresh large allocations cost more than the copy.
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
    """Return the next non-empty piece."""
    for piece in pieces:
        if piece:
            return piece
    raise CorruptRemoteData(f"the object ends {missing} bytes too early")

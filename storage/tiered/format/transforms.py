"""Transformation of chunks on their way to the store and back: optional zstd, then optional encryption.

Every chunk is transformed alone: one zstd frame with its content size, encrypted with the segment's key. So any chunk
can be read without the others.
"""

from typing import Protocol

import cramjam

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Buffer
from storage.tiered.errors import CorruptRemoteData

_ZSTD_LEVEL = 3
_ZSTD_OVERHEAD_BYTES = 1024
"""Additional space that zstd may need for incompressible data, beside size / 256."""


class ChunkCipher(Protocol):
    """Encrypts chunks with the key of one segment; thread-safe."""

    @property
    def overhead_bytes(self) -> int:
        """Additional size of every encrypted chunk."""
        ...

    def seal(self, chunk: Buffer) -> Buffer: ...

    def open(self, sealed: Buffer) -> Buffer:
        """Decrypt a chunk. Raises CorruptRemoteData if it was not encrypted with this key."""
        ...


@lazy_dataclass(frozen=True, slots=True)
class ChunkTransform:
    """Transformation of the chunks of one segment."""

    compresses: bool = False
    cipher: ChunkCipher | None = None

    def stored_size(self, size: int) -> int | None:
        """Return the stored size of every chunk of `size` bytes; None if it varies."""
        if self.compresses:
            return None
        return size if self.cipher is None else size + self.cipher.overhead_bytes

    def store(self, chunk: Buffer) -> Buffer:
        if self.compresses:
            chunk = _compress(chunk)
        return chunk if self.cipher is None else self.cipher.seal(chunk)

    def restore(self, stored: Buffer, size: int) -> Buffer:
        """Restore a chunk of `size` bytes. Raises CorruptRemoteData if that fails or the size differs."""
        chunk = stored if self.cipher is None else self.cipher.open(stored)
        if self.compresses:
            chunk = _decompress(chunk, size)
        if len(chunk) != size:
            raise CorruptRemoteData(f"a chunk has {len(chunk)} bytes instead of {size}")
        return chunk


def _compress(chunk: Buffer) -> Buffer:
    output = bytearray(len(chunk) + (len(chunk) >> 8) + _ZSTD_OVERHEAD_BYTES)
    return memoryview(output)[: cramjam.zstd.compress_into(chunk, output, level=_ZSTD_LEVEL)]


def _decompress(frame: Buffer, size: int) -> Buffer:
    """Decompress at most `size` bytes, whatever the frame claims."""
    output = bytearray(size)
    try:
        return memoryview(output)[: cramjam.zstd.decompress_into(frame, output)]
    except (cramjam.DecompressionError, OSError) as error:
        raise CorruptRemoteData(f"a chunk of {size} bytes does not decompress: {error}") from error

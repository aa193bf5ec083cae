"""What a chunk goes through on its way to the store and back: zstd, then encryption, each if wanted.

Every chunk stands for itself: one zstd frame that says how large its content is, sealed with what its segment's key
makes of it. So any chunk can be read without the others.
"""

from dataclasses import dataclass
from typing import Protocol

import cramjam

from protocol.primitives import Buffer
from storage.tiered.errors import CorruptRemoteData

_ZSTD_LEVEL = 3
_ZSTD_OVERHEAD_BYTES = 1024
"""What zstd may need beside its bound for data it cannot shrink: size + size / 256."""


class ChunkCipher(Protocol):
    """Seals chunks with the key of one segment. Several threads may use it at once."""

    @property
    def overhead_bytes(self) -> int:
        """By how much every sealed chunk is longer."""
        ...

    def seal(self, chunk: Buffer) -> Buffer: ...

    def open(self, sealed: Buffer) -> Buffer:
        """Raises CorruptRemoteData for anything that was not sealed with this key."""
        ...


@dataclass(frozen=True, slots=True)
class ChunkTransform:
    """How the chunks of one segment are stored."""

    compresses: bool = False
    cipher: ChunkCipher | None = None

    def stored_size(self, size: int) -> int | None:
        """Of every chunk of `size` bytes; None where it depends on the chunk."""
        if self.compresses:
            return None
        return size if self.cipher is None else size + self.cipher.overhead_bytes

    def store(self, chunk: Buffer) -> Buffer:
        if self.compresses:
            chunk = _compress(chunk)
        return chunk if self.cipher is None else self.cipher.seal(chunk)

    def restore(self, stored: Buffer, size: int) -> Buffer:
        """The chunk, which has `size` bytes. Raises CorruptRemoteData where it has not, or cannot be restored."""
        chunk = stored if self.cipher is None else self.cipher.open(stored)
        if self.compresses:
            chunk = _decompress(chunk, size)
        if len(chunk) != size:
            raise CorruptRemoteData(f"a chunk of {len(chunk)} bytes, which had {size}")
        return chunk


def _compress(chunk: Buffer) -> Buffer:
    output = bytearray(len(chunk) + (len(chunk) >> 8) + _ZSTD_OVERHEAD_BYTES)
    return memoryview(output)[: cramjam.zstd.compress_into(chunk, output, level=_ZSTD_LEVEL)]


def _decompress(frame: Buffer, size: int) -> Buffer:
    """Never more than `size` bytes, whatever the frame claims."""
    output = bytearray(size)
    try:
        return memoryview(output)[: cramjam.zstd.decompress_into(frame, output)]
    except (cramjam.DecompressionError, OSError) as error:
        raise CorruptRemoteData(f"a chunk of {size} bytes does not decompress: {error}") from error

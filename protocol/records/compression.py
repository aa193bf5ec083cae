"""The codecs of record batches: one block of bytes in, one out.

gzip and zstd are the plain formats. lz4 is a frame of independent blocks, the only kind that Apache Kafka's reader
accepts. snappy is the xerial stream of snappy-java (a 16-byte header, then chunks of int32 size and a raw block); the
reader also accepts one raw block without that header, as in Kafka. Levels are those of Kafka's `compression.*.level`.
"""

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

from protocol.primitives import Buffer
from protocol.records.errors import MalformedRecords, UnknownCodec


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


MAX_DECOMPRESSED_BYTES = 512 * 1024 * 1024
"""Limit of a decompressed batch: 32 KB of zstd can hold 1 GB of zeros."""

_FIRST_GUESS_FACTOR = 4
_MIN_OUTPUT_BYTES = 64 * 1024
_GZIP_DEFAULT_LEVEL = 6
_ZSTD_DEFAULT_LEVEL = 3
_LZ4_DEFAULT_LEVEL = 9
_BUFFER_TOO_SMALL = "failed to write whole buffer"
"""The error text of cramjam's `decompress_into` for a small output buffer; a test checks it."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_CHUNK_BYTES = 32 * 1024
_CHUNK_SIZE = struct.Struct(">i")


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`; `level` None or -1 (gzip) is the codec's default; NONE and snappy have no levels."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=_GZIP_DEFAULT_LEVEL if level in (None, -1) else level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, _LZ4_DEFAULT_LEVEL if level is None else level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(codec: int, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """Decompress `data`. Raises UnknownCodec for 5 to 7, MalformedRecords for bad input or over `limit` bytes."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, limit)
    decompress_into = _DECOMPRESSORS.get(codec)
    if decompress_into is None:
        raise UnknownCodec(f"compression codec {codec} does not exist")
    return _decompress_growing(decompress_into, data, limit)


_DECOMPRESSORS: dict[int, Callable[[Buffer, bytearray], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _decompress_growing(decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int) -> Buffer:
    """Decompress into a buffer that is doubled until the output fits or exceeds the limit: streams do not state their
    size.
    """
    size = min(limit, max(_MIN_OUTPUT_BYTES, _FIRST_GUESS_FACTOR * len(data)))
    while True:
        output = bytearray(size)
        try:
            return memoryview(output)[: decompress_into(data, output)]
        except (cramjam.DecompressionError, OSError) as error:
            if _BUFFER_TOO_SMALL not in str(error):
                raise MalformedRecords(f"records do not decompress: {error}") from error
            if size >= limit:
                raise MalformedRecords(f"records decompress to more than {limit} bytes") from error
        size = min(limit, 2 * size)


def _compress_lz4(data: Buffer, level: int) -> bytes:
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    chunks = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_CHUNK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_CHUNK_BYTES]))
        chunks += (_CHUNK_SIZE.pack(len(block)), block)
    return b"".join(chunks)


def _decompress_snappy(data: Buffer, limit: int) -> Buffer:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit)
    parts: list[Buffer] = []
    position = len(_XERIAL_HEADER)
    while position < len(view):
        block, position = _xerial_block(view, position)
        parts.append(_decompress_snappy_block(block, limit))
        limit -= len(parts[-1])
    return b"".join(parts)


def _xerial_block(view: memoryview, position: int) -> tuple[memoryview, int]:
    start = position + _CHUNK_SIZE.size
    if start > len(view):
        raise MalformedRecords("a snappy chunk is cut short")
    (size,) = _CHUNK_SIZE.unpack_from(view, position)
    if size < 0 or start + size > len(view):
        raise MalformedRecords(f"a snappy chunk of {size} bytes does not fit")
    return view[start : start + size], start + size


def _decompress_snappy_block(block: memoryview, limit: int) -> Buffer:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise MalformedRecords(f"records decompress to more than the {limit} bytes left")
        return memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise MalformedRecords(f"records do not decompress: {error}") from error

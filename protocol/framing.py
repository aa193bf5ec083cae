"""Frames: a signed 32-bit size, then that many bytes. Sizes over a limit are refused. No IO."""

from struct import Struct

from protocol.codec_errors import DecodeError
from protocol.primitives import Buffer

SIZE_BYTES = 4
DEFAULT_MAX_FRAME_BYTES = 100 * 1024 * 1024
"""Kafka's default of socket.request.max.bytes."""

_SIZE = Struct(">i")


def frame_size(buffer: Buffer, position: int = 0, limit: int = DEFAULT_MAX_FRAME_BYTES) -> int:
    """Return the number of bytes after the size prefix at `position`, where `buffer` must hold 4 bytes.

    Raises DecodeError for a negative size or one beyond `limit`. Call it before allocating memory for the frame: "GET "
    is a size of 1.2 GB.
    """
    (size,) = _SIZE.unpack_from(buffer, position)
    if size < 0:
        raise DecodeError(f"the frame has a negative size of {size} bytes")
    if size > limit:
        raise DecodeError(f"frame of {size} bytes exceeds the limit of {limit}")
    return int(size)

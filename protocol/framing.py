"""Frames: a signed 32-bit size, then that many bytes. Cuts received bytes into frames and refuses sizes over a limit.

No IO. A server that reads into its own buffers calls `frame_size`; other callers use `cut_frames`, or `FrameReader`,
which also keeps an incomplete frame.
"""

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


def cut_frames(
    view: memoryview, position: int = 0, limit: int = DEFAULT_MAX_FRAME_BYTES
) -> tuple[list[memoryview], int]:
    """Return (complete frames from `position` on, without their prefixes; position of the first incomplete one)."""
    frames: list[memoryview] = []
    end = len(view)
    while end - position >= SIZE_BYTES:
        start = position + SIZE_BYTES
        stop = start + frame_size(view, position, limit)
        if stop > end:
            break
        frames.append(view[start:stop])
        position = stop
    return frames, position


class FrameReader:
    """A buffer that turns received bytes into whole frames. Holds at most one incomplete frame besides the last
    `feed`.
    """

    def __init__(self, limit: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._pending = b""

    def feed(self, data: Buffer) -> list[memoryview]:
        """Return the frames that `data` completes. Raises DecodeError, after which the stream is unusable."""
        held = self._pending + data if self._pending else bytes(data)
        frames, consumed = cut_frames(memoryview(held), 0, self._limit)
        self._pending = held[consumed:]
        return frames

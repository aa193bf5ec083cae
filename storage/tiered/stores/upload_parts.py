"""Pieces of any size joined to parts of one size, in one buffer."""

from collections.abc import Iterable, Iterator

from protocol.primitives import Buffer


def upload_parts(pieces: Iterable[Buffer], part_bytes: int) -> Iterator[tuple[bytearray, bool]]:
    """Yield (part, whether it is the last): all have `part_bytes` but the last, which is empty only for no data.

    Every part is the same buffer, so it must be used before the next one is requested.
    """
    part = bytearray()
    for piece in pieces:
        rest = memoryview(piece).cast("B")
        while rest:
            if len(part) == part_bytes:
                yield part, False
                part.clear()
            room = part_bytes - len(part)
            part += rest[:room]
            rest = rest[room:]
    yield part, True

"""Pieces of any size made into parts of one size, in one buffer."""

from collections.abc import Iterable, Iterator

from protocol.primitives import Buffer


def upload_parts(pieces: Iterable[Buffer], part_bytes: int) -> Iterator[tuple[bytearray, bool]]:
    """Parts and whether each is the last: all of `part_bytes` but the last, which is empty only if all is.

    Every part is the same buffer, filled anew: it is to be used before the next one is asked for.
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

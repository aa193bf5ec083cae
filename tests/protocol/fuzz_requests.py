"""Mutated request frames against the codec: `python -m tests.protocol.fuzz_requests --frames 1000000 --seed 1`.

Valid frames of every API and version are damaged (bits flipped, truncated, lengths overwritten, spliced with others)
and decoded as in a server. Any exception except DecodeError ends the run. Memory must not follow false lengths:
anonymous memory at the end may exceed that after the first tenth by at most 5 %.
"""

import argparse
import random
import re
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from protocol import compiler
from protocol.api_keys import API_BY_KEY, request_class
from protocol.errors import DecodeError
from protocol.headers import decode_request_header, encode_request
from tests.protocol.values import SeededChooser, build

GROWTH_LIMIT = 1.05
VALUES_PER_VERSION = 5
_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)

Mutation = Callable[[random.Random, bytearray, bytes], None]


@dataclass(slots=True)
class Tally:
    """Results of the frames. `refused` frames raised DecodeError, in the header or the body."""

    decoded: int = 0
    refused: int = 0
    unknown: int = 0

    @property
    def frames(self) -> int:
        return self.decoded + self.refused + self.unknown


def valid_frames(seed: int) -> list[bytes]:
    """Return request frames without size prefixes, several for every version of every API."""
    frames = []
    for api in API_BY_KEY.values():
        cls = request_class(api.key)
        for version in range(api.min_version, api.max_version + 1):
            for index in range(VALUES_PER_VERSION):
                chooser = SeededChooser(seed + index + 1000 * version + 100_000 * api.key)
                chunks = encode_request(build(cls, version, chooser), version, index, "fuzz")
                frames.append(b"".join(chunks)[4:])
    return frames


def flip_bits(rng: random.Random, frame: bytearray, other: bytes) -> None:
    for _ in range(rng.randint(1, 8)):
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)


def truncate(rng: random.Random, frame: bytearray, _: bytes) -> None:
    del frame[rng.randrange(len(frame)) :]


def overwrite_length(rng: random.Random, frame: bytearray, _: bytes) -> None:
    width, code = rng.choice(((1, ">B"), (2, ">H"), (4, ">I")))
    value = struct.pack(code, rng.choice(_EXTREMES) & ((1 << 8 * width) - 1))
    position = rng.randrange(len(frame))
    frame[position : position + width] = value


def lengthen_varint(rng: random.Random, frame: bytearray, _: bytes) -> None:
    position = rng.randrange(len(frame))
    frame[position : position + 1] = bytes([0xFF] * rng.randint(1, 9) + [rng.randrange(256)])


def splice(rng: random.Random, frame: bytearray, other: bytes) -> None:
    frame[rng.randrange(len(frame)) :] = other[rng.randrange(len(other)) :]


def insert(rng: random.Random, frame: bytearray, _: bytes) -> None:
    position = rng.randrange(len(frame))
    frame[position:position] = rng.randbytes(rng.randint(1, 16))


MUTATIONS: tuple[Mutation, ...] = (flip_bits, truncate, overwrite_length, lengthen_varint, splice, insert)


def mutated_frames(seed: int) -> Iterator[bytes]:
    """Yield damaged frames without end; the header after API key and version is damaged as often as the body."""
    rng = random.Random(seed)
    frames = valid_frames(seed)
    while True:
        original = rng.choice(frames)
        frame = bytearray(original[4:])
        for _ in range(rng.randint(1, 3)):
            if frame:
                rng.choice(MUTATIONS)(rng, frame, rng.choice(frames))
        kept = original[:4] if rng.random() < 0.95 else rng.randbytes(4)
        yield kept + frame


def decode_frame(frame: bytes, tally: Tally) -> None:
    """Decode like a server. Raises any exception except DecodeError."""
    view = memoryview(frame)
    try:
        header, position = decode_request_header(view)
        api = API_BY_KEY.get(header.api_key)
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            tally.unknown += 1
            return
        compiler.decode(request_class(header.api_key), view, header.api_version, position)
    except DecodeError:
        tally.refused += 1
    else:
        tally.decoded += 1


def anonymous_bytes() -> int:
    """Return the anonymous resident memory of this process."""
    match = re.search(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match is not None, "/proc/self/status has no RssAnon"
    return int(match[1]) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tally = Tally()
    frames = mutated_frames(arguments.seed)
    for frame in islice(frames, arguments.frames // 10):
        decode_frame(frame, tally)
    early = anonymous_bytes()
    for frame in islice(frames, arguments.frames - arguments.frames // 10):
        decode_frame(frame, tally)
    late = anonymous_bytes()
    sys.stdout.write(
        f"seed {arguments.seed}: {tally.frames} frames, {tally.refused} refused, {tally.decoded} decoded, "
        f"{tally.unknown} of unknown APIs or versions; no other exception\n"
        f"anonymous memory: {early / 2**20:.1f} MiB after a tenth, {late / 2**20:.1f} MiB at the end "
        f"({late / early - 1:+.1%})\n"
    )
    return 0 if late <= early * GROWTH_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())

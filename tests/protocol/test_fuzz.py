"""A short run of the fuzzer, with a check of its coverage."""

from itertools import islice

from protocol.api_keys import API_BY_KEY
from tests.protocol.fuzz_requests import Tally, decode_frame, mutated_frames, valid_frames


def test_mutated_requests_raise_only_decode_errors() -> None:
    tally = Tally()
    for frame in islice(mutated_frames(seed=7), 20_000):
        decode_frame(frame, tally)
    assert tally.frames == 20_000
    assert tally.refused > 5_000
    assert tally.decoded > 1_000


def test_unchanged_frames_are_decoded() -> None:
    tally = Tally()
    frames = valid_frames(seed=7)
    for frame in frames:
        decode_frame(frame, tally)
    assert tally == Tally(decoded=len(frames))
    assert {int.from_bytes(frame[:2]) for frame in frames} == set(API_BY_KEY)

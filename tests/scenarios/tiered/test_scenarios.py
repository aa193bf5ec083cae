"""Check that every drawing matches and shows the results that KIP-405 states."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent

EXPECTED = {
    "1_new_follower": [
        "A leads LE-3                         B follows A ",
        "log 0-8, local from 3, HW 8          log 0-8, local from 3, HW 8 ",
        "epochs LE-0@0 LE-1@3 LE-2@5 LE-3@7   epochs LE-0@0 LE-1@3 LE-2@5 LE-3@7 ",
    ],
    "2_follower_behind": [
        "log 0-9, local from 3, HW 9          log 0-9, HW 9 ",
        "log 0-12, local from 9, HW 12        log 0-12, local from 9, HW 12 ",
    ],
    "3_lost_tail": [
        "  1: m3 LE-1             1: m3 LE-1 ",
        "epochs LE-0@0 LE-1@1          epochs LE-0@0 LE-1@1 ",
        "B, offset 0 after LE-0: m0 of LE-0 from u1",
        "B, offset 1: m3 of LE-1 from u2",
        "B, offset 1 after LE-1: m3 of LE-1 from u2",
        "B, offset 2 after LE-0: fenced",
    ],
    "4_unclean_truncation": [
        "u2 [0-1] LE-0@0 LE-1@1",
        "B, offset 0 after LE-0: m0 of LE-0 from u",
        "B, offset 1: m4 of LE-1 from u2",
        "B, offset 1 after LE-1: m4 of LE-1 from u2",
        "B, offset 2 after LE-0: fenced",
        "the log of B contains u1 up to 0, u2 whole",
    ],
    "5_diverging_remote_segments": [
        "log 0-7, local from 6, HW 7   log 0-7, local from 6, HW 7 ",
        "epochs LE-0@0 LE-2@5          epochs LE-0@0 LE-2@5 ",
        "B, offset 3 after LE-1: fenced",
        "B, offset 2: m2 of LE-0 from u1",
        "the log of B contains u1 whole, u2 up to 1, u3 whole",
    ],
    "6_follower_to_leader": [
        "B copies from 5",
        "u3 [4-6] LE-1@4 LE-2@6",
        "B, offset 4: m4 of LE-1 from the local log",
        "B, offset 4: m4 of LE-1 from u3",
    ],
}
"""KIP-405, "Follower fetch scenarios" 1 to 5 and "Follower to leader transition"."""


@pytest.mark.parametrize("name", EXPECTED)
def test_transcript_matches_recorded_output(name: str) -> None:
    text = (HERE / f"{name}.txt").read_text()
    assert [lines for lines in EXPECTED[name] if lines not in text] == []

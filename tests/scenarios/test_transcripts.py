"""Transcripts show the present output of their commands."""

from pathlib import Path

import pytest

from tests.scenarios.kinds import KINDS, all_transcripts, transcript_name
from tests.scenarios.transcript import replay


@pytest.mark.parametrize(
    ("kind", "path"), [pytest.param(*each, id=transcript_name(each[1])) for each in all_transcripts()]
)
def test_transcript_shows_present_output(kind: str, path: Path) -> None:
    """Accept a change with `python -m tests.scenarios --rewrite`."""
    text = path.read_text()
    assert replay(text, KINDS[kind]()) == text

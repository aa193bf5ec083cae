"""Every transcript says what happens now."""

from pathlib import Path

import pytest

from tests.scenarios.remote_log.transcript import replay, transcripts


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_transcript_is_true(path: Path) -> None:
    """To accept a change: python -m tests.scenarios.remote_log.transcript --rewrite."""
    assert replay(path.read_text()) == path.read_text()

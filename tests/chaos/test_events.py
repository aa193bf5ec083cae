"""Parsing of client programs' lines."""

import pytest

from tests.chaos.events import Acked, Ended, Event, Failed, Note, Polled, Renumbered, Strange, Truncated, parse


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("acked 17 2 -1 3 40", Acked(17, 2, -1, 3, 40)),
        ("renumbered 17 2 48 4000", Renumbered(17, 2, 48, 4000)),
        ("failed 17 2 3 40 timed out in queue", Failed(17, 2, 3, 40, "timed out in queue")),
        ("polled 17 2 100 3 1 40 -1", Polled(17, 2, 100, 3, 1, 40, -1)),
        ("strange 17 2 100 a value of 3 bytes", Strange(17, 2, 100, "a value of 3 bytes")),
        ("truncated 17 2 100 90", Truncated(17, 2, 100, 90)),
        ("ended 17 2 100", Ended(17, 2, 100)),
        ("note 17 connection refused", Note(17, "connection refused")),
    ],
)
def test_valid_line_is_parsed(line: str, event: Event) -> None:
    assert parse(line) == event


@pytest.mark.parametrize("line", ["", "acked", "polled 1 2 3", "Exception in thread main", "ended 1 2 x"])
def test_invalid_line_is_refused(line: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse(line)

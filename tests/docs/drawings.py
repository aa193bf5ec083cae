"""Drawings of `docs/how-it-works.md`, made from the transcripts in `tests/scenarios`.

A comment `<!-- generated: tests.docs.drawings TRANSCRIPT NUMBER -->` before a block of the page names a transcript and
the number, from 1, of one of its blocks with output. Messages between nodes are drawn as arrows between columns. A
block without times is shown with its commands. `python -m tests.docs.drawings` writes the blocks; a test compares them.
"""

import re
from collections.abc import Sequence

from tests.docs.blocks import ROOT
from tests.scenarios.transcript import SEPARATOR

PAGE = ROOT / "docs" / "how-it-works.md"
SCENARIOS = ROOT / "tests" / "scenarios"
COLUMN = 10
_PLACE = re.compile(r"(<!-- generated: tests\.docs\.drawings (\S+) (\d+) -->\n```text\n).*?```", re.DOTALL)
_LINE = re.compile(r" *(\d+) +(\w+):? (?:-> (\w+) )?(.+)")

Event = tuple[str, str, str | None, str]
"""Time in ms, node that acts, receiver of a message or None, and what happens."""


def page(text: str) -> str:
    """Return the page with its drawings made anew."""
    return _PLACE.sub(lambda place: f"{place[1]}{drawing(place[2], int(place[3]))}```", text)


def drawing(transcript: str, number: int) -> str:
    """Return the drawing of a block of a transcript. Raises IndexError if the transcript has fewer blocks."""
    text = (SCENARIOS / f"{transcript}.txt").read_text()
    blocks = [block for block in text.strip("\n").split("\n\n") if f"\n{SEPARATOR}\n" in block]
    commands, _, output = blocks[number - 1].partition(f"\n{SEPARATOR}\n")
    events = [event for line in output.splitlines() if (event := _event(line)) is not None]
    if len(events) == len(output.splitlines()):
        return "".join(f"{line}\n" for line in _drawn(events))
    kept = [f"> {line}" for line in commands.splitlines() if not line.startswith("#")]
    return "".join(f"{line}\n" for line in [*kept, *output.splitlines()])


def _event(line: str) -> Event | None:
    match = _LINE.fullmatch(line)
    return None if match is None else (match[1], match[2], match[3], match[4])


def _drawn(events: Sequence[Event]) -> list[str]:
    names = sorted({name for _, actor, receiver, _ in events for name in (actor, receiver) if name is not None})
    places = {name: COLUMN * index for index, name in enumerate(names)}
    head = " " * 10 + "".join(name.ljust(COLUMN) for name in names)
    return [head.rstrip(), *(_row(event, places) for event in events)]


def _row(event: Event, places: dict[str, int]) -> str:
    time_ms, actor, receiver, text = event
    row = list(" " * (COLUMN * len(places)))
    for place in places.values():
        row[place] = "│"
    if receiver is None:
        row[places[actor]] = "●"
    else:
        first, last = sorted((places[actor], places[receiver]))
        row[first + 1 : last] = "─" * (last - first - 1)
        row[last - 1 if places[receiver] == last else first + 1] = "►" if places[receiver] == last else "◄"
    return f"{time_ms:>6}    {''.join(row)}{text}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))

"""Blocks of README.md and `docs/`: each says how it is checked, and the commands do what the pages show.

`make docs-check` runs all groups on a clean Debian; this test runs the same groups with the programs at hand.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Group, all_blocks, blocks_of, groups, matches
from tests.docs.machine import Namespace, Session, namespace_reason
from tests.support.kafka import apache_kafka

BLOCKS = all_blocks()
GROUPS = [quick for group in groups(BLOCKS) if (quick := group.quick()).blocks]
PROGRAMS = {"kcat": "kcat", "java": "java", "curl": "curl"}


def test_every_block_says_how_it_is_checked() -> None:
    assert [str(block) for block in BLOCKS if not block.kind] == [], (
        "put a comment before the block, see tests/docs/blocks.py"
    )


def test_blocks_that_run_are_commands_or_programs() -> None:
    assert [str(block) for block in BLOCKS if block.kind == "run" and block.language not in ("console", "python")] == []


def test_blocks_equal_the_files_that_they_name() -> None:
    compared = [block for block in BLOCKS if block.kind == "same as"]
    assert [str(block) for block in compared if block.text not in (ROOT / block.subject).read_text()] == []


def test_json_blocks_can_be_parsed() -> None:
    for block in BLOCKS:
        if block.language == "json":
            json.loads(block.text)


def test_commands_and_their_output_are_told_apart() -> None:
    text = '<!-- run: g; until "x" -->\n```console\n$ a \\\n    b\nc\n$ d <<E\n> e\n> E\n```\n'
    (block,) = blocks_of("page", text)
    assert (block.kind, block.group, block.until) == ("run", "g", "x")
    assert [(each.text, each.output) for each in block.commands()] == [("a \\\n    b", "c"), ("d <<E\ne\nE", "")]


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        ("a …", "a 12\n", True),
        ("a …", "b 12\n", False),
        ("a\n…\nd", "a\nb\nc\nd\n", True),
        ("a\nd", "a\nb\nd\n", False),
    ],
)
def test_ellipsis_stands_for_any_text(expected: str, output: str, same: bool) -> None:
    assert matches(expected, output) is same


@pytest.mark.integration
@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_commands_do_what_the_page_shows(group: Group, tmp_path: Path) -> None:
    if (reason := namespace_reason() or _missing(group)) is not None:
        pytest.skip(reason)
    with Session(Namespace(tmp_path, group)) as session:
        for block in group.blocks:
            session.run(block)


def _missing(group: Group) -> str | None:
    for need in group.needs:
        if need == "kafka" and (reason := apache_kafka.unavailable_reason()) is not None:
            return reason
        if need in PROGRAMS and shutil.which(PROGRAMS[need]) is None:
            return f"{need} is not on PATH"
    return None

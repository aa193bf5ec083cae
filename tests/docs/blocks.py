"""Fenced blocks of README.md and `docs/`, and the comment before each block that says how it is checked.

| comment | meaning |
|---|---|
| `<!-- run: GROUP; OPTION; … -->` | the commands or the program run, after earlier blocks of the group |
| `<!-- file: GROUP NAME -->` | the block is written to the file NAME in the directory of the group |
| `<!-- same as: PATH -->` | the block is the file PATH of the repository, or a part of it |
| `<!-- generated: MODULE -->` | `python -m MODULE` writes the block, and a test of that module compares it |
| `<!-- not run: REASON -->` | the block is only read; JSON is parsed |

Options of `run`: `until "TEXT"` leaves the last command in the background once it has printed TEXT; `after Ctrl-C`
interrupts the newest background command first; `checkout` starts the group in a clone of the repository; `needs
PROGRAM` skips the group without the program (`kafka`: Apache Kafka's scripts in `kafka/bin`); `clean machine` runs the
block by `make docs-check` alone.

In `console` blocks, lines with `$ ` are commands, lines with `> ` continue them, and all other lines are the output.
An ellipsis in the output stands for any text, on a line of its own for any lines.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("run", "file", "same as", "generated", "not run")
_FENCE = re.compile(r"^( *)```(\w*)$")
_COMMENT = re.compile(r"^ *<!-- ([a-z ]+): (.+) -->$")


@dataclass(frozen=True)
class Command:
    """A command of a `console` block, with the output that the page shows (empty: any)."""

    text: str
    output: str


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with the comment that precedes it (empty: none)."""

    page: str
    line: int
    language: str
    text: str
    kind: str
    subject: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def group(self) -> str:
        return self.subject.split()[0]

    @property
    def until(self) -> str | None:
        """Text that the last command prints when it stays in the background."""
        found = (re.fullmatch(r'until "(.+)"', option) for option in self.options)
        return next((match[1] for match in found if match is not None), None)

    def commands(self) -> list[Command]:
        """Return the commands of a `console` block."""
        commands: list[tuple[list[str], list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                commands.append(([line[2:]], []))
                continue
            assert commands, f"{self}: output before the first command"
            text, output = commands[-1]
            if line.startswith("> "):
                text.append(line[2:])
            elif text[-1].endswith("\\") and not output:
                text.append(line)
            else:
                output.append(line)
        return [Command("\n".join(text), "\n".join(output)) for text, output in commands]


@dataclass
class Group:
    """Blocks of a page that run after each other in one fresh directory."""

    page: str
    name: str
    blocks: list[Block] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.page}:{self.name}"

    @property
    def options(self) -> set[str]:
        return {option for block in self.blocks for option in block.options}

    @property
    def needs(self) -> list[str]:
        """Programs that the group needs."""
        return sorted(option.removeprefix("needs ") for option in self.options if option.startswith("needs "))

    def quick(self) -> Self:
        """Return the group without the blocks that only a clean machine runs."""
        return type(self)(self.page, self.name, [each for each in self.blocks if "clean machine" not in each.options])


def pages() -> list[Path]:
    """Return README.md, CONTRIBUTING.md and the pages below `docs/`."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        if (fence := _FENCE.match(lines[number])) is None:
            number += 1
            continue
        indent = fence[1]
        end = next(n for n in range(number + 1, len(lines)) if lines[n] == f"{indent}```")
        body = "".join(f"{line.removeprefix(indent)}\n" for line in lines[number + 1 : end])
        before = next((line for line in reversed(lines[:number]) if line.strip()), "")
        comment = _COMMENT.match(before)
        kind, rest = (comment[1], comment[2]) if comment and comment[1] in KINDS else ("", "")
        subject, *options = [part.strip() for part in rest.split(";")] if kind == "run" else [rest]
        yield Block(page, number + 1, fence[2], body, kind, subject, tuple(options))
        number = end + 1


def all_blocks() -> list[Block]:
    """Return the fenced blocks of all pages."""
    found: list[Block] = []
    for path in pages():
        found += blocks_of(path.relative_to(ROOT).as_posix(), path.read_text())
    return found


def groups(blocks: Sequence[Block]) -> list[Group]:
    """Return the groups of the blocks, in the order of the pages."""
    found: dict[tuple[str, str], Group] = {}
    for block in blocks:
        if block.kind in ("run", "file"):
            found.setdefault((block.page, block.group), Group(block.page, block.group)).blocks.append(block)
    return list(found.values())


def matches(expected: str, output: str) -> bool:
    """Whether the output of a command is the one that a page shows."""
    parts = [
        r"(?:.*\n)*" if line.strip() == "…" else re.escape(line.rstrip()).replace("…", ".*") + r"[ \t]*\n"
        for line in expected.splitlines()
    ]
    return re.fullmatch("".join(parts), output if output.endswith("\n") else output + "\n") is not None

"""Transcripts: scenarios as text files of commands and their exact output.

A transcript consists of blocks separated by blank lines. A block has command lines, a line `----`, and the output of
the commands. Lines that begin with `#` are comments. The word `quiet` suppresses the output of its command.

`replay` runs the commands of a transcript and returns the transcript with their present output. A test compares both;
`python -m tests.scenarios [KIND ...] --rewrite` accepts a change of output, and the diff is reviewed.

Each kind of scenario is a subclass of `Scenario` in a folder of its own, beside its transcripts.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

SEPARATOR = "----"

Words = list[str]
Named = dict[str, str]
Command = Callable[[Words, Named], object]


class Scenario:
    """Interpreter of one transcript: a table of commands and the output of the current block.

    A command receives its positional words and its `name=value` words.
    """

    silence: ClassVar[str | None] = "(no output)"
    """The output of a block without output; None omits the separator."""

    def __init__(self) -> None:
        self.output: Words = []
        self.is_quiet = False
        self.commands: Mapping[str, Command] = {}

    def run(self, line: str) -> None:
        """Run one command line; its output goes to `output`."""
        name, *words = line.split()
        self.is_quiet = "quiet" in words
        positional = [word for word in words if word != "quiet" and not self.is_named(word)]
        named = dict(word.split("=", 1) for word in words if self.is_named(word))
        self.before_command()
        self.execute(self.commands[name], positional, named)
        self.after_command(name)

    def execute(self, command: Command, words: Words, named: Named) -> None:
        """Call the command."""
        command(words, named)

    def is_named(self, word: str) -> bool:
        """Whether the word is `name=value`."""
        return "=" in word

    def show(self, line: str) -> None:
        """Add a line of output."""
        if not self.is_quiet:
            self.output.append(line)

    def begin_block(self) -> None:
        """Start a block with empty output."""
        self.output = []

    def before_command(self) -> None:
        """Prepare for the next command."""

    def after_command(self, name: str) -> None:
        """Collect the effects of the command `name`."""

    def close(self) -> None:
        """Release resources at the end of the transcript."""


def transcripts(directory: Path) -> list[Path]:
    """Return the transcripts in a folder and its sub-folders, by name."""
    return sorted(directory.rglob("*.txt"))


def replay(text: str, scenario: Scenario) -> str:
    """Return the transcript with the present output of its commands."""
    try:
        return "\n\n".join(_replay_block(scenario, block) for block in text.strip("\n").split("\n\n")) + "\n"
    finally:
        scenario.close()


def _replay_block(scenario: Scenario, block: str) -> str:
    lines = block.split("\n")
    head = lines[: lines.index(SEPARATOR)] if SEPARATOR in lines else lines
    commands = [line for line in head if line and not line.startswith("#")]
    scenario.begin_block()
    for line in commands:
        scenario.run(line)
    if not commands or (not scenario.output and scenario.silence is None):
        return "\n".join(head)
    return "\n".join([*head, SEPARATOR, *(scenario.output or [scenario.silence or ""])])

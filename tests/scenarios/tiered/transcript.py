"""KIP-405's scenarios, drawn: blocks of commands, `----`, and what there is then, or what a consumer is told.

Lines that begin with `#` are for people. `python -m tests.scenarios.tiered.transcript --rewrite` writes the present
output into the files; review the diff.

    brokers A B
    lead A 0                A leads epoch 0 from now on, in whatever way it was elected
    follow B                B follows, and catches up
    settle                  let followers fetch, and the leader commit what they have
    write m0 m1             the leader appends
    flush B                 what B has is on its disk; the rest may be lost
    roll A                  a new segment
    copy A                  A copies what may be copied to remote storage
    expire A 3              what A has before 3, and remote storage too, goes from its disk
    delete A 4              DeleteRecords: the log starts there
    stop A     start A      crash B (the power fails)     wipe B (a new disk)
    draw
    read B 2 LE-1           a consumer reads on at 2 after a record of LE-1, or without knowing epochs
    next A                  the offset from which A copies on
    agree A                 up to where segments are part of the history of A's log
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from storage.tiered.upkeep.copying import lineage_of
from tests.scenarios.tiered.broker import NOW_MS
from tests.scenarios.tiered.drawing import draw
from tests.scenarios.tiered.world import World, name_of

HERE = Path(__file__).parent
SEPARATOR = "----"


class Stage:
    """Runs the commands of one transcript."""

    def __init__(self) -> None:
        self.world = World(())
        self.commands: Mapping[str, Callable[[list[str]], str | None]] = {
            "brokers": self.brokers,
            "lead": lambda words: self.world.lead(words[0], int(words[1])),
            "follow": lambda words: self.world.follow(words[0]),
            "settle": lambda _: self.world.settle(),
            "write": lambda words: self.world.write(words),
            "flush": lambda words: self.world.brokers[words[0]].flush(),
            "roll": lambda words: self.world.brokers[words[0]].log.roll(NOW_MS),
            "copy": self.copy,
            "expire": lambda words: self.world.expire(words[0], int(words[1])),
            "delete": self.delete,
            "stop": lambda words: self.world.stop(words[0]),
            "start": lambda words: self.world.brokers[words[0]].start(),
            "crash": lambda words: self.world.crash(words[0]),
            "wipe": lambda words: self.world.brokers[words[0]].wipe(),
            "draw": lambda _: draw(self.world),
            "read": self.read,
            "agree": self.agree,
            "next": lambda words: f"{words[0]} copies from {self.world.copied(self.world.brokers[words[0]].log) + 1}",
        }

    def run(self, line: str) -> str | None:
        """The output of one command."""
        name, *words = line.split()
        return self.commands[name](words)

    def brokers(self, words: list[str]) -> None:
        self.world = World(words)

    def copy(self, words: list[str]) -> None:
        self.world.upload(words[0])

    def delete(self, words: list[str]) -> None:
        self.world.brokers[words[0]].delete_records(int(words[1]))

    def read(self, words: list[str]) -> str:
        epoch = int(words[2].removeprefix("LE-")) if len(words) > 2 else -1
        after = f" after LE-{epoch}" if epoch >= 0 else ""
        return f"{words[0]}, offset {words[1]}{after}: {self.world.read(words[0], int(words[1]), epoch)}"

    def agree(self, words: list[str]) -> str:
        lineage = lineage_of(self.world.brokers[words[0]].log)
        told = []
        for segment in self.world.segments():
            end = lineage.agreed_end(segment)
            how = "whole" if end == segment.end_offset else f"up to {end}" if end >= 0 else "not at all"
            told.append(f"{name_of(segment)} {how}")
        return f"{words[0]} agrees with {', '.join(told)}"


def transcripts() -> list[Path]:
    return sorted(HERE.glob("*.txt"))


def replay(text: str) -> str:
    """The transcript as it should read."""
    stage = Stage()
    return "\n\n".join(_replay_block(stage, block) for block in text.strip().split("\n\n")) + "\n"


def _replay_block(stage: Stage, block: str) -> str:
    lines = block.split("\n")
    head = lines[: lines.index(SEPARATOR)] if SEPARATOR in lines else lines
    commands = [line for line in head if line and not line.startswith("#")]
    told = [said for command in commands if (said := stage.run(command)) is not None]
    return "\n".join([*head, SEPARATOR, *told] if told else head)


def main() -> None:
    for path in transcripts():
        truth = replay(path.read_text())
        if "--rewrite" in sys.argv:
            path.write_text(truth)
        elif truth != path.read_text():
            sys.exit(f"{path.name} is not what happens")


if __name__ == "__main__":
    main()

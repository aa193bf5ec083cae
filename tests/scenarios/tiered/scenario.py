"""Scenarios of KIP-405, drawn as in the KIP: brokers, remote storage, and what consumers read.

brokers A B
lead A 0                elect A for epoch 0, cleanly or not
follow B                make B a follower that catches up
settle                  let followers fetch, and the leader advance the high watermark
write m0 m1             append on the leader
flush B                 flush B's log
roll A                  roll A's active segment
copy A                  copy all segments of A that may be copied
expire A 3              delete A's local segments below 3 that have been copied
delete A 4              DeleteRecords up to 4
stop A     start A      crash B (the power fails)     wipe B (a new disk)
draw
read B 2 LE-1           consume at 2 after a record of LE-1, or without an epoch
next A                  show the offset of A's next copy
agree A                 show up to which offset each segment belongs to A's log
"""

from collections.abc import Mapping

from storage.tiered.lifecycle.copying import lineage_of
from tests.scenarios.tiered.broker import NOW_MS
from tests.scenarios.tiered.drawing import draw
from tests.scenarios.tiered.harness import ScenarioCluster, name_of
from tests.scenarios.transcript import Command, Named, Scenario, Words


class TieredScenario(Scenario):
    """Interpreter of the commands above."""

    silence = None

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ScenarioCluster(())
        self.commands: Mapping[str, Command] = {
            "brokers": self.brokers,
            "lead": lambda words, _: self.cluster.lead(words[0], int(words[1])),
            "follow": lambda words, _: self.cluster.follow(words[0]),
            "settle": lambda _words, _named: self.cluster.settle(),
            "write": lambda words, _: self.cluster.write(words),
            "flush": lambda words, _: self.cluster.brokers[words[0]].flush(),
            "roll": lambda words, _: self.cluster.brokers[words[0]].log.roll(NOW_MS),
            "copy": self.copy,
            "expire": lambda words, _: self.cluster.expire(words[0], int(words[1])),
            "delete": self.delete,
            "stop": lambda words, _: self.cluster.stop(words[0]),
            "start": lambda words, _: self.cluster.brokers[words[0]].start(),
            "crash": lambda words, _: self.cluster.crash(words[0]),
            "wipe": lambda words, _: self.cluster.brokers[words[0]].wipe(),
            "draw": lambda _words, _named: draw(self.cluster),
            "read": self.read,
            "agree": self.agree,
            "next": lambda words, _: (
                f"{words[0]} copies from {self.cluster.copied(self.cluster.brokers[words[0]].log) + 1}"
            ),
        }

    def execute(self, command: Command, words: Words, named: Named) -> None:
        output = command(words, named)
        if isinstance(output, str):
            self.show(output)

    def brokers(self, words: Words, _named: Named) -> None:
        self.cluster = ScenarioCluster(words)

    def copy(self, words: Words, _named: Named) -> None:
        self.cluster.upload(words[0])

    def delete(self, words: Words, _named: Named) -> None:
        self.cluster.brokers[words[0]].delete_records(int(words[1]))

    def read(self, words: Words, _named: Named) -> str:
        epoch = int(words[2].removeprefix("LE-")) if len(words) > 2 else -1
        after = f" after LE-{epoch}" if epoch >= 0 else ""
        return f"{words[0]}, offset {words[1]}{after}: {self.cluster.read(words[0], int(words[1]), epoch)}"

    def next(self, words: Words, _named: Named) -> str:
        return f"{words[0]} copies from {self.cluster.copied(self.cluster.brokers[words[0]].log) + 1}"

    def agree(self, words: Words, _named: Named) -> str:
        lineage = lineage_of(self.cluster.brokers[words[0]].log)
        parts = []
        for segment in self.cluster.segments():
            end = lineage.agreed_end(segment)
            part = "whole" if end == segment.end_offset else f"up to {end}" if end >= 0 else "not at all"
            parts.append(f"{name_of(segment)} {part}")
        return f"the log of {words[0]} contains {', '.join(parts)}"

"""Verdict of a run: what the workers reported of their transactions, and what readers of committed records saw.

A transaction is named `worker.incarnation.number`; its records carry the name. A worker prints a line before and after
each end: `commit NAME TIME_MS COUNT` before EndTxn is sent, then `committed NAME` or `aborted NAME`. Times are
wall-clock ms of one machine. After a lost worker or response the outcome of a transaction is unknown, and the readers
decide.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

EXAMPLES = 5


class Read(NamedTuple):
    """A record as a reader of committed records saw it first."""

    number: int
    transaction: str
    time_ms: int


@dataclass
class Anomalies:
    """Counts of anomalies. Names in parentheses are Jepsen's.

    `lost`: input without output. `duplicates`: output beyond the first of an input. `aborted_reads` (G1a): records of a
    transaction that its worker aborted. `precommitted_reads`: records read before their transaction's commit was
    requested. `torn`: transactions of which only a part is visible, or nothing though their worker saw them committed.
    `foreign`: output without an input. `changed`: records that a later reading does not confirm.
    """

    lost: int = 0
    duplicates: int = 0
    aborted_reads: int = 0
    precommitted_reads: int = 0
    torn: int = 0
    foreign: int = 0
    changed: int = 0

    @property
    def total(self) -> int:
        return sum(vars(self).values())


@dataclass
class Ledger:
    """Everything that the run has reported so far; `examples` has a few lines about anomalies after `verdict`."""

    expected: int
    commits: dict[str, tuple[int, int]] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)
    reads: dict[tuple[int, int], Read] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        """Note a line of a worker. Raises ValueError for one that is not a report."""
        verb, name, *rest = line.split()
        match verb:
            case "commit":
                time_ms, count = map(int, rest)
                self.commits[name] = (time_ms, count)
            case "committed":
                self.committed.add(name)
            case "aborted":
                self.aborted.add(name)
            case _:
                raise ValueError(f"a worker printed {line!r}")

    def see(self, partition: int, offset: int, read: Read) -> None:
        """Note a record of the output."""
        self.reads[partition, offset] = read

    def distinct(self) -> int:
        """Return the number of different inputs in the output, also while another thread notes records."""
        return len({read.number for read in list(self.reads.values())})

    def verdict(self, again: dict[tuple[int, int], Read]) -> Anomalies:
        """Compare everything; `again` is a later reading of the whole output."""
        found, seen = Anomalies(), Counter(read.number for read in self.reads.values())
        inputs = range(self.expected)
        found.lost = sum(number not in seen for number in inputs)
        found.foreign = sum(count for number, count in seen.items() if number not in inputs)
        found.duplicates = sum(count - 1 for number, count in seen.items() if number in inputs)
        for place, read in self.reads.items():
            begun = self.commits.get(read.transaction)
            if read.transaction in self.aborted:
                found.aborted_reads += self._note("aborted", place, read)
            elif begun is None or read.time_ms < begun[0]:
                found.precommitted_reads += self._note("precommitted", place, read)
            if seen[read.number] > 1:
                self._note("duplicate", place, read)
        found.torn = self._torn()
        places = self.reads.keys() | again.keys()
        found.changed = sum(self._content(self.reads, each) != self._content(again, each) for each in places)
        return found

    def _torn(self) -> int:
        visible = Counter(read.transaction for read in self.reads.values())
        torn = 0
        for name, (_, count) in self.commits.items():
            if visible[name] not in ({count} if name in self.committed else {0, count}):
                torn += 1
                self._add(f"torn: {visible[name]} of {count} records of {name}")
        return torn

    @staticmethod
    def _content(reads: dict[tuple[int, int], Read], place: tuple[int, int]) -> tuple[int, str] | None:
        read = reads.get(place)
        return None if read is None else (read.number, read.transaction)

    def _note(self, kind: str, place: tuple[int, int], read: Read) -> int:
        self._add(f"{kind}: input {read.number} at output-{place[0]} offset {place[1]} by {read.transaction}")
        return 1

    def _add(self, line: str) -> None:
        if sum(each.startswith(line.partition(":")[0]) for each in self.examples) < EXAMPLES:
            self.examples.append(line)

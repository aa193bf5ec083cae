"""Reading of all records with both client libraries, and comparison with the written ones."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.clients.checkable_records import Recipe, offsets_by_timestamp, read_back
from tests.support.kafka.apache_kafka import run_tool, unavailable_reason

JAVA_PROGRAM = str(Path(__file__).parent / "clients" / "TierReader.java")
PATIENCE_S = 120.0
LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True)
class Written:
    """Records to read: `ends` by partition, and the CRC over all values of each."""

    topic: str
    recipe: Recipe
    ends: Mapping[int, int]
    crcs: Mapping[int, int]

    @property
    def size_bytes(self) -> int:
        return sum(self.ends.values()) * self.recipe.size

    def asked(self, count: int) -> dict[int, list[int]]:
        """Return numbers across each partition, including the first and the last."""
        return {
            partition: sorted({round(step * (end - 1) / (count - 1)) for step in range(count)})
            for partition, end in self.ends.items()
        }


@dataclass
class Reading:
    """Result of one reader: its faults and its speed."""

    title: str
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def compare(self, written: Written, ends: Mapping[int, int], crcs: Mapping[int, int]) -> None:
        if dict(ends) != dict(written.ends):
            self.faults.append(f"read up to {dict(ends)}, not {dict(written.ends)}")
        if dict(crcs) != dict(written.crcs):
            self.faults.append("the records read differ from those written")


def read_with_librdkafka(bootstrap: str, written: Written, isolation: str) -> Reading:
    reading = Reading(f"librdkafka, {isolation}")
    began = time.monotonic()
    found = read_back(
        bootstrap,
        written.topic,
        written.recipe,
        written.ends,
        patience_s=PATIENCE_S,
        more={"isolation.level": isolation},
    )
    reading.seconds = time.monotonic() - began
    reading.faults += found.faults
    reading.compare(written, found.positions, found.crcs)
    return reading


def look_up_with_librdkafka(bootstrap: str, written: Written, count: int) -> Reading:
    """Look up `count` offsets by timestamp in each partition."""
    reading = Reading(f"librdkafka, {count} timestamps of each partition")
    asked = written.asked(count)
    times = {partition: map(written.recipe.timestamp_ms, numbers) for partition, numbers in asked.items()}
    began = time.monotonic()
    found = offsets_by_timestamp(bootstrap, written.topic, times)
    reading.seconds = time.monotonic() - began
    if found != asked:
        reading.faults.append(f"offsets by timestamp are {found}, not {asked}")
    return reading


def read_with_java(bootstrap: str, written: Written, isolation: str, count: int) -> Reading | str:
    """Read everything, then look up offsets by timestamp; return the reason if Java is missing."""
    if (reason := unavailable_reason()) is not None:
        return reason
    reading = Reading(f"Java, {isolation}, and {count} timestamps of each partition")
    asked = {(partition, number) for partition, numbers in written.asked(count).items() for number in numbers}
    ends = ",".join(f"{partition}={end}" for partition, end in written.ends.items())
    times = ",".join(f"{partition}={written.recipe.timestamp_ms(number)}" for partition, number in sorted(asked))
    arguments = (bootstrap, written.topic, isolation, str(written.recipe.first_ms), ends, times)
    began = time.monotonic()
    lines = run_tool(JAVA_PROGRAM, *arguments, timeout_s=LONGEST_S).splitlines()
    reading.seconds = time.monotonic() - began
    reading.faults += [line for line in lines if line.startswith("fault ")]
    read = [tuple(map(int, words)) for words in _lines(lines, "read")]
    reading.compare(written, {p: end for p, end, _ in read}, {p: crc for p, _, crc in read})
    wanted = {(partition, written.recipe.timestamp_ms(number), number) for partition, number in asked}
    if {tuple(map(int, words)) for words in _lines(lines, "at")} != wanted:
        reading.faults.append("offsets by timestamp differ from those of the records")
    return reading


def _lines(lines: Sequence[str], word: str) -> list[list[str]]:
    return [line.split()[1:] for line in lines if line.startswith(f"{word} ")]

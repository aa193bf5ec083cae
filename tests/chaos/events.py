"""What client programs tell of a run, one line each: the only language between them and the checker.

Records are numbered by who wrote them: producer, partition, and a sequence that counts from 0 in each such pair. A line
tells of a run of records that stand side by side (offsets and sequences both count up by one), since millions of single
lines would cost more than the broker under test. Times are milliseconds since 1970 by the machine's clock.
"""

from typing import NamedTuple


class Acked(NamedTuple):
    """The broker acknowledged these records; offset -1 is an acknowledgement without an offset."""

    time_ms: int
    partition: int
    offset: int
    length: int
    sequence: int


class Failed(NamedTuple):
    """The client gave these records up; they may be in the log all the same, once."""

    time_ms: int
    partition: int
    length: int
    sequence: int
    reason: str


class Polled(NamedTuple):
    """A consumer was given these records. The epoch is that of their batch, -1 where the client does not tell it."""

    time_ms: int
    partition: int
    offset: int
    length: int
    producer: int
    sequence: int
    epoch: int


class Strange(NamedTuple):
    """A consumer was given a record that no producer of the run can have written."""

    time_ms: int
    partition: int
    offset: int
    what: str


class Truncated(NamedTuple):
    """A consumer learned that the log no longer has what it read, and goes on at another offset."""

    time_ms: int
    partition: int
    position: int
    resumed_at: int


class Began(NamedTuple):
    """A reader begins at this offset, which is where the partition begins; it may have read it before."""

    time_ms: int
    partition: int
    at: int


class Ended(NamedTuple):
    """A reader has seen everything below this offset, which is where the partition ends."""

    time_ms: int
    partition: int
    end: int


class Note(NamedTuple):
    """Anything a person may want to know; the checker does not read it."""

    time_ms: int
    text: str


Event = Acked | Failed | Polled | Strange | Truncated | Began | Ended | Note


def parse(line: str) -> Event:
    """One line of a client program; ValueError where it is not one."""
    verb, _, rest = line.partition(" ")
    match verb:
        case "polled":
            return Polled(*map(int, rest.split(" ", 6)))
        case "acked":
            return Acked(*map(int, rest.split(" ", 4)))
        case "failed":
            time_ms, partition, length, sequence, reason = rest.split(" ", 4)
            return Failed(int(time_ms), int(partition), int(length), int(sequence), reason)
        case "truncated":
            return Truncated(*map(int, rest.split(" ", 3)))
        case "began":
            return Began(*map(int, rest.split(" ", 2)))
        case "ended":
            return Ended(*map(int, rest.split(" ", 2)))
        case "strange":
            time_ms, partition, offset, what = rest.split(" ", 3)
            return Strange(int(time_ms), int(partition), int(offset), what)
        case "note":
            time_ms, _, text = rest.partition(" ")
            return Note(int(time_ms), text)
    raise ValueError(f"not an event: {line[:200]!r}")

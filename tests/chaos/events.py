"""Events of client programs, one per line: the interface between programs and checker.

Records are identified by producer, partition, and a sequence number that counts from 0 within both. A line stands for a
run of adjacent records (offsets and sequence numbers both ascend by one), since millions of single lines would cost
more than the broker under test. Times are milliseconds since 1970 by the machine's clock.
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
    """The client gave up on these records; each may be in the log, once."""

    time_ms: int
    partition: int
    length: int
    sequence: int
    reason: str


class Renumbered(NamedTuple):
    """The producer continues with another producer epoch. It sends these records again if they are unacknowledged, so
    that each may be in the log twice: no broker can relate sequence numbers of two epochs.
    """

    time_ms: int
    partition: int
    length: int
    sequence: int


class Polled(NamedTuple):
    """A consumer received these records. The epoch is that of their batch, -1 if the client does not expose it."""

    time_ms: int
    partition: int
    offset: int
    length: int
    producer: int
    sequence: int
    epoch: int


class Strange(NamedTuple):
    """A consumer received a record that no producer of the run can have written."""

    time_ms: int
    partition: int
    offset: int
    what: str


class Truncated(NamedTuple):
    """A consumer detected a truncation of records it had read, and continues at another offset."""

    time_ms: int
    partition: int
    position: int
    resumed_at: int


class Began(NamedTuple):
    """A reader starts at the log start offset, possibly again."""

    time_ms: int
    partition: int
    at: int


class Ended(NamedTuple):
    """A reader has read everything below the log end offset."""

    time_ms: int
    partition: int
    end: int


class Note(NamedTuple):
    """Information for people; the checker ignores it."""

    time_ms: int
    text: str


Event = Acked | Failed | Renumbered | Polled | Strange | Truncated | Began | Ended | Note


def parse(line: str) -> Event:
    """Parse a line of a client program. Raise ValueError or TypeError if it is invalid."""
    verb, _, rest = line.partition(" ")
    match verb:
        case "polled":
            return Polled(*map(int, rest.split(" ", 6)))
        case "acked":
            return Acked(*map(int, rest.split(" ", 4)))
        case "failed":
            time_ms, partition, length, sequence, reason = rest.split(" ", 4)
            return Failed(int(time_ms), int(partition), int(length), int(sequence), reason)
        case "renumbered":
            return Renumbered(*map(int, rest.split(" ", 3)))
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

"""History of kraft.version and the voter set by record offset (KIP-853).

Both take effect on append, not on commit. They are therefore truncated with the log, and a snapshot contains their
values at its end offset. The history always equals a replay of the newest snapshot and the log after it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from broker.quorum.membership.voters import VoterSet
from broker.quorum.settings import ControlRecord
from protocol.ids import Offset
from protocol.messages.common_records import VotersRecord

T = TypeVar("T")


class IncompatibleVoters(ValueError):
    """A voters record with a duplicate id, or with more than one changed voter: the log is not trustworthy."""


class Control(NamedTuple):
    """The kraft.version and voters in force at an offset.

    `voters_offset` is the offset of the voters record: -1 for a record from the 0-0 snapshot, None if the voters come
    from the configuration.
    """

    kraft_version: int
    voters: VoterSet
    voters_offset: Offset | None


class ControlHistory:
    """Starts with the configured voters (possibly none) at kraft.version 0; any record overrides them."""

    def __init__(self, static: VoterSet, records: Iterable[ControlRecord] = ()) -> None:
        """Raise IncompatibleVoters as `append` does."""
        self.static = static
        self._versions: _ByOffset[int] = _ByOffset()
        self._voters: _ByOffset[VoterSet] = _ByOffset()
        for record in records:
            self.append(record)

    @property
    def latest(self) -> Control:
        return self._control(len(self._versions.offsets), len(self._voters.offsets))

    def at(self, offset: Offset) -> Control:
        """Return the values in force after the record at `offset`. A snapshot that ends at E contains `at(E - 1)`."""
        return self._control(self._versions.count_to(offset), self._voters.count_to(offset))

    def append(self, record: ControlRecord) -> None:
        """Append a record whose offset is not below the newest known offset.

        Raise IncompatibleVoters without a change. Any set may follow the static voters and those of the 0-0 snapshot,
        because those were never committed.
        """
        if record.voters is not None:
            self._append_voters(record.offset, _voters_of(record.voters))
        if record.kraft_version is not None:
            self._versions.append(record.offset, record.kraft_version)

    def truncate_to(self, offset: Offset) -> None:
        """Remove the changes of records from `offset` on."""
        self._versions.drop_from(offset)
        self._voters.drop_from(offset)

    def trim(self, start_offset: Offset) -> None:
        """Remove values that are needed only for offsets below `start_offset - 1`."""
        self._versions.drop_before(Offset(start_offset - 1))
        self._voters.drop_before(Offset(start_offset - 1))

    def restart(self, records: Iterable[ControlRecord]) -> None:
        """Replace the history by the records of a snapshot that replaced the log. Raise IncompatibleVoters."""
        fresh = ControlHistory(self.static, records)
        self._versions, self._voters = fresh._versions, fresh._voters

    def _append_voters(self, offset: Offset, voters: VoterSet) -> None:
        latest = self._voters.latest()
        if latest is not None and latest[0] >= 0 and not latest[1].differs_by_one(voters):
            raise IncompatibleVoters(
                f"the voters record at offset {offset} changes more than one voter: {latest[1].ids} to {voters.ids}"
            )
        self._voters.append(offset, voters)

    def _control(self, versions: int, voters: int) -> Control:
        version = self._versions.values[versions - 1] if versions else 0
        if not voters:
            return Control(version, self.static, None)
        return Control(version, self._voters.values[voters - 1], self._voters.offsets[voters - 1])


def _voters_of(record: VotersRecord) -> VoterSet:
    try:
        return VoterSet.of_record(record)
    except ValueError as error:
        raise IncompatibleVoters(str(error)) from error


class _ByOffset(Generic[T]):
    """Values in the order of their offsets. A value at the newest offset replaces the existing value."""

    def __init__(self) -> None:
        self.offsets: list[Offset] = []
        self.values: list[T] = []

    def latest(self) -> tuple[Offset, T] | None:
        return (self.offsets[-1], self.values[-1]) if self.offsets else None

    def count_to(self, offset: Offset) -> int:
        """Return the number of values at `offset` or below."""
        return bisect_right(self.offsets, offset)

    def append(self, offset: Offset, value: T) -> None:
        assert not self.offsets or self.offsets[-1] <= offset, (self.offsets[-1], offset)
        self.drop_from(offset)
        self.offsets.append(offset)
        self.values.append(value)

    def drop_from(self, offset: Offset) -> None:
        kept = bisect_left(self.offsets, offset)
        del self.offsets[kept:], self.values[kept:]

    def drop_before(self, offset: Offset) -> None:
        """Keep the value in force at `offset` and all later values."""
        dropped = max(0, self.count_to(offset) - 1)
        del self.offsets[:dropped], self.values[:dropped]

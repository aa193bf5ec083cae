"""kraft.version and the voters, by the offset of the record that changed them (KIP-853).

Both take effect when they are appended, not when they commit; so they are cut with the log, and a snapshot needs them
as they were at its end. This history always equals a replay of the newest snapshot and the log after it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from broker.quorum.membership.voters import VoterSet
from broker.quorum.settings import ControlRecord
from protocol.messages.common_records import VotersRecord

T = TypeVar("T")


class IncompatibleVoters(ValueError):
    """A voters record that names an id twice or replaces more than one voter: the log cannot be trusted."""


class Control(NamedTuple):
    """What is in force at an offset.

    `voters_offset` is that of the record that names the voters: -1 if it stems from the 0-0 snapshot, None if there is
    no record and the voters are those of the configuration.
    """

    kraft_version: int
    voters: VoterSet
    voters_offset: int | None


class ControlHistory:
    """Starts with the voters of the configuration (maybe none) at kraft.version 0, which any record overrides."""

    def __init__(self, static: VoterSet, records: Iterable[ControlRecord] = ()) -> None:
        """Raises IncompatibleVoters, as `append` does."""
        self.static = static
        self._versions: _ByOffset[int] = _ByOffset()
        self._voters: _ByOffset[VoterSet] = _ByOffset()
        for record in records:
            self.append(record)

    @property
    def latest(self) -> Control:
        return self._control(len(self._versions.offsets), len(self._voters.offsets))

    def at(self, offset: int) -> Control:
        """What is in force once the record at `offset` has been read: a snapshot that ends at E needs `at(E - 1)`."""
        return self._control(self._versions.count_to(offset), self._voters.count_to(offset))

    def append(self, record: ControlRecord) -> None:
        """Takes what stands at or after the newest offset known.

        Raises IncompatibleVoters; then nothing has changed. The static voters and those of the 0-0 snapshot may be
        followed by any others: they were never agreed upon.
        """
        if record.voters is not None:
            self._append_voters(record.offset, _voters_of(record.voters))
        if record.kraft_version is not None:
            self._versions.append(record.offset, record.kraft_version)

    def truncate_to(self, offset: int) -> None:
        """Forgets what the records from `offset` on changed."""
        self._versions.drop_from(offset)
        self._voters.drop_from(offset)

    def trim(self, start_offset: int) -> None:
        """Forgets what is only needed to answer for offsets before `start_offset - 1`."""
        self._versions.drop_before(start_offset - 1)
        self._voters.drop_before(start_offset - 1)

    def restart(self, records: Iterable[ControlRecord]) -> None:
        """Forgets all, and takes what a snapshot that replaced the log says."""
        fresh = ControlHistory(self.static, records)
        self._versions, self._voters = fresh._versions, fresh._voters

    def _append_voters(self, offset: int, voters: VoterSet) -> None:
        latest = self._voters.latest()
        if latest is not None and latest[0] >= 0 and not latest[1].differs_by_one(voters):
            raise IncompatibleVoters(f"at offset {offset} the voters {latest[1].ids} became {voters.ids} at once")
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
    """Values in the order of their offsets. A value at the newest offset replaces the one that is there."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.values: list[T] = []

    def latest(self) -> tuple[int, T] | None:
        return (self.offsets[-1], self.values[-1]) if self.offsets else None

    def count_to(self, offset: int) -> int:
        """How many values stand at `offset` or before."""
        return bisect_right(self.offsets, offset)

    def append(self, offset: int, value: T) -> None:
        assert not self.offsets or self.offsets[-1] <= offset, (self.offsets[-1], offset)
        self.drop_from(offset)
        self.offsets.append(offset)
        self.values.append(value)

    def drop_from(self, offset: int) -> None:
        kept = bisect_left(self.offsets, offset)
        del self.offsets[kept:], self.values[kept:]

    def drop_before(self, offset: int) -> None:
        """Keeps the value that is in force at `offset`, and all after it."""
        dropped = max(0, self.count_to(offset) - 1)
        del self.offsets[:dropped], self.values[:dropped]

"""The search for a follower's new log start when the leader's records have moved to remote storage (KIP-405, KIP-1023).

Theory of operation
-------------------
The leader has answered OFFSET_MOVED_TO_TIERED_STORAGE: the next records are in remote storage only and are not
replicated. The follower continues where the leader's local log starts, and takes the state of the earlier records
(leader epochs, producers) from the last remote segment before that point. One `RemoteLogAuxStateMachine` is an attempt:

 1. Where does the leader's local log start, and in which epoch? ListOffsets -4. An empty follower may skip all remote
    records, whether local too or not: ListOffsets -6 (`follower.fetch.last.tiered.offset.enable`).
 2. Which epoch wrote the offset before? The found epoch or an earlier one; OffsetForLeaderEpoch of the epoch below
    returns the greatest such epoch and its end: epochs without records leave gaps.
 3. Which segment has that offset in that epoch? Remote metadata may lag: try again later.
 4. Where does the log continue? Behind the segment, as far as the leader agrees with it. A segment that ends right
    before the leader's local log cannot differ. One that reaches further may have been copied from a log that was
    truncated later: the leader is asked for the end of the segment's latest epoch, and where the leader lacks a part,
    for the end of the epoch before, until both have the same. Kafka continues behind the segment in any case; the
    follower then has to truncate below its own local log start, and takes that for the start of the whole log.

The state of the segment is limited to the log that it starts (`leader_epoch_entries`): up to the offset where the log
continues, since later records are fetched or belong to another history; and from the leader's log start offset on. An
earlier entry describes deleted records, and would keep remote segments of such epochs from being deleted as
unreferenced (KIP-405 truncates at the log start offset too, Kafka's code does not).

The driver (`remote_log_aux_state.py`) sends requests and looks up segments. Any failure ends the attempt; the
follower's log is unchanged, and the follower fetches again after a back-off.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from broker.replication.epochs import UNKNOWN_EPOCH, EpochEnd
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch

EARLIEST_LOCAL: Final = -4
EARLIEST_PENDING_UPLOAD: Final = -6


class EpochBegin(Protocol):
    """A leader epoch and its first offset."""

    @property
    def epoch(self) -> LeaderEpoch: ...

    @property
    def start_offset(self) -> int: ...


class Segment(Protocol):
    """A remote segment; `end_offset` is the offset of its last record."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def leader_epochs(self) -> Sequence[EpochBegin]: ...


S = TypeVar("S", bound=Segment)


class AskOffset(NamedTuple):
    """Ask the leader for the offset and epoch of a special timestamp (ListOffsets)."""

    timestamp: int


class AskEpochEnd(NamedTuple):
    """Ask the leader for the end of an epoch or of the greatest epoch below (OffsetForLeaderEpoch)."""

    epoch: LeaderEpoch


class FindSegment(NamedTuple):
    """Find a finished segment that has this offset, written in this epoch."""

    epoch: LeaderEpoch
    offset: int


class Load(NamedTuple, Generic[S]):
    """Fetch the state of the records before `next_offset`, with `segment`, and restart the log at `next_offset`.

    The segment ends at `next_offset`, unless the leader's log differs from the rest of it. `last_epoch` wrote the
    offset before.
    """

    segment: S
    next_offset: int
    log_start_offset: int
    last_epoch: LeaderEpoch


class BeginAt(NamedTuple):
    """Restart the log at `offset` without state: the leader's log has no remote records."""

    offset: int


class GiveUp(NamedTuple):
    """End the attempt and try again later. `is_failure`: remote storage is inconsistent or incomplete."""

    reason: str
    is_failure: bool = False


class Fenced(NamedTuple):
    """End the attempt: the leader epoch is over."""


Step: TypeAlias = AskOffset | AskEpochEnd | FindSegment | Load[S] | BeginAt | GiveUp | Fenced


class RemoteLogAuxStateMachine(Generic[S]):
    """One attempt. Feed the result of each step to the `on_…` method of that step, which returns the next step."""

    def __init__(self, leader_log_start: int, *, skips_remote: bool) -> None:
        """`skips_remote`: start behind all remote records if the leader knows their end."""
        self._leader_log_start = leader_log_start
        self._skips_remote = skips_remote
        self._begin = -1
        self._begin_epoch = self._target = self._asked = UNKNOWN_EPOCH
        self._target_end: int | None = None
        self._segment: S | None = None

    def begin(self) -> AskOffset:
        return AskOffset(EARLIEST_PENDING_UPLOAD if self._skips_remote else EARLIEST_LOCAL)

    def on_offset(self, code: int, offset: int, epoch: LeaderEpoch) -> Step[S]:
        """Take the offset at which the leader lets the follower start."""
        is_known = offset > self._leader_log_start if code == ErrorCode.NONE else code != ErrorCode.UNSUPPORTED_VERSION
        if self._skips_remote and not is_known:
            self._skips_remote = False  # the leader does not know that end, or not yet
            return self.begin()
        if code:
            return _refused(code)
        if 0 <= offset <= self._leader_log_start:
            return BeginAt(offset)
        if offset < 0 or epoch < 0:
            return GiveUp("the leader does not know its local log start offset")
        self._begin, self._begin_epoch = offset, epoch
        return self._ask(LeaderEpoch(epoch - 1)) if epoch > 0 else self._find(epoch)

    def on_epoch_end(self, code: int, end: EpochEnd) -> Step[S]:
        """Take the leader's end of the requested epoch or of the greatest epoch below."""
        if code:
            return _refused(code)
        if self._segment is not None:
            return self._find_common_epoch(self._segment, end)
        if end.is_known and end.end_offset >= self._begin:
            self._target_end = end.end_offset
            return self._find(end.epoch)
        return self._find(self._begin_epoch)

    def on_segment(self, segment: S | None) -> Step[S]:
        """Take the segment that was found, None if there is none."""
        if segment is None:
            wanted = f"offset {self._begin - 1} of epoch {self._target}"
            return GiveUp(f"no segment with {wanted} is known yet", is_failure=True)
        if not segment.start_offset < self._begin <= segment.end_offset + 1:
            return GiveUp(f"{segment} does not contain offset {self._begin - 1}", is_failure=True)
        if segment.end_offset < self._begin:
            return self._load(segment, self._begin)
        self._segment = segment
        latest = segment.leader_epochs[-1].epoch
        if latest == self._target and self._target_end is not None:
            return self._load_common_part(segment, self._target_end)
        return self._ask(latest)

    def _find(self, epoch: LeaderEpoch) -> FindSegment:
        self._target = epoch
        return FindSegment(epoch, self._begin - 1)

    def _ask(self, epoch: LeaderEpoch) -> AskEpochEnd:
        self._asked = epoch
        return AskEpochEnd(epoch)

    def _find_common_epoch(self, segment: S, end: EpochEnd) -> Step[S]:
        """Find the latest epoch that the segment and the leader share."""
        if end.epoch < self._target:
            return GiveUp("the leader's history has changed meanwhile")
        if end.epoch == self._asked:
            return self._load_common_part(segment, end.end_offset)
        return self._ask(max(each.epoch for each in segment.leader_epochs if each.epoch <= end.epoch))

    def _load_common_part(self, segment: S, leader_end: int) -> Step[S]:
        """Limit the segment to its records that the leader's log has too."""
        asked = self._asked if self._asked >= self._target else self._target
        later = [each.start_offset for each in segment.leader_epochs if each.epoch > asked]
        end = min([segment.end_offset + 1, *later])
        next_offset = min(end, leader_end)
        if next_offset < self._begin:
            return GiveUp("the leader's history has changed meanwhile")
        return self._load(segment, next_offset)

    def _load(self, segment: S, next_offset: int) -> Step[S]:
        writers = [each.epoch for each in segment.leader_epochs if each.start_offset < next_offset]
        if not writers or self._leader_log_start >= next_offset:
            return GiveUp(f"{segment} does not fit a log from {self._leader_log_start}", is_failure=True)
        return Load(segment, next_offset, self._leader_log_start, writers[-1])


def leader_epoch_entries(entries: Iterable[tuple[LeaderEpoch, int]], load: Load[S]) -> list[tuple[LeaderEpoch, int]]:
    """Return the entries (epoch, first offset) of the log that `load` describes, out of the segment's entries.

    Raises ValueError if the entries belong to another segment.
    """
    kept = [(epoch, start) for epoch, start in entries if start < load.next_offset]
    if not kept or kept[-1][0] != load.last_epoch:
        raise ValueError(f"the leader epochs {kept} of {load.segment} do not end with {load.last_epoch}")
    first = load.log_start_offset
    spanning = [epoch for epoch, start in kept if start <= first][-1:]
    return [(epoch, first) for epoch in spanning] + [entry for entry in kept if entry[1] > first]


def _refused(code: int) -> GiveUp | Fenced:
    return Fenced() if code == ErrorCode.FENCED_LEADER_EPOCH else GiveUp(f"the leader answered error {code}")

"""How a follower finds out where to begin when its leader's records have moved to remote storage (KIP-405, KIP-1023).

Theory of operation
-------------------
The leader has answered OFFSET_MOVED_TO_TIERED_STORAGE: what the follower needs next is remote alone, and is not
replicated. The follower goes on where the leader's own disk begins, and takes what it must know of the records before
(leader epochs, producers) from the last remote segment before that point. One `TierStateMachine` is one such attempt:

 1. Where does the leader's disk begin, and in which epoch? ListOffsets -4. An empty follower may leave out all that is
    remote, local or not: ListOffsets -6 (`follower.fetch.last.tiered.offset.enable`).
 2. Which epoch wrote the offset before? The epoch found, or an earlier one; OffsetForLeaderEpoch of the epoch below
    says where the greatest such epoch ended, and which that is: epochs without records leave gaps.
 3. Which segment holds that offset in that epoch? Remote metadata may lag: try again later.
 4. Where to go on? Behind the segment, as far as the leader agrees with it. A segment that ends right before the
    leader's disk begins has nothing that could differ. One that reaches further may have been copied from a log that
    was cut later: the leader is asked about its latest epoch, and where it does not have all of that, about the one
    before, until both have the same. Kafka goes on behind the segment whatever the leader has; the follower then has to
    cut below the start of its own disk, and takes that for the start of the whole log.

The state that was fetched with the segment is cut to what it is to stand for (`history`): up to where the log goes on,
as all above is either the same in the records that will be fetched or of another history; and from the leader's log
start on, as in the leader's own log. An earlier entry speaks of records that exist no more, and would keep segments of
such epochs from being cleaned up as unreferenced (KIP-405 cuts at the log start as well, Kafka's code does not).

The driver (`remote_log_aux_state`) asks leaders and looks up segments. Whatever goes wrong ends the
attempt; the follower, whose log is as it was, fetches again after a back-off and may hear the same.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from broker.replication.epochs import EpochEnd
from protocol.errors import ErrorCode

EARLIEST_LOCAL: Final = -4
EARLIEST_PENDING_UPLOAD: Final = -6


class EpochBegin(Protocol):
    """A leader epoch, and the first offset that it wrote."""

    @property
    def epoch(self) -> int: ...

    @property
    def start_offset(self) -> int: ...


class Segment(Protocol):
    """A remote segment; `end_offset` is its last."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def leader_epochs(self) -> Sequence[EpochBegin]: ...


S = TypeVar("S", bound=Segment)


class AskOffset(NamedTuple):
    """Ask the leader which offset a special timestamp stands for, and of which epoch it is (ListOffsets)."""

    timestamp: int


class AskEpochEnd(NamedTuple):
    """Ask the leader where an epoch ended, or the greatest below it (OffsetForLeaderEpoch)."""

    epoch: int


class FindSegment(NamedTuple):
    """Find a finished segment that holds this offset as that epoch wrote it."""

    epoch: int
    offset: int


class Load(NamedTuple, Generic[S]):
    """Fetch what is known of the records before `next_offset` with `segment`, and begin there.

    The segment ends there, unless the leader does not agree with the rest of it. `last_epoch` wrote the offset before.
    """

    segment: S
    next_offset: int
    log_start_offset: int
    last_epoch: int


class BeginAt(NamedTuple):
    """Nothing remote is left of the leader's log: begin there with nothing."""

    offset: int


class GiveUp(NamedTuple):
    """Try again later. `is_failure`: something is wrong with what remote storage says."""

    reason: str
    is_failure: bool = False


class Fenced(NamedTuple):
    """The leader's epoch is over."""


Step: TypeAlias = AskOffset | AskEpochEnd | FindSegment | Load[S] | BeginAt | GiveUp | Fenced


class TierStateMachine(Generic[S]):
    """One attempt. Feed: the `on_…` method that belongs to the step that was taken; each gives the next step."""

    def __init__(self, leader_log_start: int, *, skips_remote: bool) -> None:
        """`skips_remote`: begin behind all that is remote, should the leader know where that is."""
        self._leader_log_start = leader_log_start
        self._skips_remote = skips_remote
        self._begin = self._begin_epoch = self._target = -1
        self._target_end: int | None = None
        self._segment: S | None = None
        self._asked = -1

    def begin(self) -> AskOffset:
        return AskOffset(EARLIEST_PENDING_UPLOAD if self._skips_remote else EARLIEST_LOCAL)

    def on_offset(self, code: int, offset: int, epoch: int) -> Step[S]:
        """Where the leader has the follower begin."""
        is_known = offset > self._leader_log_start if code == ErrorCode.NONE else code != ErrorCode.UNSUPPORTED_VERSION
        if self._skips_remote and not is_known:
            self._skips_remote = False  # the leader does not know it, or not yet
            return self.begin()
        if code:
            return _refused(code)
        if 0 <= offset <= self._leader_log_start:
            return BeginAt(offset)
        if offset < 0 or epoch < 0:
            return GiveUp("the leader does not know where its disk begins")
        self._begin, self._begin_epoch = offset, epoch
        if epoch == 0:
            return self._find(0)
        return self._ask(epoch - 1)

    def on_epoch_end(self, code: int, end: EpochEnd) -> Step[S]:
        """The leader's end of the epoch that was asked for, or of the greatest below it."""
        if code:
            return _refused(code)
        if self._segment is not None:
            return self._agree(self._segment, end)
        if end.is_known and end.end_offset >= self._begin:
            self._target_end = end.end_offset
            return self._find(end.epoch)
        return self._find(self._begin_epoch)

    def on_segment(self, segment: S | None) -> Step[S]:
        """The segment, if there is one."""
        if segment is None:
            wanted = f"offset {self._begin - 1} of epoch {self._target}"
            return GiveUp(f"no segment with {wanted} is known yet", is_failure=True)
        if not segment.start_offset < self._begin <= segment.end_offset + 1:
            return GiveUp(f"{segment} does not hold offset {self._begin - 1}", is_failure=True)
        if segment.end_offset < self._begin:
            return self._load(segment, self._begin)
        self._segment = segment
        latest = segment.leader_epochs[-1].epoch
        if latest == self._target and self._target_end is not None:
            return self._go_on_within(segment, self._target_end)
        return self._ask(latest)

    def _find(self, epoch: int) -> FindSegment:
        self._target = epoch
        return FindSegment(epoch, self._begin - 1)

    def _ask(self, epoch: int) -> AskEpochEnd:
        self._asked = epoch
        return AskEpochEnd(epoch)

    def _agree(self, segment: S, end: EpochEnd) -> Step[S]:
        """Down the epochs of the segment to the latest that the leader has too."""
        if end.epoch < self._target:
            return GiveUp("the leader has another history by now")
        if end.epoch == self._asked:
            return self._go_on_within(segment, end.end_offset)
        return self._ask(max(each.epoch for each in segment.leader_epochs if each.epoch <= end.epoch))

    def _go_on_within(self, segment: S, leader_end: int) -> Step[S]:
        """The asked epoch is in both; what follows it in the segment is not the leader's."""
        asked = self._asked if self._asked >= self._target else self._target
        later = [each.start_offset for each in segment.leader_epochs if each.epoch > asked]
        end = min([segment.end_offset + 1, *later])
        next_offset = min(end, leader_end)
        if next_offset < self._begin:
            return GiveUp("the leader has another history by now")
        return self._load(segment, next_offset)

    def _load(self, segment: S, next_offset: int) -> Step[S]:
        writers = [each.epoch for each in segment.leader_epochs if each.start_offset < next_offset]
        if not writers or self._leader_log_start >= next_offset:
            return GiveUp(f"{segment} does not fit a log from {self._leader_log_start}", is_failure=True)
        return Load(segment, next_offset, self._leader_log_start, writers[-1])


def history(entries: Iterable[tuple[int, int]], load: Load[S]) -> list[tuple[int, int]]:
    """(epoch, first offset) of what wrote the log that `load` stands for, out of the entries that came with its
    segment. Raises ValueError if these are of another segment.
    """
    kept = [(epoch, start) for epoch, start in entries if start < load.next_offset]
    if not kept or kept[-1][0] != load.last_epoch:
        raise ValueError(f"the leader epochs {kept} of {load.segment} do not end with {load.last_epoch}")
    first = load.log_start_offset
    spanning = [epoch for epoch, start in kept if start <= first][-1:]
    return [(epoch, first) for epoch in spanning] + [entry for entry in kept if entry[1] > first]


def _refused(code: int) -> GiveUp | Fenced:
    return Fenced() if code == ErrorCode.FENCED_LEADER_EPOCH else GiveUp(f"the leader answered error {code}")

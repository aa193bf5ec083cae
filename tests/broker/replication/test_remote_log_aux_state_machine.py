"""The search for a follower's log start behind remote records, step by step (`remote_log_aux_state_machine.py`)."""

from dataclasses import dataclass
from random import Random

import pytest

from broker.replication.epochs import EpochEnd
from broker.replication.remote_log_aux_state_machine import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    AskEpochEnd,
    AskOffset,
    BeginAt,
    Fenced,
    FindSegment,
    GiveUp,
    Load,
    RemoteLogAuxStateMachine,
    Step,
    leader_epoch_entries,
)
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from storage.directories.checkpoints import LeaderEpochEntry


@dataclass(frozen=True)
class Remote:
    start_offset: int
    end_offset: int
    leader_epochs: tuple[LeaderEpochEntry, ...]


def segment(start: int, end: int, **epochs: int) -> Remote:
    """`segment(3, 5, e1=3, e2=5)`: epoch 1 from offset 3, epoch 2 from offset 5."""
    return Remote(
        start, end, tuple(LeaderEpochEntry(LeaderEpoch(int(name[1:])), offset) for name, offset in epochs.items())
    )


class Leader:
    """A leader with this history; `queried` lists the epochs of queries."""

    def __init__(self, first_local: int, end: int, *epochs: tuple[int, int], log_start: int = 0) -> None:
        self.first_local = first_local
        self.end = end
        self.epochs = epochs
        self.log_start = log_start
        self.queried: list[int] = []

    def epoch_at(self, offset: int) -> int:
        return [epoch for epoch, start in self.epochs if start <= offset][-1]

    def end_of(self, epoch: int) -> EpochEnd:
        self.queried.append(epoch)
        known = [each for each in self.epochs if each[0] <= epoch]
        if not known:
            return EpochEnd(LeaderEpoch(epoch), self.epochs[0][1])
        later = [start for each, start in self.epochs if each > epoch]
        return EpochEnd(LeaderEpoch(known[-1][0]), later[0] if later else self.end)

    def build(self, *segments: Remote) -> Step[Remote]:
        """Run an attempt to its last step: Load, BeginAt, or GiveUp."""
        state: RemoteLogAuxStateMachine[Remote] = RemoteLogAuxStateMachine(self.log_start, skips_remote=False)
        assert state.begin() == AskOffset(EARLIEST_LOCAL)
        step = state.on_offset(0, self.first_local, LeaderEpoch(self.epoch_at(self.first_local)))
        while True:
            match step:
                case AskEpochEnd(epoch):
                    step = state.on_epoch_end(0, self.end_of(epoch))
                case FindSegment(epoch, offset):
                    step = state.on_segment(_find(segments, epoch, offset))
                case _:
                    return step


def _find(segments: tuple[Remote, ...], epoch: int, offset: int) -> Remote | None:
    for each in segments:
        writers = [begin.epoch for begin in each.leader_epochs if begin.start_offset <= offset]
        if each.start_offset <= offset <= each.end_offset and writers[-1] == epoch:
            return each
    return None


# ---- epoch and segment


def test_epoch_0_needs_no_epoch_query() -> None:
    leader, u1 = Leader(3, 9, (0, 0)), segment(0, 2, e0=0)
    assert leader.build(u1) == Load(u1, 3, 0, LeaderEpoch(0))
    assert leader.queried == []


def test_offset_before_an_epoch_start_belongs_to_the_former_epoch() -> None:
    leader, u1 = Leader(3, 9, (0, 0), (1, 3)), segment(0, 2, e0=0)
    assert leader.build(u1) == Load(u1, 3, 0, LeaderEpoch(0))
    assert leader.queried == [0]


def test_offset_after_an_epoch_start_belongs_to_that_epoch() -> None:
    leader, u3 = Leader(9, 12, (0, 0), (1, 3), (2, 5), (3, 7)), segment(6, 8, e2=6, e3=7)
    assert leader.build(u3) == Load(u3, 9, 0, LeaderEpoch(3))
    assert leader.queried == [2]


def test_epochs_without_records_leave_gaps() -> None:
    leader, u = Leader(90, 99, (0, 20), (1, 85), (3, 90), (4, 98), log_start=20), segment(80, 89, e0=80, e1=85)
    assert leader.build(u) == Load(u, 90, 20, LeaderEpoch(1))
    assert leader.queried == [2]


def test_former_epoch_may_have_ended_long_before() -> None:
    leader, u = Leader(9, 12, (1, 0), (5, 4)), segment(4, 8, e5=4)
    assert leader.build(u) == Load(u, 9, 0, LeaderEpoch(5))
    assert leader.queried == [4]


def test_missing_segment_ends_the_attempt() -> None:
    step = Leader(3, 9, (0, 0)).build()
    assert isinstance(step, GiveUp)
    assert step.is_failure
    assert "offset 2 of epoch 0" in step.reason


@pytest.mark.parametrize("wrong", [segment(3, 5, e0=3), segment(0, 1, e0=0)])
def test_segment_without_the_offset_is_refused(wrong: Remote) -> None:
    state: RemoteLogAuxStateMachine[Remote] = RemoteLogAuxStateMachine(0, skips_remote=False)
    state.on_offset(0, 3, LeaderEpoch(0))
    step = state.on_segment(wrong)
    assert isinstance(step, GiveUp)
    assert step.is_failure


# ---- segments that reach beyond the leader's local log start


def test_segment_that_the_leader_agrees_with_counts_to_its_end() -> None:
    """Another leader, with other segment bounds, copied the segment."""
    leader, u = Leader(5, 20, (1, 0), (2, 7)), segment(2, 9, e1=2, e2=7)
    assert leader.build(u) == Load(u, 10, 0, LeaderEpoch(2))
    assert leader.queried == [0, 2]


def test_segment_counts_up_to_the_leaders_end_of_the_same_epoch() -> None:
    """An unclean leader truncated epoch 1 to 5 before it began its own epoch; the segment has more of epoch 1."""
    leader, u = Leader(5, 8, (1, 0), (2, 5)), segment(0, 9, e1=0)
    assert leader.build(u) == Load(u, 5, 0, LeaderEpoch(1))
    assert leader.queried == [1], "the leader is not queried twice"


def test_segment_counts_up_to_the_last_common_epoch() -> None:
    leader, u = Leader(5, 20, (1, 0), (3, 8)), segment(2, 9, e1=2, e2=7)
    assert leader.build(u) == Load(u, 7, 0, LeaderEpoch(1))
    assert leader.queried == [0, 2, 1]


def test_leader_may_have_an_epoch_that_the_segment_lacks() -> None:
    leader, u = Leader(4, 20, (1, 0), (2, 6), (4, 9)), segment(0, 9, e1=0, e3=7)
    assert leader.build(u) == Load(u, 6, 0, LeaderEpoch(1))
    assert leader.queried == [0, 3, 1]


def test_changed_leader_history_ends_the_attempt() -> None:
    state: RemoteLogAuxStateMachine[Remote] = RemoteLogAuxStateMachine(0, skips_remote=False)
    state.on_offset(0, 5, LeaderEpoch(3))
    assert state.on_epoch_end(0, EpochEnd(LeaderEpoch(2), 5)) == FindSegment(LeaderEpoch(2), 4)
    assert state.on_segment(segment(0, 9, e2=0, e4=8)) == AskEpochEnd(LeaderEpoch(4))
    assert isinstance(state.on_epoch_end(0, EpochEnd(LeaderEpoch(1), 2)), GiveUp)


# ---- the leader's local log start


def test_leader_without_remote_records_restarts_the_follower_without_state() -> None:
    assert Leader(7, 9, (1, 7), log_start=7).build() == BeginAt(7)


@pytest.mark.parametrize(
    ("code", "offset", "epoch"),
    [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1), (ErrorCode.NETWORK_EXCEPTION, -1, -1), (0, -1, -1), (0, 5, -1)],
)
def test_unknown_local_log_start_ends_the_attempt(code: int, offset: int, epoch: int) -> None:
    step = RemoteLogAuxStateMachine[Remote](0, skips_remote=False).on_offset(code, offset, LeaderEpoch(epoch))
    assert isinstance(step, GiveUp)
    assert not step.is_failure


def test_fenced_leader_epoch_ends_the_attempt() -> None:
    state: RemoteLogAuxStateMachine[Remote] = RemoteLogAuxStateMachine(0, skips_remote=False)
    assert state.on_offset(ErrorCode.FENCED_LEADER_EPOCH, -1, LeaderEpoch(-1)) == Fenced()
    state.on_offset(0, 5, LeaderEpoch(2))
    assert state.on_epoch_end(ErrorCode.FENCED_LEADER_EPOCH, EpochEnd(LeaderEpoch(-1), -1)) == Fenced()
    assert isinstance(state.on_epoch_end(ErrorCode.UNKNOWN_LEADER_EPOCH, EpochEnd(LeaderEpoch(-1), -1)), GiveUp)


# ---- KIP-1023


def test_skipping_follower_queries_the_earliest_pending_upload() -> None:
    state: RemoteLogAuxStateMachine[Remote] = RemoteLogAuxStateMachine(0, skips_remote=True)
    assert state.begin() == AskOffset(EARLIEST_PENDING_UPLOAD)
    assert state.on_offset(0, 8, LeaderEpoch(0)) == FindSegment(LeaderEpoch(0), 7)
    u = segment(6, 7, e0=6)
    assert state.on_segment(u) == Load(u, 8, 0, LeaderEpoch(0))


@pytest.mark.parametrize(
    ("code", "offset"), [(ErrorCode.UNSUPPORTED_VERSION, -1), (0, -1), (0, 2)], ids=["older", "unknown", "nothing"]
)
def test_skipping_follower_falls_back_to_the_local_log_start(code: int, offset: int) -> None:
    state: RemoteLogAuxStateMachine[Remote] = RemoteLogAuxStateMachine(2, skips_remote=True)
    assert state.on_offset(code, offset, LeaderEpoch(1)) == AskOffset(EARLIEST_LOCAL)
    assert state.on_offset(0, 8, LeaderEpoch(0)) == FindSegment(LeaderEpoch(0), 7)
    assert isinstance(
        RemoteLogAuxStateMachine[Remote](2, skips_remote=False).on_offset(code, -1, LeaderEpoch(1)), GiveUp
    )


# ---- leader epoch entries


ENTRIES = [(LeaderEpoch(epoch), at) for epoch, at in ((0, 0), (1, 3), (2, 5), (3, 7), (4, 12))]


@pytest.mark.parametrize(
    ("log_start", "next_offset", "last_epoch", "expected"),
    [
        (0, 9, 3, [(0, 0), (1, 3), (2, 5), (3, 7)]),
        (4, 9, 3, [(1, 4), (2, 5), (3, 7)]),
        (5, 7, 2, [(2, 5)]),
        (8, 9, 3, [(3, 8)]),
    ],
)
def test_leader_epoch_entries_are_limited_to_the_log(
    log_start: int, next_offset: int, last_epoch: int, expected: list[tuple[int, int]]
) -> None:
    load = Load(segment(0, 11, e0=0), next_offset, log_start, LeaderEpoch(last_epoch))
    assert leader_epoch_entries(ENTRIES, load) == expected


def test_leader_epoch_entries_may_begin_after_the_log_start() -> None:
    """The log is older than leader epochs: the epoch of its first records is unknown."""
    assert leader_epoch_entries([(LeaderEpoch(2), 5)], Load(segment(0, 8, e2=5), 9, 0, LeaderEpoch(2))) == [
        (LeaderEpoch(2), 5)
    ]


@pytest.mark.parametrize("entries", [[], [(0, 0), (1, 3)], [(3, 9)]])
def test_leader_epoch_entries_of_another_segment_are_refused(entries: list[tuple[LeaderEpoch, int]]) -> None:
    with pytest.raises(ValueError, match="do not end with 3"):
        leader_epoch_entries(entries, Load(segment(6, 8, e3=6), 9, 0, LeaderEpoch(3)))


# ---- any two histories


class History:
    """A log by the epoch of each offset; it may continue an earlier log, truncated somewhere."""

    def __init__(self, writers: list[int]) -> None:
        self.writers = writers

    def grown(self, random: Random, epoch: int) -> "History":
        """An election: the end of the log is lost, uncleanly, and records follow in a new epoch."""
        kept = self.writers[: random.randint(max(0, len(self.writers) - 5), len(self.writers))]
        return History(kept + [epoch] * random.randint(0, 5))

    @property
    def epochs(self) -> list[tuple[LeaderEpoch, int]]:
        return [
            (LeaderEpoch(epoch), at)
            for at, epoch in enumerate(self.writers)
            if at == 0 or self.writers[at - 1] != epoch
        ]

    def segment(self, start: int, end: int) -> Remote:
        within = [(epoch, at) for epoch, at in self.epochs if start < at <= end]
        return Remote(
            start,
            end,
            tuple(LeaderEpochEntry(LeaderEpoch(number), at) for number, at in [(self.writers[start], start), *within]),
        )

    def shared_with(self, other: "History") -> int:
        """The end of the common part: by epochs, since an epoch has one leader, which writes each offset once."""
        pairs = zip(self.writers, other.writers, strict=False)
        return next(
            (at for at, (one, two) in enumerate(pairs) if one != two), min(len(self.writers), len(other.writers))
        )


def two_histories(random: Random) -> tuple[History, History, int]:
    """Return a leader's log, a copied log, and the end of their common part, which is not empty."""
    while True:
        histories = [History([0] * random.randint(1, 6))]
        for epoch in range(1, random.randint(2, 8)):
            histories.append(random.choice(histories).grown(random, epoch))
        leading, copied = random.choice(histories), random.choice(histories)
        shared = leading.shared_with(copied)
        if shared and len(leading.writers) > 1:
            return leading, copied, shared


@pytest.mark.parametrize("seed", range(300))
def test_follower_takes_the_common_part_of_a_segment_only(seed: int) -> None:
    """Compare with the definition: the two histories offset by offset."""
    random = Random(seed)
    leading, copied, shared = two_histories(random)
    first_local = random.randint(1, min(shared, len(leading.writers) - 1))
    start = random.randint(0, first_local - 1)
    end = random.randint(first_local - 1, len(copied.writers) - 1)
    segment = copied.segment(start, end)
    step = Leader(first_local, len(leading.writers), *leading.epochs).build(segment)
    expected = min(shared, end + 1)
    assert step == Load(segment, expected, 0, LeaderEpoch(copied.writers[expected - 1]))
    assert leader_epoch_entries(copied.epochs, step) == [entry for entry in leading.epochs if entry[1] < expected]

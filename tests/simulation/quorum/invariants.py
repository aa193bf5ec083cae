"""Invariants that hold after every event. One class per invariant; a planted bug proves that each can fail.

`on_event` is called after every event that changed a node's state or disk, the other hooks at the moment of a request,
response, write, removal or announcement. Hooks raise Violation.
"""

from collections.abc import Sequence
from typing import Final, NoReturn

from broker.quorum.identity import ReplicaKey, SnapshotId
from broker.quorum.membership.voters import VoterSet
from broker.quorum.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from protocol.errors import ErrorCode
from tests.simulation.quorum.disk import SimulatedDisk
from tests.simulation.quorum.history import Cluster, Observed, Subject
from tests.simulation.simulator import Violation
from tests.simulation.watched_disk import LoggedBatch


class Invariant:
    """A statement that must always hold."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def fail(self, text: str) -> NoReturn:
        raise Violation(type(self).__name__, text)

    def on_start(self, node: Subject) -> None:
        """A process starts: its former state in memory is lost."""

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        """A running node changed; `before` is None for the first observation of a process."""

    def on_request(self, node: Subject, request: Request) -> None:
        """A node sends a request."""

    def on_response(self, node: Subject, request: Request, response: Response) -> None:
        """A node responds to a request."""

    def on_request_arrives(self, node: Subject, request: Request) -> None:
        """A request reaches a node, which handles it next."""

    def on_response_arrives(self, node: Subject, request: Request, response: Response) -> None:
        """A response reaches the node that sent the request, which handles it next."""

    def on_removed(self, node: Subject, batches: Sequence[LoggedBatch]) -> None:
        """A running node truncated or deleted batches of its log."""

    def on_snapshot(self, node: Subject, snapshot_id: SnapshotId, content: bytes) -> None:
        """A snapshot file received its final name."""

    def on_committed(self, batches: Sequence[LoggedBatch]) -> None:
        """Further batches are committed."""

    def on_state(self, node: Subject, offset: int, digest: bytes) -> None:
        """A node's state machine has applied everything below an offset."""

    def on_acknowledged(self, node: Subject, base_offset: int, epoch: int) -> None:
        """A proposer learns that its batch is committed."""

    def on_load(self, node: Subject, snapshot_id: SnapshotId) -> None:
        """A node's state machine has to load a snapshot."""


class OneLeaderPerEpoch(Invariant):
    """At most one leader per epoch, by the state of all nodes and their disks."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._leaders: dict[int, int] = {}

    @property
    def leaders(self) -> dict[int, int]:
        """Leaders by epoch."""
        return self._leaders

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if now.leader_id is not None and (
            before is None or before.epoch != now.epoch or before.leader_id != now.leader_id
        ):
            self._note(now.epoch, now.leader_id, node)
        if before is None or before.disk_version != now.disk_version:
            persisted = node.disk.election()
            if persisted.leader_id >= 0:
                self._note(persisted.epoch, persisted.leader_id, node)

    def _note(self, epoch: int, leader_id: int, node: Subject) -> None:
        known = self._leaders.setdefault(epoch, leader_id)
        if known != leader_id:
            self.fail(f"epoch {epoch} has the leaders {known} and {leader_id}, the latter according to node {node.id}")


class EpochsNeverFall(Invariant):
    """The epoch of a node never decreases, also across crashes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._persisted: dict[ReplicaKey, int] = {}

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if before is not None and now.epoch < before.epoch:
            self.fail(f"node {node.id} went from epoch {before.epoch} to {now.epoch}")
        if before is None or before.disk_version != now.disk_version:
            epoch = node.disk.election().epoch
            if epoch < self._persisted.get(node.key, 0):
                self.fail(f"node {node.id} persisted epoch {epoch} after {self._persisted[node.key]}")
            self._persisted[node.key] = epoch
        if before is None and now.epoch < self._persisted.get(node.key, 0):
            self.fail(f"node {node.id} starts in epoch {now.epoch}, its disk has epoch {self._persisted[node.key]}")


class HighWatermarksNeverFall(Invariant):
    """The high watermark of a running node never decreases, nor does that of leaders from epoch to epoch."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._reached: dict[int, int] = {}

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if before is None or before.high_watermark == now.high_watermark:
            return
        own, reached = before.high_watermark, now.high_watermark
        if reached is None or (own is not None and reached < own):
            self.fail(f"the high watermark of node {node.id} went from {own} to {reached}")
        if now.is_leader and before.is_leader and before.epoch == now.epoch:
            self._check_leader(node, reached, now.epoch)

    def _check_leader(self, node: Subject, reached: int, epoch: int) -> None:
        earlier = max((offset for known, offset in self._reached.items() if known < epoch), default=0)
        if reached < earlier:
            self.fail(f"leader {node.id} of epoch {epoch} has high watermark {reached}, an earlier one had {earlier}")
        self._reached[epoch] = reached


class HighWatermarkIsOnMajority(Invariant):
    """When a leader advances the high watermark, a majority of its voters holds all records below it durably."""

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if before is None or now.decided is None or before.decided == now.decided:
            return
        if not now.is_leader or not before.is_leader or before.epoch != now.epoch:
            return
        sets = [now.voters] if before.voters is now.voters else [now.voters, before.voters]
        if not any(self._is_held(voters, now.decided, node.disk) for voters in sets):
            held = {voter.key.id: self._durable_end(voter.key) for voter in now.voters}
            self.fail(f"leader {node.id} raised the high watermark to {now.decided}; durable: {held}")

    def _is_held(self, voters: VoterSet, end: int, leader: SimulatedDisk) -> bool:
        wanted = leader.batch_ending_at(end)
        holders = sum(
            disk is not None and self._holds(disk, end, wanted)
            for disk in (self.cluster.disk_of(voter.key) for voter in voters)
        )
        return holders >= voters.majority

    def _holds(self, disk: SimulatedDisk, end: int, wanted: LoggedBatch | None) -> bool:
        found = disk.batch_ending_at(end, durable=True)
        if found is not None:
            return wanted is None or found.is_same(wanted)
        return any(each.end_offset >= end for each in disk.snapshot_ids(durable=True))

    def _durable_end(self, key: ReplicaKey) -> int | None:
        disk = self.cluster.disk_of(key)
        return None if disk is None else disk.durable_end


class CommitsAreOfTheOwnEpoch(Invariant):
    """A leader commits no record before one of its own epoch is on a majority (Raft, figure 8)."""

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if before is None or now.decided is None or before.decided == now.decided:
            return
        if not now.is_leader or not before.is_leader or before.epoch != now.epoch:
            return
        last = node.disk.batch_ending_at(now.decided)
        if last is not None and last.epoch != now.epoch:
            self.fail(f"leader {node.id} of epoch {now.epoch} commits up to {_said(last)}")


class LogsMatchBelowHighWatermark(Invariant):
    """Below its high watermark, a node's log equals the committed log."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._checked: dict[int, int] = {}

    def on_start(self, node: Subject) -> None:
        self._checked[node.id] = 0

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if now.high_watermark is None:
            return
        checked = max(self._checked.get(node.id, 0), now.log_start_offset)
        if now.high_watermark > checked:
            self._checked[node.id] = self._check(node, checked, now)

    def _check(self, node: Subject, start: int, now: Observed) -> int:
        assert now.high_watermark is not None
        history = self.cluster.history
        batches = [batch for batch in node.disk.batches_between(start, now.high_watermark)]
        fresh = []
        for batch in batches:
            if batch.end_offset > now.high_watermark:
                self.fail(f"the high watermark {now.high_watermark} of node {node.id} splits {_said(batch)}")
            if batch.base_offset >= history.end:
                fresh.append(batch)
            elif (committed := history.at(batch.base_offset)) is None or not committed.is_same(batch):
                self.fail(f"node {node.id} has {_said(batch)} where {_said(committed)} was committed")
        if fresh:
            self._extend(node, fresh, now)
        return batches[-1].end_offset if batches else start

    def _extend(self, node: Subject, fresh: list[LoggedBatch], now: Observed) -> None:
        history = self.cluster.history
        if fresh[0].base_offset != history.end:
            self.fail(f"node {node.id} skips from {history.end} to {fresh[0].base_offset}")
        history.extend(fresh, now.epoch)
        self.cluster.report_committed(fresh)


class LeadersHoldWhatWasCommitted(Invariant):
    """A new leader holds every batch that was committed, and so acknowledged, in earlier epochs."""

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if not now.is_leader or (before is not None and before.is_leader and before.epoch == now.epoch):
            return
        last = self.cluster.history.committed_before(now.epoch)
        if last is None or last.end_offset <= now.log_start_offset:
            return
        own = node.disk.batch_ending_at(last.end_offset)
        if own is None or not own.is_same(last):
            self.fail(f"leader {node.id} of epoch {now.epoch} has {_said(own)} for the committed {_said(last)}")


class AcknowledgedIsNeverLost(Invariant):
    """Every acknowledged batch is in the committed log, which every later leader holds."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._unchecked: list[tuple[int, int]] = []

    def on_acknowledged(self, node: Subject, base_offset: int, epoch: int) -> None:
        self._unchecked.append((base_offset, epoch))

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        """Defer the check: the acknowledged batch may become committed in the same event."""
        while self._unchecked:
            base_offset, epoch = self._unchecked.pop()
            committed = self.cluster.history.at(base_offset)
            if committed is None or committed.epoch != epoch:
                self.fail(
                    f"node {node.id} acknowledged {base_offset} of epoch {epoch}, committed is {_said(committed)}"
                )


class CommittedIsNeverRemoved(Invariant):
    """A running node removes committed batches only below a snapshot."""

    def on_removed(self, node: Subject, batches: Sequence[LoggedBatch]) -> None:
        snapshots = [each.end_offset for each in node.disk.snapshot_ids(durable=True)]
        newest = max(snapshots, default=0)
        for batch in batches:
            committed = self.cluster.history.at(batch.base_offset)
            if committed is not None and committed.is_same(batch) and batch.end_offset > newest:
                self.fail(f"node {node.id} removes the committed {_said(batch)}; its newest snapshot ends at {newest}")


class SnapshotAtEveryLogStart(Invariant):
    """A log that does not start at 0 starts at the end of a durable snapshot, and no log starts above its high
    watermark.
    """

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if now.log_start_offset == 0 or (
            before is not None
            and before.log_start_offset == now.log_start_offset
            and before.disk_version == now.disk_version
        ):
            return
        ends = [each.end_offset for each in node.disk.snapshot_ids(durable=True)]
        if now.log_start_offset not in ends:
            self.fail(f"the log of node {node.id} begins at {now.log_start_offset}, its snapshots end at {ends}")


class SnapshotsStandForCommittedRecords(Invariant):
    """A snapshot ends at a batch boundary of the committed log, with the epoch of the last record below it."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._unchecked: list[SnapshotId] = []

    def on_snapshot(self, node: Subject, snapshot_id: SnapshotId, content: bytes) -> None:
        if snapshot_id.end_offset > 0:
            self._unchecked.append(snapshot_id)

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        """Defer the check: the snapshot's records may become committed in the same event."""
        while self._unchecked:
            snapshot_id = self._unchecked.pop()
            last = self.cluster.history.ending_at(snapshot_id.end_offset)
            if last is None or last.epoch != snapshot_id.epoch:
                self.fail(f"node {node.id} has {snapshot_id}, the committed batch there is {_said(last)}")


class SameSnapshotSameBytes(Invariant):
    """Snapshots with the same id have the same bytes on all nodes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._contents: dict[SnapshotId, tuple[int, bytes]] = {}

    def on_snapshot(self, node: Subject, snapshot_id: SnapshotId, content: bytes) -> None:
        if snapshot_id.end_offset == 0:
            return
        first, known = self._contents.setdefault(snapshot_id, (node.id, content))
        if known != content:
            self.fail(f"nodes {first} and {node.id} have different bytes for {snapshot_id}")


class LeadersLoadNoSnapshot(Invariant):
    """The state machine of an active leader never has to load a snapshot."""

    def on_load(self, node: Subject, snapshot_id: SnapshotId) -> None:
        now = self.cluster.observed(node.id)
        if now is not None and now.is_leader and now.high_watermark is not None:
            self.fail(f"leader {node.id} of epoch {now.epoch} has to load {snapshot_id}")


class OneVotePerEpoch(Invariant):
    """A replica grants one vote per epoch, also across crashes, and only after the vote is on disk."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}

    def on_request(self, node: Subject, request: Request) -> None:
        if isinstance(request, VoteRequest) and not request.pre_vote:
            self._note(node, request.epoch, request.candidate)

    def on_response(self, node: Subject, request: Request, response: Response) -> None:
        if not isinstance(request, VoteRequest) or request.pre_vote:
            return
        if isinstance(response, VoteResponse) and response.granted and response.error is ErrorCode.NONE:
            self._note(node, request.epoch, request.candidate)

    def _note(self, node: Subject, epoch: int, candidate: ReplicaKey) -> None:
        known = self._votes.setdefault((node.key, epoch), candidate)
        if not known.matches(candidate):
            self.fail(f"node {node.id} votes in epoch {epoch} for {known.id} and for {candidate.id}")
        persisted = node.disk.election()
        if persisted.epoch < epoch or (persisted.epoch == epoch and not _is_vote_for(persisted.voted_id, candidate)):
            self.fail(f"node {node.id} votes for {candidate.id} in epoch {epoch}; its disk has {persisted}")


def _is_vote_for(voted_id: int, candidate: ReplicaKey) -> bool:
    return voted_id == candidate.id


class NothingUnsyncedIsSaid(Invariant):
    """A voter claims only durable state: the end of its log in a Fetch, its epoch as a leader."""

    def on_request(self, node: Subject, request: Request) -> None:
        match request:
            case FetchRequest() if node.can_vote and request.replica.id >= 0:
                self._check_fetch(node, request)
            case BeginQuorumEpochRequest():
                if node.disk.election().epoch < request.epoch:
                    self.fail(f"leader {node.id} claims epoch {request.epoch}, which is not on its disk")

    def _check_fetch(self, node: Subject, request: FetchRequest) -> None:
        offset = request.fetch_offset
        if offset == 0 or node.disk.batch_ending_at(offset, durable=True) is not None:
            return
        if offset not in [each.end_offset for each in node.disk.snapshot_ids(durable=True)]:
            self.fail(f"node {node.id} fetches from {offset}, the durable end is {node.disk.durable_end}")


class VotersChangeOneByOne(Invariant):
    """Consecutive voter sets of the committed log differ by at most one voter."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._last: VoterSet | None = None

    def on_committed(self, batches: Sequence[LoggedBatch]) -> None:
        for batch in batches:
            if batch.voters is None:
                continue
            if self._last is not None and not self._last.differs_by_one(batch.voters):
                self.fail(f"the voters {self._last.ids} became {batch.voters.ids} in {_said(batch)}")
            self._last = batch.voters


class OneVoterChangeAtATime(Invariant):
    """A leader changes the voters only after a commit in its own epoch, and only when the last change is committed."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._seen: dict[int, int] = {}
        self._epoch_starts: dict[int, int] = {}

    def on_start(self, node: Subject) -> None:
        self._seen[node.id] = node.disk.log_end.end_offset

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if before is not None and before.disk_version == now.disk_version:
            return
        end = node.disk.log_end.end_offset
        if now.is_leader and end > self._seen.get(node.id, 0):
            fresh = node.disk.batches_between(self._seen.get(node.id, 0), end)
            for batch in fresh:
                start = self._epoch_starts.setdefault(batch.epoch, batch.base_offset)
                if batch.voters is not None and batch.epoch == now.epoch and batch.base_offset > start:
                    self._check(node, batch)
        self._seen[node.id] = end

    def _check(self, node: Subject, change: LoggedBatch) -> None:
        """Check the changes; the first batch of an epoch repeats the voters and changes none."""
        committed = self.cluster.history.end
        if committed <= self._epoch_starts[change.epoch]:
            self.fail(f"leader {node.id} changes voters in {_said(change)} before a commit in its epoch")
        uncommitted = node.disk.batches_between(committed, change.base_offset)
        pending = [each for each in uncommitted if each.voters is not None]
        if pending:
            self.fail(f"leader {node.id} changes voters in {_said(change)} while {_said(pending[-1])} is uncommitted")


class ControlStateIsReplay(Invariant):
    """Voters and kraft.version in force equal a replay of snapshot and log, committed or not."""

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if node.disk.log_end != (now.log_end_epoch, now.log_end_offset):
            return  # the core is ahead of the disk, perhaps by a truncation and an append of the same length
        if (
            before is not None
            and before.voters is now.voters
            and before.kraft_version == now.kraft_version
            and before.disk_version == now.disk_version
        ):
            return
        expected = node.disk.replayed_voters()
        if expected is not None and expected != now.voters:
            self.fail(f"node {node.id} counts the voters {now.voters.ids}, its disk has {expected.ids}")
        version = node.disk.replayed_kraft_version()
        if version != now.kraft_version:
            self.fail(f"node {node.id} runs at kraft.version {now.kraft_version}, its disk has {version}")


class StatesAreEqual(Invariant):
    """State machines that have applied everything below the same offset are equal."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._digests: dict[int, tuple[int, bytes]] = {}

    def on_state(self, node: Subject, offset: int, digest: bytes) -> None:
        first, known = self._digests.setdefault(offset, (node.id, digest))
        if known != digest:
            self.fail(f"nodes {first} and {node.id} differ at offset {offset}")


def _said(batch: LoggedBatch | None) -> str:
    if batch is None:
        return "nothing"
    voters = "" if batch.voters is None else f", voters {batch.voters.ids}"
    return f"batch {batch.base_offset}..{batch.end_offset - 1} of epoch {batch.epoch}{voters}"


INVARIANTS: Final[tuple[type[Invariant], ...]] = (
    OneLeaderPerEpoch,
    EpochsNeverFall,
    HighWatermarkIsOnMajority,
    CommitsAreOfTheOwnEpoch,
    LogsMatchBelowHighWatermark,
    HighWatermarksNeverFall,
    LeadersHoldWhatWasCommitted,
    AcknowledgedIsNeverLost,
    CommittedIsNeverRemoved,
    SnapshotAtEveryLogStart,
    SnapshotsStandForCommittedRecords,
    SameSnapshotSameBytes,
    LeadersLoadNoSnapshot,
    OneVotePerEpoch,
    NothingUnsyncedIsSaid,
    VotersChangeOneByOne,
    OneVoterChangeAtATime,
    ControlStateIsReplay,
    StatesAreEqual,
)

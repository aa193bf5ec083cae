"""Known bugs, of other systems and of earlier versions, planted one at a time, to prove that the checker detects them.

Each replaces one part on all nodes of a history. `PLANTED` names the invariants that must fail, and the number of seeds
within which they must.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from broker.quorum.core import QuorumCore
from broker.quorum.identity import Instant, SnapshotId
from broker.quorum.leadership import QuorumLeadership
from broker.quorum.log_view import LogView, Valid, Validation
from broker.quorum.membership.voter_changes import VoterChanges
from broker.quorum.messages import UNKNOWN_OFFSET, FetchRequest, FetchResponse
from broker.quorum.ready import ElectionState, LogOperation, Ready, Trim
from broker.quorum.replica import QuorumReplica
from broker.quorum.serving import Serving
from broker.quorum.settings import QuorumSettings, Recovered
from broker.quorum.snapshots.importing import SnapshotImport, _Phase
from broker.quorum.state import FollowerState, LeaderState, Role
from broker.quorum.timeouts import JitterSource
from broker.runtime.loop.runtime import Runtime
from broker.runtime.quorum.driver import QuorumDriver
from broker.runtime.quorum.metadata_log import RaftMetadataLog, RawSnapshotWriter
from broker.runtime.quorum.ready_executor import ReadyExecution, ReadyExecutor
from broker.runtime.quorum.replica_io import ReplicaIo
from broker.runtime.quorum.state_file import QuorumStateFile
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch, Offset
from storage.log_snapshots import CheckpointId
from tests.simulation.quorum import planted_logs as logs
from tests.simulation.quorum import planted_rules as rules
from tests.simulation.quorum.replica import Parts


class _UnpersistedVotes(QuorumStateFile):
    """Does not persist votes; only the leader is written."""

    def write(self, state: ElectionState) -> None:
        if state.leader_id >= 0:
            super().write(state)


class _UncheckedHighWatermark(QuorumReplica):
    """Uses its high watermark regardless of the epoch it stems from."""

    @property
    def committed(self) -> Offset:
        known = self.high_watermark if isinstance(self.role, LeaderState) else None
        return UNKNOWN_OFFSET if known is None else known


class _OldEpochCommits(QuorumLeadership):
    """Commits records of older epochs once a majority has them (Raft, figure 8)."""

    def update_high_watermark(self, now: Instant) -> None:
        role = self._replica.role
        if isinstance(role, LeaderState):
            start, role.start_offset = role.start_offset, UNKNOWN_OFFSET
            super().update_high_watermark(now)
            role.start_offset = start


class CommitsOlderEpochs(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._replica.__class__ = _UncheckedHighWatermark
        self._leadership.__class__ = _OldEpochCommits


class _EarlyVoterChanges(VoterChanges):
    """Changes voters before a commit in its own epoch, relying on its high watermark as a follower."""

    @property
    def committed(self) -> Offset:
        known = self._replica.high_watermark
        return UNKNOWN_OFFSET if known is None else known


class ReconfiguresTooEarly(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._changes.__class__ = _EarlyVoterChanges


class _OffsetOnlyView(LogView):
    """Validates a fetch by its offset and not by the epoch of the preceding record."""

    def validate(self, offset: int, epoch: int) -> Validation:
        return Valid() if self.start <= offset <= self.end else super().validate(Offset(offset), LeaderEpoch(epoch))


class _EpochlessServing(Serving):
    """Ignores the current leader epoch of a fetch."""

    def _fetch_error(self, request: FetchRequest) -> ErrorCode:
        return super()._fetch_error(replace(request, epoch=self._replica.term.epoch))


class TakesStaleFetches(QuorumCore):
    """Counts a fetch regardless of its leader epoch and of divergence: the hole that model checking found in the first
    version of KIP-320.
    """

    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._replica.log.__class__ = _OffsetOnlyView
        self._serving.__class__ = _EpochlessServing


class TruncatesToHighWatermark(QuorumCore):
    """Truncates a new follower to its high watermark, which may be behind the leader's (before KIP-101)."""

    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._replica.on_leaving.append(self._cut)

    def _cut(self, _before: Role) -> None:
        replica = self._replica
        start = max(replica.high_watermark or Offset(0), replica.log.start)
        if isinstance(replica.role, FollowerState) and start < replica.log.end:
            replica.truncate_to(start)
            replica.control = replica.history.latest


class DeletesSnapshotsTooEarly(RaftMetadataLog):
    """Deletes older snapshots when a new one exists, although the log still starts at one of them."""

    def begin_snapshot(self, snapshot_id: SnapshotId) -> RawSnapshotWriter:
        for older in self._files.ids():
            if 0 < older.end_offset < snapshot_id.end_offset:
                self._files.remove(CheckpointId(*older))
        return super().begin_snapshot(snapshot_id)


class _UnsyncedExecutor(ReadyExecutor):
    def _finish_writing(self, execution: ReadyExecution) -> None:
        if self._core.facts.role == "leader" and execution.ready.must_sync:
            execution.needs_sync = False
            self._runtime.io.submit(self._log.sync)
        super()._finish_writing(execution)


class CountsUnsynced(QuorumDriver):
    """Counts and serves unsynced records of the leader (Kafka's order)."""

    def __init__(
        self, core: QuorumCore, io: ReplicaIo, runtime: Runtime, *, on_fatal: Callable[[BaseException], None]
    ) -> None:
        super().__init__(core, io, runtime, on_fatal=on_fatal)
        self._executor.__class__ = _UnsyncedExecutor


class FetchesBeforeFsync(QuorumDriver):
    """Sends all messages of a Ready before its fsync, among them fetches that acknowledge unsynced records."""

    def _send_all(self, ready: Ready, *, waiting: bool) -> None:
        if not waiting:
            super()._send_all(ready, waiting=False)
            super()._send_all(ready, waiting=True)


class AnswersAfterFsync(QuorumDriver):
    """Sends all messages of a Ready after its fsync, and after the fsyncs of all Readys before it."""

    def _send_all(self, ready: Ready, *, waiting: bool) -> None:
        if waiting:
            super()._send_all(ready, waiting=False)
            super()._send_all(ready, waiting=True)


class _BlockingExecutor(ReadyExecutor):
    def _must_await_fsync(self, operation: LogOperation) -> bool:
        return super()._must_await_fsync(operation) or (self._is_syncing and isinstance(operation, Trim))


class TrimsBeforeAnswers(QuorumDriver):
    """Writes no later Ready while a Trim waits for an fsync."""

    def __init__(
        self, core: QuorumCore, io: ReplicaIo, runtime: Runtime, *, on_fatal: Callable[[BaseException], None]
    ) -> None:
        super().__init__(core, io, runtime, on_fatal=on_fatal)
        self._executor.__class__ = _BlockingExecutor


class _UnverifiedImport(SnapshotImport):
    """Imports a snapshot without verifying with the leader that it belongs to the leader's log."""

    def _on_found(self, found: SnapshotId | None, now: Instant) -> None:
        super()._on_found(found, now)
        if self.is_busy and found == self._candidate and self._phase is _Phase.PROVING:
            self._load()


class ImportsOtherHistories(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._import.__class__ = _UnverifiedImport


class _UncommittedImport(SnapshotImport):
    """Imports a snapshot of the leader's log, committed or not."""

    def begin(self, response: FetchResponse, now: Instant) -> bool:
        return super().begin(replace(response, high_watermark=Offset(2**62)), now)

    def on_fetched(self, request: FetchRequest, response: FetchResponse, now: Instant) -> bool:
        return super().on_fetched(request, replace(response, high_watermark=Offset(2**62)), now)


class ImportsUncommitted(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._import.__class__ = _UncommittedImport


class Planted(NamedTuple):
    """A bug, the invariants of which one must fail, and the number of seeds, from `first` on, within which it must.

    `first` is close to a seed that fails, for speed; `seeds` is the bound if histories change.
    """

    parts: Parts
    catchers: frozenset[str]
    seeds: int
    first: int = 1


PLANTED: Final[Mapping[str, Planted]] = {
    "voting without persisting": Planted(Parts(state_file=_UnpersistedVotes), frozenset({"OneVotePerEpoch"}), 5),
    "counting a commit from an older epoch": Planted(
        Parts(core=CommitsOlderEpochs), frozenset({"CommitsAreOfTheOwnEpoch"}), 50
    ),
    "reconfiguring before a commit in the own epoch": Planted(
        Parts(core=ReconfiguresTooEarly), frozenset({"OneVoterChangeAtATime"}), 150, first=13
    ),
    "counting a fetch of a stale epoch": Planted(
        Parts(core=TakesStaleFetches),
        frozenset(
            {
                "LogsMatchBelowHighWatermark",
                "HighWatermarkIsOnMajority",
                "StatesAreEqual",
                "LeadersFenceFetches",
                "LeaderWithMinorityDead",
            }
        ),
        50,
    ),
    "truncating to the high watermark": Planted(
        Parts(core=TruncatesToHighWatermark), frozenset({"CommittedIsNeverRemoved"}), 50
    ),
    "deleting a snapshot too early": Planted(
        Parts(log=DeletesSnapshotsTooEarly), frozenset({"SnapshotAtEveryLogStart"}), 50
    ),
    "importing a snapshot of another history": Planted(
        Parts(core=ImportsOtherHistories),
        frozenset({"SnapshotsStandForCommittedRecords", "SameSnapshotSameBytes"}),
        150,
        first=18,
    ),
    "importing a snapshot above the high watermark": Planted(
        Parts(core=ImportsUncommitted), frozenset({"SnapshotsStandForCommittedRecords"}), 50, first=58
    ),
    "counting unsynced records of the leader": Planted(
        Parts(driver=CountsUnsynced), frozenset({"HighWatermarkIsOnMajority"}), 50
    ),
    "standing without pre-votes": Planted(
        Parts(core=rules.StandsWithoutPreVotes), frozenset({"OnlyElectableNodesStand"}), 5
    ),
    "granting pre-votes while the leader responds": Planted(
        Parts(core=rules.GrantsEveryPreVote), frozenset({"OnlyElectableNodesStand"}), 50, first=9
    ),
    "leading without contact to a majority": Planted(
        Parts(core=rules.LeadsWithoutContact), frozenset({"LeadersHaveContact"}), 100, first=69
    ),
    "taking the term of a late response for the present term": Planted(
        Parts(core=rules.LooksUpTermsOnce), frozenset({"OneLeaderPerEpoch", "NodesDoNotFail"}), 50, first=13
    ),
    "trimming records that live replicas lack": Planted(
        Parts(core=rules.TrimsTooEarly), frozenset({"LeadersTrimBehindLiveReplicas"}), 50, first=2
    ),
    "ending the wait for slow replicas by the wall clock": Planted(
        Parts(core=rules.WaitsByTheWallClock), frozenset({"LeadersTrimBehindLiveReplicas"}), 150, first=199
    ),
    "never trimming": Planted(Parts(core=rules.NeverTrims), frozenset({"TrimsWithMinorityDead"}), 20, first=2),
    "waiting for dead voters before trimming": Planted(
        Parts(core=rules.WaitsForDeadVoters), frozenset({"TrimsWithMinorityDead"}), 100, first=18
    ),
    "waiting for ghost observers before trimming": Planted(
        Parts(core=rules.WaitsForGhosts), frozenset({"TrimsWithMinorityDead", "ObserversAreBounded"}), 50, first=10
    ),
    "tracking every observer": Planted(
        Parts(core=rules.TracksEveryObserver), frozenset({"ObserversAreBounded"}), 50, first=23
    ),
    "keeping diverging records": Planted(
        Parts(core=rules.KeepsDivergingRecords),
        frozenset({"Liveness", "SettledWithMinorityDead", "LeaderWithMinorityDead"}),
        20,
        first=8,
    ),
    "taking truncated records for synced": Planted(
        Parts(core=rules.KeepsSyncedEnd), frozenset({"SyncedEndIsInTheLog"}), 20
    ),
    "counting a fetch without an epoch": Planted(
        Parts(core=rules.CountsEpochlessFetches),
        frozenset({"LeadersFenceFetches", "HighWatermarkIsOnMajority", "HighWatermarkRestsOnFetches"}),
        20,
    ),
    "confirming a voter change at the end of the leadership": Planted(
        Parts(core=rules.ConfirmsLate), frozenset({"VoterChangesAreCommitted"}), 150, first=48
    ),
    "acknowledging records before the follower's fsync": Planted(
        Parts(driver=FetchesBeforeFsync), frozenset({"NothingUnsyncedIsSaid"}), 5
    ),
    "refusing pre-votes for ever as an observer": Planted(
        Parts(core=rules.ObserversWithoutDeadline), frozenset({"LeaderWithMinorityDead"}), 100, first=42
    ),
    "taking a late probe answer for that of another candidate": Planted(
        Parts(core=rules.TakesLateProbeAnswers), frozenset({"VoterEntriesAreTrue"}), 150, first=53
    ),
    "trusting the leader after a local check of a snapshot": Planted(
        Parts(core=rules.TrustsAfterLocalCheck), frozenset({"TrustIsOfTheEpoch"}), 50, first=25
    ),
    "answering after the fsync of all records": Planted(
        Parts(driver=AnswersAfterFsync), frozenset({"LeadersAnswerDuringFsyncs"}), 50, first=6
    ),
    "trimming the log before answering": Planted(
        Parts(driver=TrimsBeforeAnswers), frozenset({"LeadersAnswerDuringFsyncs"}), 100, first=8
    ),
    "taking rot for a torn tail": Planted(
        Parts(log=logs.TakesRotForTornTails), frozenset({"SyncedRecordsStay", "RotIsNoticed"}), 50
    ),
    "truncating without lowering the synced end": Planted(
        Parts(log=logs.TruncatesBelowSyncedEnd), frozenset({"NodesDoNotFail"}), 50, first=8
    ),
}

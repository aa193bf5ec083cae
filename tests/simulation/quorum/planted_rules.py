"""Planted bugs in the rules of elections, contact, trimming and voter changes. `planted.py` lists them."""

from dataclasses import replace
from math import inf

from broker.quorum.core import QuorumCore
from broker.quorum.elections import QuorumElections
from broker.quorum.following import Following
from broker.quorum.identity import Instant, LogPosition, SnapshotId
from broker.quorum.leadership import QuorumLeadership
from broker.quorum.log_view import LogView
from broker.quorum.membership.reconfiguration import AddVoter
from broker.quorum.membership.voter_changes import VoterChanges
from broker.quorum.messages import UNKNOWN_OFFSET, FetchRequest, LeaderHint, ProbeResponse, SendFailure
from broker.quorum.progress import LiveReplica, Progress, ReplicaProgress
from broker.quorum.serving import Serving
from broker.quorum.settings import ControlRecord, QuorumSettings, Recovered, StoredSnapshot
from broker.quorum.snapshots.fetch import SnapshotFetch
from broker.quorum.snapshots.rules import LogFacts
from broker.quorum.snapshots.trimming import Trimming
from broker.quorum.state import FollowerState, LeaderState, ObserverState, ProspectiveState, Role
from broker.quorum.timeouts import JitterSource
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, Offset


class _UnaskedElections(QuorumElections):
    """Stands without pre-votes."""

    def become_prospective(self, now: Instant) -> None:
        super().become_prospective(now)
        role = self._replica.role
        if isinstance(role, ProspectiveState):
            role.ballot.granted |= role.ballot.voters


class StandsWithoutPreVotes(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._elections.__class__ = _UnaskedElections


class _GenerousElections(QuorumElections):
    """Grants pre-votes although the leader responds."""

    def _grants_pre_vote(self, now: Instant) -> bool:
        return not isinstance(self._replica.role, LeaderState)


class GrantsEveryPreVote(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._elections.__class__ = _GenerousElections


class _FaithfulElections(QuorumElections):
    """Refuses pre-votes for ever once the leader has responded, as Kafka's observers do."""

    def _grants_pre_vote(self, now: Instant) -> bool:
        role = self._replica.role
        if isinstance(role, FollowerState | ObserverState):
            return role.leader_ended or not role.has_fetched
        return super()._grants_pre_vote(now)


class ObserversWithoutDeadline(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._elections.__class__ = _FaithfulElections


class _ForgetfulElections(QuorumElections):
    """Looks up the term when a request leaves, and not again when its response arrives: an older epoch passes."""

    def learn_leader(self, hint: LeaderHint, now: Instant, *, by_leader: bool = False) -> bool:
        known = hint._replace(epoch=max(hint.epoch, self._replica.term.epoch))
        return super().learn_leader(known, now, by_leader=by_leader)


class LooksUpTermsOnce(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._elections.__class__ = _ForgetfulElections


class _EternalLeadership(QuorumLeadership):
    """Leads without contact to a majority."""

    def _quorum_deadline(self, progress: Progress, now: Instant) -> float:
        return inf


class LeadsWithoutContact(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._leadership.__class__ = _EternalLeadership


class _EagerTrimming(Trimming):
    """Trims records that live replicas lack."""

    def _start(self, now: Instant) -> SnapshotId | None:
        log = self._replica.log
        if isinstance(self._replica.role, LeaderState):
            return self._rule.on_leader(
                LogFacts(log.start, log.end, log.bytes, log.snapshots), (), UNKNOWN_OFFSET, now.wall_ms
            )
        return super()._start(now)


class TrimsTooEarly(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._trimming.__class__ = _EagerTrimming


class _WallClockTrimming(Trimming):
    """Ends the wait for slow replicas by the age of the records on the wall clock."""

    def _start(self, now: Instant) -> SnapshotId | None:
        log, role, limits = self._replica.log, self._replica.role, self._replica.settings
        if not isinstance(role, LeaderState):
            return super()._start(now)
        aged = [
            each for each in log.snapshots if now.wall_ms - each.timestamp_ms >= limits.start_offset_lag_time_max_ms
        ]
        waited_end = aged[-1].id.end_offset if aged else UNKNOWN_OFFSET
        live = role.progress.live(now.monotonic_ms - limits.observer_session_timeout_ms)
        facts = LogFacts(log.start, log.end, log.bytes, log.snapshots)
        return self._rule.on_leader(facts, [each.end_offset for each in live], waited_end, now.wall_ms)


class WaitsByTheWallClock(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._trimming.__class__ = _WallClockTrimming


class _IdleTrimming(Trimming):
    def _start(self, now: Instant) -> SnapshotId | None:
        return None


class NeverTrims(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._trimming.__class__ = _IdleTrimming


class _PatientTrimming(Trimming):
    """Waits for dead voters for ever."""

    waits_for_observers = False
    """Whether it also waits for every observer that was ever tracked."""

    def _start(self, now: Instant) -> SnapshotId | None:
        log, role = self._replica.log, self._replica.role
        if not isinstance(role, LeaderState):
            return super()._start(now)
        tracked: list[ReplicaProgress | LiveReplica] = list(role.progress.voters())
        if self.waits_for_observers:
            tracked += role.progress.observers()
        else:
            tracked += role.progress.live(now.monotonic_ms - self._replica.settings.observer_session_timeout_ms)
        facts = LogFacts(log.start, log.end, log.bytes, log.snapshots)
        waited_end = self._wait.waited_end(log.snapshots, now.monotonic_ms)
        return self._rule.on_leader(facts, [each.end_offset for each in tracked], waited_end, now.wall_ms)


class _VeryPatientTrimming(_PatientTrimming):
    waits_for_observers = True


class _HoardingLeadership(QuorumLeadership):
    """Never forgets an observer."""

    def _expire_observers(self, role: LeaderState, now: Instant) -> None:
        self._expire_observers_at = inf


class WaitsForDeadVoters(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._trimming.__class__ = _PatientTrimming


class WaitsForGhosts(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._trimming.__class__ = _VeryPatientTrimming
        self._leadership.__class__ = _HoardingLeadership


class _KeepingFollowing(Following):
    """Keeps diverging records."""

    def _truncate(self, diverging: LogPosition, now: Instant) -> bool:
        return True


class KeepsDivergingRecords(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._following.__class__ = _KeepingFollowing


class _OptimisticView(LogView):
    """Takes truncated records for synced."""

    def truncate_to(self, offset: Offset) -> None:
        synced = self.synced_end
        super().truncate_to(offset)
        self.synced_end = synced


class KeepsSyncedEnd(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._replica.log.__class__ = _OptimisticView


class _LenientServing(Serving):
    """Counts a replica's fetch without a leader epoch."""

    def _fetch_error(self, request: FetchRequest) -> ErrorCode:
        epoch = self._replica.term.epoch if request.epoch < 0 else request.epoch
        return super()._fetch_error(replace(request, epoch=epoch))


class CountsEpochlessFetches(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._serving.__class__ = _LenientServing


class _HastyChanges(VoterChanges):
    """Confirms an appended voter change when the leadership ends, although it may be lost."""

    def _on_leaving(self, before: Role) -> None:
        pending = self._changes._pending
        if isinstance(before, LeaderState) and pending is not None and pending.offset is not None:
            self.respond(pending.token, ErrorCode.NONE, None)
            self._changes._pending = None
        super()._on_leaving(before)


class ConfirmsLate(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._replica.on_leaving.remove(self._changes._on_leaving)
        self._changes.__class__ = _HastyChanges
        self._replica.on_leaving.append(self._changes._on_leaving)


class _ConfusedChanges(VoterChanges):
    """Takes every answer of a probed node for that of the present candidate."""

    def on_probe(self, replica_id: BrokerId, outcome: ProbeResponse | SendFailure, now: Instant) -> None:
        pending = self._changes._pending
        super().on_probe(pending.key.id if isinstance(pending, AddVoter) else replica_id, outcome, now)


class TakesLateProbeAnswers(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._changes.__class__ = _ConfusedChanges


class _TrustingSnapshotFetch(SnapshotFetch):
    """Takes the end of a local check of a snapshot for a response of the present leader."""

    def on_checked(
        self, snapshot_id: SnapshotId, stored: StoredSnapshot | None, control: tuple[ControlRecord, ...], now: Instant
    ) -> None:
        was_checked = self._checked == snapshot_id
        super().on_checked(snapshot_id, stored, control, now)
        if was_checked:
            self._replica.on_leader_response(now)


class TrustsAfterLocalCheck(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._snapshot.__class__ = _TrustingSnapshotFetch


class _UnboundedProgress(Progress):
    """Tracks any number of observers."""

    def _add_observer(self, progress: ReplicaProgress) -> None:
        self._observers[progress.key.id] = progress


class _CuriousLeadership(QuorumLeadership):
    def begin(self, granted: frozenset[BrokerId], now: Instant) -> None:
        super().begin(granted, now)
        if isinstance(self._replica.role, LeaderState):
            self._replica.role.progress.__class__ = _UnboundedProgress


class TracksEveryObserver(QuorumCore):
    def __init__(self, settings: QuorumSettings, recovered: Recovered, random: JitterSource, now: Instant) -> None:
        super().__init__(settings, recovered, random, now)
        self._leadership.__class__ = _CuriousLeadership

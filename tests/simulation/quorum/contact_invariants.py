"""Invariants about contact between nodes: who was heard, when, and in which epoch."""

from collections.abc import Sequence
from typing import Final

from broker.quorum.identity import ReplicaKey, SnapshotId
from broker.quorum.leadership import CONTACT_TIMEOUTS
from broker.quorum.membership.voters import VoterSet
from broker.quorum.messages import (
    AddVoterRequest,
    ChangeVotersResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from protocol.errors import ErrorCode
from tests.simulation.quorum.history import Cluster, Observed, Subject
from tests.simulation.quorum.invariants import Invariant
from tests.simulation.quorum.scenario import MOST_OBSERVERS
from tests.simulation.watched_disk import LoggedBatch

_MOMENT_MS: Final = 50.0
"""Time of a node to act on an expired deadline: after a pause its events run in any order."""
_CERTAINLY: Final = 0.8
"""Share of a limit within which the clocks of two nodes agree that the limit has not passed."""


class SyncedEndIsInTheLog(Invariant):
    """The part of the log that is known to be synced never reaches beyond the log's end."""

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if now.synced_end > now.written_end:
            self.fail(f"node {node.id} takes {now.synced_end} for synced, its log ends at {now.written_end}")


class _Term:
    """The leader's time with one set of voters, by its own clock; `overdue_ms` is the first sign of lost contact."""

    __slots__ = ("began_ms", "epoch", "overdue_ms", "voters")

    def __init__(self, epoch: int, voters: VoterSet, began_ms: float) -> None:
        self.epoch = epoch
        self.voters = voters
        self.began_ms = began_ms
        self.overdue_ms: float | None = None


class LeadersHaveContact(Invariant):
    """A leader resigns when no majority of its voters has fetched from it for the check-quorum time-out.

    The leader restarts the time-out when a majority has fetched since the last restart, so it leads for at most two
    time-outs with fetches of fewer voters. The leader's own clock counts.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._fetched: dict[int, dict[ReplicaKey, float]] = {}
        self._terms: dict[int, _Term] = {}
        self._limit_ms = 2 * CONTACT_TIMEOUTS * cluster.scenario.fetch_timeout_ms

    def on_start(self, node: Subject) -> None:
        self._fetched[node.id] = {}
        self._terms.pop(node.id, None)

    def on_request_arrives(self, node: Subject, request: Request) -> None:
        if isinstance(request, FetchRequest | FetchSnapshotRequest) and request.replica.id >= 0:
            seen = self.cluster.observed(node.id)
            if seen is not None and seen.is_leader and request.epoch == seen.epoch:
                self._fetched[node.id][request.replica] = node.monotonic_ms

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if not now.is_leader:
            return
        now_ms, term = node.monotonic_ms, self._terms.get(node.id)
        if term is None or term.epoch != now.epoch or term.voters is not now.voters:
            self._terms[node.id] = _Term(now.epoch, now.voters, now_ms)
        elif now_ms - term.began_ms > self._limit_ms:
            self._check(node, now, term, now_ms)

    def _check(self, node: Subject, now: Observed, term: _Term, now_ms: float) -> None:
        needed = now.voters.majority - now.voters.has(node.key)
        fetched = self._fetched[node.id]
        recent = {key.id for key, at in fetched.items() if at >= now_ms - self._limit_ms and now.voters.has(key)}
        if len(recent) >= needed:
            term.overdue_ms = None
        elif term.overdue_ms is None:
            term.overdue_ms = now_ms
        elif now_ms - term.overdue_ms > _MOMENT_MS:
            self.fail(f"node {node.id} leads epoch {now.epoch}, of its voters {now.voters.ids} only {recent} fetch")


class HighWatermarkRestsOnFetches(Invariant):
    """The high watermark rises only by fetches of the leader's epoch, and by what the leader itself has synced."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._ends: dict[int, dict[ReplicaKey, tuple[int, int]]] = {}

    def on_start(self, node: Subject) -> None:
        self._ends[node.id] = {}

    def on_request_arrives(self, node: Subject, request: Request) -> None:
        if not isinstance(request, FetchRequest) or request.replica.id < 0:
            return
        ends = self._ends[node.id]
        epoch, end = ends.get(request.replica, (-1, -1))
        if request.epoch > epoch or (request.epoch == epoch and request.fetch_offset > end):
            ends[request.replica] = request.epoch, request.fetch_offset

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if before is None or now.decided is None or before.decided == now.decided:
            return
        if not now.is_leader or not before.is_leader or before.epoch != now.epoch:
            return
        sets = [now.voters] if before.voters is now.voters else [now.voters, before.voters]
        if not any(self._is_fetched(node, voters, now) for voters in sets):
            self.fail(
                f"leader {node.id} of epoch {now.epoch} raised the high watermark to {now.decided}; synced up to "
                f"{now.synced_end}, fetched: {self._ends[node.id]}"
            )

    def _is_fetched(self, node: Subject, voters: VoterSet, now: Observed) -> bool:
        assert now.decided is not None
        holders = {
            key.id
            for key, (epoch, end) in self._ends[node.id].items()
            if epoch == now.epoch and end >= now.decided and voters.has(key)
        }
        if voters.has(node.key) and now.synced_end >= now.decided:
            holders.add(node.key.id)
        return len(holders) >= voters.majority


class LeadersFenceFetches(Invariant):
    """A leader answers a replica's fetch only if the fetch has the leader's epoch; consumers may leave it out."""

    def on_response(self, node: Subject, request: Request, response: Response) -> None:
        if not isinstance(request, FetchRequest) or request.replica.id < 0 or not isinstance(response, FetchResponse):
            return
        if response.error is ErrorCode.NONE and request.epoch != response.leader.epoch:
            self.fail(
                f"leader {node.id} of epoch {response.leader.epoch} answers a fetch of replica {request.replica.id} "
                f"with epoch {request.epoch}"
            )


class TrustIsOfTheEpoch(Invariant):
    """A node refuses pre-votes for its leader only after a response of the leader in the same epoch."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._answered: dict[int, int] = {}

    def on_start(self, node: Subject) -> None:
        self._answered.pop(node.id, None)

    def on_response_arrives(self, node: Subject, request: Request, response: Response) -> None:
        if isinstance(response, FetchResponse | FetchSnapshotResponse) and response.error is ErrorCode.NONE:
            self._answered[node.id] = max(response.leader.epoch, self._answered.get(node.id, 0))

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if now.trusts_leader and self._answered.get(node.id) != now.epoch:
            self.fail(f"node {node.id} trusts the leader of epoch {now.epoch}, which has not answered it")


class OnlyElectableNodesStand(Invariant):
    """A node requests votes only after a majority of its voters has granted its pre-vote, and a node that its leader
    answers grants none.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._granted: dict[tuple[int, int], set[int]] = {}
        self._passed: dict[int, int] = {}
        self._answered: dict[int, tuple[int, float]] = {}

    def on_start(self, node: Subject) -> None:
        self._passed[node.id] = node.disk.election().epoch
        self._answered.pop(node.id, None)

    def on_response_arrives(self, node: Subject, request: Request, response: Response) -> None:
        match request, response:
            case VoteRequest(pre_vote=True, voter=voter), VoteResponse(granted=True) if voter is not None:
                self._granted.setdefault((node.id, request.epoch), set()).add(voter.id)
            case FetchRequest(), FetchResponse(error=ErrorCode.NONE):
                self._answered[node.id] = response.leader.epoch, node.monotonic_ms

    def on_request(self, node: Subject, request: Request) -> None:
        if not isinstance(request, VoteRequest) or request.pre_vote or request.epoch <= self._passed[node.id]:
            return
        seen = self.cluster.observed(node.id)
        if seen is None:
            return
        granted = self._granted.get((node.id, request.epoch - 1), set()) | {node.id}
        if len(granted & set(seen.voters.ids)) < seen.voters.majority:
            self.fail(f"node {node.id} stands in epoch {request.epoch} with pre-votes of {granted} only")
        self._passed[node.id] = request.epoch

    def on_response(self, node: Subject, request: Request, response: Response) -> None:
        if not isinstance(request, VoteRequest) or not request.pre_vote or not isinstance(response, VoteResponse):
            return
        seen = self.cluster.observed(node.id)
        if not response.granted or seen is None or not seen.trusts_leader:
            return
        epoch, at_ms = self._answered.get(node.id, (-1, 0.0))
        waited_ms = node.monotonic_ms - at_ms
        if epoch == seen.epoch == request.epoch and waited_ms < _CERTAINLY * self.cluster.scenario.fetch_timeout_ms:
            self.fail(f"node {node.id} grants a pre-vote {waited_ms:.0f} ms after an answer of leader {seen.leader_id}")


class VoterEntriesAreTrue(Invariant):
    """The entry of a voter has the version range of exactly that node."""

    def on_committed(self, batches: Sequence[LoggedBatch]) -> None:
        for batch in batches:
            for voter in batch.voters or ():
                own = self.cluster.subject(voter.key.id).versions
                if voter.versions not in (own, _STATIC_RANGE):
                    self.fail(f"voter {voter.key.id} has the range {voter.versions}, the node supports {own}")


class VoterChangesAreCommitted(Invariant):
    """A leader confirms a voter change only if the last committed voter set has the change."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._voters: VoterSet | None = None
        self._confirmed: list[tuple[int, AddVoterRequest | RemoveVoterRequest]] = []

    def on_committed(self, batches: Sequence[LoggedBatch]) -> None:
        for batch in batches:
            self._voters = batch.voters or self._voters

    def on_response(self, node: Subject, request: Request, response: Response) -> None:
        if not isinstance(response, ChangeVotersResponse) or response.error is not ErrorCode.NONE:
            return
        match request:
            case AddVoterRequest(ack_when_committed=True) | RemoveVoterRequest():
                self._confirmed.append((node.id, request))

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        """Defer the check: the change may become known as committed in the same event."""
        while self._confirmed:
            leader_id, request = self._confirmed.pop()
            if self._voters is not None and (request.voter in self._voters.keys) != isinstance(
                request, AddVoterRequest
            ):
                self.fail(f"leader {leader_id} confirms {request}; the committed voters are {self._voters.ids}")


class LeadersTrimBehindLiveReplicas(Invariant):
    """A leader decides to trim no record that a replica in contact lacks, before it has waited for the lag limit."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._ends: dict[int, dict[ReplicaKey, tuple[int, int, float]]] = {}
        self._found_ms: dict[int, dict[SnapshotId, float]] = {}
        self._session_ms = _CERTAINLY * cluster.scenario.observer_session_timeout_ms
        self._wait_ms = _CERTAINLY * cluster.scenario.start_offset_lag_time_max_ms

    def on_start(self, node: Subject) -> None:
        self._ends[node.id] = {}
        self._found_ms[node.id] = dict.fromkeys(node.disk.snapshot_ids(), node.monotonic_ms)

    def on_request_arrives(self, node: Subject, request: Request) -> None:
        if not isinstance(request, FetchRequest) or request.replica.id < 0:
            return
        seen = self.cluster.observed(node.id)
        needs_snapshot = request.fetch_offset == 0 and any(each.end_offset for each in node.disk.snapshot_ids())
        is_answered = seen is not None and seen.is_leader and request.epoch == seen.epoch
        if seen is not None and is_answered and request.fetch_offset >= seen.decided_start and not needs_snapshot:
            self._ends[node.id][request.replica] = request.epoch, request.fetch_offset, node.monotonic_ms

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        found_ms = self._found_ms[node.id]
        if before is None or before.disk_version != now.disk_version:
            for snapshot_id in node.disk.snapshot_ids():
                found_ms.setdefault(snapshot_id, node.monotonic_ms)
        if before is None or before.decided_start >= now.decided_start:
            return
        if not now.is_leader or not before.is_leader or before.epoch != now.epoch:
            return
        found = (at_ms for each, at_ms in found_ms.items() if each.end_offset == now.decided_start)
        waited_ms = node.monotonic_ms - min(found, default=node.monotonic_ms)
        for key, (epoch, end, at_ms) in self._ends[node.id].items():
            is_known = epoch == now.epoch and not self._is_replaced(node, key)
            is_live = node.monotonic_ms - at_ms < self._session_ms
            if is_known and is_live and end < now.decided_start and waited_ms < self._wait_ms:
                self.fail(
                    f"leader {node.id} trims to {now.decided_start} after {waited_ms:.0f} ms; replica {key.id} "
                    f"fetched {end}, {node.monotonic_ms - at_ms:.0f} ms ago"
                )

    def on_response(self, node: Subject, request: Request, response: Response) -> None:
        """Forget a replica that is told to load a snapshot or to truncate."""
        if not isinstance(request, FetchRequest) or not isinstance(response, FetchResponse):
            return
        if response.snapshot_id is not None or response.diverging is not None:
            self._ends[node.id].pop(request.replica, None)

    def _is_replaced(self, node: Subject, key: ReplicaKey) -> bool:
        """Whether the leader may have forgotten the replica: for a newer directory of its node, or for newer nodes."""
        known = self._ends[node.id]
        return len(known) > MOST_OBSERVERS or any(other.id == key.id and other != key for other in known)


class LeadersAnswerDuringFsyncs(Invariant):
    """A leader answers fetches and votes of its epoch in time, also while its disk is slow: no answer needs the disk.

    Its leadership is on disk already. A fetch may wait for records as long as it asks for.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._pending: dict[int, list[_Asked]] = {}
        self._limit_ms = cluster.scenario.fetch_timeout_ms / 4

    def on_start(self, node: Subject) -> None:
        self._pending[node.id] = []

    def on_request_arrives(self, node: Subject, request: Request) -> None:
        seen = self.cluster.observed(node.id)
        self._check(node)
        if seen is None or not seen.leads_durably or not isinstance(request, FetchRequest | VoteRequest):
            return
        if request.epoch == seen.epoch:
            waits_ms = request.max_wait_ms if isinstance(request, FetchRequest) else 0
            self._pending[node.id].append(_Asked(request, node.monotonic_ms + waits_ms + self._limit_ms))

    def on_response(self, node: Subject, request: Request, response: Response) -> None:
        pending = self._pending[node.id]
        self._pending[node.id] = [each for each in pending if each.request is not request]

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if not now.is_leader or before is None or before.epoch != now.epoch:
            self._pending[node.id] = []
        self._check(node)

    def _check(self, node: Subject) -> None:
        now_ms = node.monotonic_ms
        for each in self._pending[node.id]:
            if now_ms <= each.answer_by_ms:
                continue
            if each.overdue_ms is None:
                each.overdue_ms = now_ms
            elif now_ms - each.overdue_ms > _MOMENT_MS:
                late_ms = now_ms - each.answer_by_ms
                self.fail(f"leader {node.id} does not answer {each.request}, {late_ms:.0f} ms too late")


class _Asked:
    """A request that a leader must answer; `overdue_ms` is the first sign that it has not."""

    __slots__ = ("answer_by_ms", "overdue_ms", "request")

    def __init__(self, request: Request, answer_by_ms: float) -> None:
        self.request = request
        self.answer_by_ms = answer_by_ms
        self.overdue_ms: float | None = None


class ObserversAreBounded(Invariant):
    """A leader keeps track of no more observers than its limit."""

    def on_event(self, node: Subject, before: Observed | None, now: Observed) -> None:
        if now.tracked_observers > MOST_OBSERVERS:
            self.fail(f"leader {node.id} keeps track of {now.tracked_observers} observers")


_STATIC_RANGE: Final = (0, 0)
CONTACT_INVARIANTS: Final[tuple[type[Invariant], ...]] = (
    SyncedEndIsInTheLog,
    LeadersHaveContact,
    HighWatermarkRestsOnFetches,
    LeadersFenceFetches,
    TrustIsOfTheEpoch,
    OnlyElectableNodesStand,
    VoterEntriesAreTrue,
    VoterChangesAreCommitted,
    LeadersTrimBehindLiveReplicas,
    ObserversAreBounded,
    LeadersAnswerDuringFsyncs,
)

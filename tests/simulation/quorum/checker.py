"""Evaluation of every invariant after every event, and the last lines of the history."""

from collections.abc import Callable, Mapping, Sequence

from broker.quorum.identity import ReplicaKey, SnapshotId
from broker.quorum.membership.voters import VoterSet
from broker.quorum.messages import FetchSnapshotResponse, Request, Response, VoteRequest
from protocol.primitives import ZERO_UUID
from tests.simulation.quorum.contact_invariants import CONTACT_INVARIANTS
from tests.simulation.quorum.disk import SimulatedDisk
from tests.simulation.quorum.history import History, Observed, Subject
from tests.simulation.quorum.invariants import INVARIANTS, Invariant, OneLeaderPerEpoch
from tests.simulation.quorum.log_invariants import LOG_INVARIANTS
from tests.simulation.quorum.scenario import Scenario
from tests.simulation.simulator import Counts, EventLog
from tests.simulation.watched_disk import LoggedBatch


class QuorumCounts(Counts):
    """Incidents of a quorum."""

    HARDSHIPS = (
        "minority-dead peaces",
        "trimming peaces",
        "leaders of a dead minority",
        "zombie hours",
        "one-way cuts",
        "disk stalls",
        "full disks",
        "clock steps",
        "rotten bytes",
        "rotten logs",
        "nodes stopped by rot",
        "stray requests",
        "hidden additions",
        "slow checks",
    )
    NAMES = (
        "elections",
        "truncations",
        "snapshot installs",
        "snapshot imports",
        "reconfigurations",
        "restarts",
        *HARDSHIPS,
    )
    OPTIONAL = ("commits", "snapshots", "trims")


class Checker(EventLog):
    """The witness of all nodes. Implements the cluster that invariants query, and dispatches hooks to them."""

    def __init__(
        self, subjects: Mapping[int, Subject], now_ms: Callable[[], float], scenario: Scenario | None = None
    ) -> None:
        """Create a checker. Without a scenario, invariants about contact between nodes are left out."""
        super().__init__(QuorumCounts(), now_ms)
        self._scenario = scenario
        self.history = History()
        self.lost_disks: dict[ReplicaKey, SimulatedDisk] = {}
        """Contents of wiped disks: a leader may still count what it acknowledged before the wipe."""
        self.on_elected: Callable[[], None] = _nothing
        """Called when a node becomes leader."""
        self.on_real_vote: Callable[[VoteRequest], None] = _ignore_vote
        """Called with every vote request that is no pre-vote."""
        self.on_new_voters: Callable[[int], None] = _ignore
        """Called with the id of a node whose voter set changed in memory."""
        self.on_last_page: Callable[[int], None] = _ignore
        """Called with the id of a node before it receives the last page of a snapshot."""
        self.on_truncation: Callable[[int], None] = _ignore
        """Called with the id of a node that truncates its log, while it does so."""
        self._subjects = subjects
        self._seen: dict[int, Observed] = {}
        self._voters: VoterSet | None = None
        invariants = [invariant(self) for invariant in (*INVARIANTS, *LOG_INVARIANTS)]
        if scenario is not None:
            invariants += [invariant(self) for invariant in CONTACT_INVARIANTS]
        self._leaders = next(each for each in invariants if isinstance(each, OneLeaderPerEpoch))
        self._on_start = _overriders(invariants, "on_start")
        self._on_event = _overriders(invariants, "on_event")
        self._on_request = _overriders(invariants, "on_request")
        self._on_response = _overriders(invariants, "on_response")
        self._on_request_arrives = _overriders(invariants, "on_request_arrives")
        self._on_response_arrives = _overriders(invariants, "on_response_arrives")
        self._on_removed = _overriders(invariants, "on_removed")
        self._on_snapshot = _overriders(invariants, "on_snapshot")
        self._on_committed = _overriders(invariants, "on_committed")
        self._on_state = _overriders(invariants, "on_state")
        self._on_acknowledged = _overriders(invariants, "on_acknowledged")
        self._on_load = _overriders(invariants, "on_load")

    # The cluster, for invariants

    @property
    def scenario(self) -> Scenario:
        assert self._scenario is not None
        return self._scenario

    def subject(self, node_id: int) -> Subject:
        return self._subjects[node_id]

    def observed(self, node_id: int) -> Observed | None:
        return self._seen.get(node_id)

    def disk_of(self, key: ReplicaKey) -> SimulatedDisk | None:
        subject = self._subjects.get(key.id)
        if subject is not None and key.directory_id in (ZERO_UUID, subject.key.directory_id):
            return subject.disk
        return self.lost_disks.get(key)

    def report_committed(self, batches: Sequence[LoggedBatch]) -> None:
        self.counts.add("commits", len(batches))
        for batch in batches:
            if batch.voters is not None and batch.voters != self._voters:
                self.counts.add(
                    "reconfigurations", int(self._voters is not None)
                )  # the first voter set is not a change
                self._voters = batch.voters
        for invariant in self._on_committed:
            invariant.on_committed(batches)

    # Hooks

    def on_start(self, node: Subject) -> None:
        self._seen.pop(node.id, None)
        for invariant in self._on_start:
            invariant.on_start(node)

    def on_stop(self, node: Subject) -> None:
        self._seen.pop(node.id, None)

    def on_event(self, node: Subject, now: Observed) -> None:
        """Check a node after an event of its own."""
        before = self._seen.get(node.id)
        if before == now:
            return
        self._seen[node.id] = now
        if before is None or before.epoch != now.epoch or before.is_leader != now.is_leader:
            self._note_change(node, now)
        if before is not None and before.voters is not now.voters:
            self.on_new_voters(node.id)
        if before is not None and now.log_start_offset > before.log_start_offset and now.log_end_offset > 0:
            self.counts.add("trims", int(now.log_start_offset < now.log_end_offset))
        for invariant in self._on_event:
            invariant.on_event(node, before, now)

    def _note_change(self, node: Subject, now: Observed) -> None:
        what = "leads in" if now.is_leader else f"follows {now.leader_id} in"
        self.note(f"node {node.id} {what} epoch {now.epoch}, log {now.log_start_offset}..{now.log_end_offset}")
        if now.is_leader:
            self.counts.add("elections")
            self.on_elected()

    def on_request_leaves(self, sender: int, request: Request) -> None:
        if isinstance(request, VoteRequest) and not request.pre_vote:
            self.on_real_vote(request)
        for invariant in self._on_request:
            invariant.on_request(self._subjects[sender], request)

    def on_response_leaves(self, sender: int, request: Request, response: Response) -> None:
        for invariant in self._on_response:
            invariant.on_response(self._subjects[sender], request, response)

    def on_request_arrives(self, receiver: int, request: Request) -> None:
        for invariant in self._on_request_arrives:
            invariant.on_request_arrives(self._subjects[receiver], request)

    def on_response_arrives(self, receiver: int, request: Request, response: Response) -> None:
        if isinstance(response, FetchSnapshotResponse) and 0 < response.size <= response.position + len(response.data):
            self.on_last_page(receiver)
        for invariant in self._on_response_arrives:
            invariant.on_response_arrives(self._subjects[receiver], request, response)

    def on_removed(self, node_id: int, batches: Sequence[LoggedBatch]) -> None:
        snapshots = self._subjects[node_id].disk.snapshot_ids()
        if not snapshots or snapshots[-1].end_offset < batches[-1].end_offset:
            self.counts.add("truncations")
            self.on_truncation(node_id)
        self.note(f"node {node_id} removes batches {batches[0].base_offset}..{batches[-1].end_offset - 1}")
        for invariant in self._on_removed:
            invariant.on_removed(self._subjects[node_id], batches)

    def on_snapshot(self, node_id: int, snapshot_id: SnapshotId, content: bytes, *, is_fetched: bool) -> None:
        self.note(f"node {node_id} has snapshot {snapshot_id.end_offset}-{snapshot_id.epoch}")
        self.counts.add("snapshot installs" if is_fetched else "snapshots")
        for invariant in self._on_snapshot:
            invariant.on_snapshot(self._subjects[node_id], snapshot_id, content)

    def on_imported(self, node_id: int) -> None:
        """Note that the last snapshot was imported from the snapshot store."""
        self.note(f"node {node_id} imported it")
        self.counts.add("snapshot imports")

    def on_state(self, node: Subject, offset: int, digest: bytes) -> None:
        for invariant in self._on_state:
            invariant.on_state(node, offset, digest)

    def on_acknowledged(self, node: Subject, base_offset: int, epoch: int) -> None:
        self.counts.add("acknowledgements")
        for invariant in self._on_acknowledged:
            invariant.on_acknowledged(node, base_offset, epoch)

    def on_load(self, node: Subject, snapshot_id: SnapshotId) -> None:
        self.note(f"node {node.id} loads snapshot {snapshot_id.end_offset}-{snapshot_id.epoch}")
        for invariant in self._on_load:
            invariant.on_load(node, snapshot_id)

    def on_own_leadership(self, node: Subject, epoch: int, applied_epoch: int) -> None:
        """Check that a leader that learns of its leadership has applied a record of its own epoch."""
        if applied_epoch != epoch:
            self.fail(
                "LeadersLearnOfLeadershipLast",
                f"node {node.id} learns of its leadership in {epoch} with applied epoch {applied_epoch}",
            )


def _nothing() -> None:
    """Ignore the call."""


def _ignore_vote(_request: VoteRequest) -> None:
    """Ignore the call."""


def _ignore(_node_id: int) -> None:
    """Ignore the call."""


def _overriders(invariants: list[Invariant], hook: str) -> list[Invariant]:
    """Return the invariants that override a hook."""
    return [each for each in invariants if getattr(type(each), hook) is not getattr(Invariant, hook)]

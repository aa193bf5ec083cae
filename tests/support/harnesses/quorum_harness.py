"""A harness for quorum cores: disks in memory, a network with a latency, and a manual clock.

Every node executes its Ready at once, in the order of `broker/quorum/ready.py`, so a crash leaves exactly the written
data. `say` receives a line for each event.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import NamedTuple

from broker.quorum.control_records import read_control_records
from broker.quorum.core import JitterSource, QuorumCore
from broker.quorum.identity import Instant, KRaftVersions, LeaderAndEpoch, ListenerEndpoint, SnapshotId, SocketAddress
from broker.quorum.messages import (
    BeginQuorumEpochRequest,
    ProbeRequest,
    ProbeResponse,
    Request,
    Response,
    SendFailure,
    VoteRequest,
)
from broker.quorum.ready import (
    Append,
    DiscardPart,
    ElectionState,
    FinishPart,
    LogOperation,
    PendingResponse,
    ReadRecords,
    ReadSnapshotPage,
    Ready,
    SendRequest,
    StartAt,
    Trim,
    TruncateTo,
    WritePart,
)
from broker.quorum.settings import ControlRecord, EpochEntry, QuorumSettings, Recovered, StaticVoter, StoredSnapshot
from broker.quorum.snapshots.imports import (
    EndImport,
    FindImport,
    ImportFailed,
    ImportFound,
    ImportLoaded,
    ImportOutcome,
    ImportStep,
    LoadImport,
    RefuseImport,
)
from protocol.errors import ErrorCode
from protocol.ids import Offset
from protocol.primitives import Uuid
from protocol.records.batch import BatchHeader, iter_headers
from tests.support.harnesses.quorum_transcript import describe_batches, describe_request, describe_response
from tests.support.quorum_values import make_epoch_entry, make_recovered, make_static_voter, replica_key

LISTENER = "CONTROLLER"
CLUSTER = "cluster"
WALL_START = 1_000_000
LATENCY_MS = 1.0
LOST_MS = 2_000.0
"""The timeout of a lost message."""


def directory(node_id: int, incarnation: int = 1) -> Uuid:
    """Return the directory id of a node's n-th disk."""
    return Uuid(((node_id << 16) + incarnation).to_bytes(16, "big"))


def endpoint(node_id: int) -> SocketAddress:
    return SocketAddress(f"host{node_id}", 9000 + node_id)


def listeners(node_id: int) -> tuple[ListenerEndpoint, ...]:
    return (ListenerEndpoint(LISTENER, *endpoint(node_id)),)


@dataclass
class Disk:
    """Durable state: quorum-state, batches as (header, bytes), snapshots as files."""

    directory_id: Uuid
    election: ElectionState | None = None
    start: int = 0
    end: int = 0
    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    snapshots: dict[SnapshotId, bytes] = field(default_factory=dict)
    snapshot_control: dict[SnapshotId, tuple[ControlRecord, ...]] = field(default_factory=dict)
    bootstrap: tuple[ControlRecord, ...] = ()
    part: bytearray = field(default_factory=bytearray)

    def append(self, data: bytes) -> None:
        for position, header in iter_headers(data):
            assert header.base_offset == self.end, "the log continues at its end"
            self.batches.append((header, data[position : position + header.size]))
            self.end = header.next_offset

    def truncate(self, offset: int) -> None:
        self.batches = [each for each in self.batches if each[0].base_offset < offset]
        self.end = min(self.end, offset)
        assert not self.batches or self.batches[-1][0].next_offset == self.end, "a batch is whole or gone"

    def start_at(self, snapshot_id: SnapshotId) -> None:
        self.start = self.end = snapshot_id.end_offset
        self.batches = []
        self.snapshots = {snapshot_id: self.snapshots[snapshot_id]}

    def trim(self, snapshot_id: SnapshotId) -> None:
        assert snapshot_id in self.snapshots, "the log starts at a snapshot"
        self.start = snapshot_id.end_offset
        self.batches = [each for each in self.batches if each[0].next_offset > self.start]
        self.snapshots = {key: data for key, data in self.snapshots.items() if key.end_offset >= self.start}

    def read(self, offset: int, upper: int) -> bytes:
        assert offset >= self.start, "nothing below the log start is read"
        return b"".join(
            data for header, data in self.batches if header.next_offset > offset and header.next_offset <= upper
        )

    def epochs(self) -> tuple[EpochEntry, ...]:
        starts: list[EpochEntry] = []
        for header, _ in self.batches:
            if not starts or starts[-1].epoch != header.leader_epoch:
                starts.append(make_epoch_entry(header.leader_epoch, max(self.start, header.base_offset)))
        return tuple(starts)

    def recovered(self) -> Recovered:
        stored = [StoredSnapshot(key, len(data), 0) for key, data in sorted(self.snapshots.items(), key=_by_position)]
        control = list(self.snapshot_control.get(stored[-1].id, ()) if stored else self.bootstrap)
        newest = stored[-1].id.end_offset if stored else 0
        for header, data in self.batches:
            if header.is_control and header.base_offset >= newest:
                control += read_control_records(data)
        size = sum(len(data) for _, data in self.batches)
        return make_recovered(self.election, self.start, self.end, self.epochs(), tuple(stored), tuple(control), size)


def _by_position(item: tuple[SnapshotId, bytes]) -> tuple[int, int]:
    return item[0].position


class Limits(NamedTuple):
    """Settings that scenarios change; see QuorumSettings."""

    trim_interval_ms: int = 60_000
    retention_bytes: int = 104_857_600
    start_offset_lag_time_max_ms: int = 604_800_000
    observer_session_timeout_ms: int = 300_000
    fetch_snapshot_max_bytes: int = 8 * 1024 * 1024
    import_timeout_ms: int = 0


class FixedRandom:
    """Returns a fixed number, limited to the range, so that timeouts are known and differ between nodes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def randrange(self, stop: int, /) -> int:
        return min(self.number, stop - 1)


class Node:
    """One replica, running or stopped."""

    def __init__(self, harness: "QuorumHarness", settings: QuorumSettings, disk: Disk) -> None:
        self.harness = harness
        self.settings = settings
        self.disk = disk
        self.random: JitterSource = FixedRandom(100 * settings.key.id)
        self.core: QuorumCore | None = None
        self.incarnation = 0
        self.is_refusing = False
        self.role = ""
        self.leader: LeaderAndEpoch | None = None
        self.hold = False
        self.held: list[Ready] = []
        self.refused: set[SnapshotId] = set()
        self.importing: int | None = None

    @property
    def id(self) -> int:
        return self.settings.key.id

    @property
    def up(self) -> QuorumCore:
        assert self.core is not None, f"node {self.id} is down"
        return self.core

    def start(self) -> None:
        self.incarnation += 1
        self.is_refusing = False
        self.disk.part.clear()
        self.refused.clear()
        self.core = QuorumCore(self.settings, self.disk.recovered(), self.random, self.harness.now)
        self.work()

    def stop(self) -> None:
        self.core, self.role = None, ""
        self.harness.hang_up(self)

    def kill(self) -> None:
        """Stop the process. Its host refuses connections."""
        self.stop()
        self.is_refusing = True

    def work(self) -> None:
        """Execute all Readys."""
        while self.core is not None:
            self.report_role()
            if self.hold or (ready := self.core.take_ready()) is None:
                return
            self.do(ready)

    def report_role(self) -> None:
        role = f"{self.up.facts.role} in epoch {self.up.facts.epoch}"
        if role != self.role:
            self.role = role
            self.harness.say(f"{self.id} is {role}")

    def do(self, ready: Ready) -> None:
        if ready.state is not None:
            self.disk.election = ready.state
        for operation in ready.log:
            self.operate(operation)
        for send in ready.requests:
            self.harness.send(self, send)
        for answer in ready.responses:
            self.harness.answer(self, answer)
        for step in ready.imports:
            self.take_import(step)
        if ready.high_watermark is not None:
            self.harness.say(f"{self.id} raises its high watermark to {ready.high_watermark}")
        if ready.leader is not None:
            self.leader = ready.leader
            self.harness.say(f"{self.id} announces {_leads(ready.leader)}")
        self.up.persisted(ready, self.harness.now)

    def operate(self, operation: LogOperation) -> None:
        match operation:
            case Append():
                data = bytes(operation.batches)
                self.disk.append(data)
                assert self.disk.end == operation.end_offset
                self.harness.say(f"{self.id} appends {describe_batches(data)}")
            case TruncateTo(offset):
                self.harness.say(f"{self.id} truncates its log from {self.disk.end} to {offset}")
                self.disk.truncate(offset)
            case StartAt(snapshot_id):
                self.disk.start_at(snapshot_id)
                self.harness.say(f"{self.id} starts its log at snapshot {_snapshot(snapshot_id)}")
            case Trim(snapshot_id):
                self.disk.trim(snapshot_id)
                self.harness.say(f"{self.id} trims its log to snapshot {_snapshot(snapshot_id)}")
            case WritePart(_, position, data):
                if position == 0:
                    self.disk.part.clear()
                assert position == len(self.disk.part)
                self.disk.part += data
            case FinishPart(snapshot_id, size, is_imported):
                if is_imported:
                    self.disk.part = bytearray(self.harness.store[snapshot_id])
                assert size == len(self.disk.part)
                self.harness.after(0, lambda: self.finish_part(snapshot_id))
            case DiscardPart():
                self.disk.part.clear()
                self.harness.say(f"{self.id} discards its unfinished snapshot")

    def take_import(self, step: ImportStep) -> None:
        """Simulate the importer, with the response time of the store."""
        match step:
            case FindImport(serial, least, most, epoch):
                self.importing = serial
                self.harness.say(f"{self.id} searches the store for a snapshot from {least} to {most}")
                self.after_store(serial, lambda: self.found(serial, self.find(least, most, epoch)))
            case LoadImport(serial, snapshot_id):
                self.importing = serial
                self.harness.say(f"{self.id} loads snapshot {_snapshot(snapshot_id)} from the store")
                self.after_store(serial, lambda: self.load(serial, snapshot_id))
            case RefuseImport(snapshot_id, reason):
                self.refuse(snapshot_id, reason)
            case EndImport(serial, is_late):
                assert serial == self.importing, "what is ended is under way"
                self.importing = None
                self.harness.say(f"{self.id} ends its import{' at the time limit' if is_late else ''}")

    def after_store(self, serial: int, outcome: Callable[[], ImportOutcome]) -> None:
        incarnation = self.incarnation

        def come() -> None:
            if self.core is not None and self.incarnation == incarnation and self.importing == serial:
                self.core.on_import(outcome(), self.harness.now)
                self.work()

        self.harness.after(self.harness.store_ms, come)

    def find(self, least: int, most: int, epoch: int) -> SnapshotId | None:
        found = [each for each in self.harness.store if each not in self.refused]
        return max((each for each in found if least <= each.end_offset <= most and each.epoch <= epoch), default=None)

    def found(self, serial: int, snapshot_id: SnapshotId | None) -> ImportFound:
        return ImportFound(serial, snapshot_id, 0 if snapshot_id is None else len(self.harness.store[snapshot_id]))

    def load(self, serial: int, snapshot_id: SnapshotId) -> ImportOutcome:
        data = self.harness.store[snapshot_id]
        if not data.startswith(b"bad"):
            return ImportLoaded(serial, len(data))
        self.refuse(snapshot_id, "it is corrupt")
        return ImportFailed(serial, is_refused=True)

    def refuse(self, snapshot_id: SnapshotId, reason: str) -> None:
        self.refused.add(snapshot_id)
        self.harness.say(f"{self.id} refuses snapshot {_snapshot(snapshot_id)} of the store: {reason}")

    def finish_part(self, snapshot_id: SnapshotId) -> None:
        if self.core is None:
            return
        data = bytes(self.disk.part)
        if data.startswith(b"bad"):
            self.harness.say(f"{self.id} finds snapshot {_snapshot(snapshot_id)} corrupt")
            self.core.on_snapshot_fetched(snapshot_id, None, (), self.harness.now)
        else:
            control = self.harness.snapshot_control[snapshot_id]
            self.disk.snapshots[snapshot_id] = data
            self.disk.snapshot_control[snapshot_id] = control
            self.core.on_snapshot_fetched(
                snapshot_id, StoredSnapshot(snapshot_id, len(data), 0), control, self.harness.now
            )
        self.work()

    def snapshot(self, end_offset: int, data: bytes) -> SnapshotId | None:
        """Generate a snapshot if the core allows it."""
        snapshot_id = self.up.can_snapshot_at(Offset(end_offset))
        if snapshot_id is None:
            return None
        control = [record for record in self.disk.recovered().control if record.offset < end_offset]
        self.harness.snapshot_control[snapshot_id] = _latest(control, end_offset - 1)
        self.disk.snapshot_control[snapshot_id] = self.harness.snapshot_control[snapshot_id]
        self.disk.snapshots[snapshot_id] = data
        self.up.on_snapshot_generated(
            StoredSnapshot(snapshot_id, len(data), self.harness.now.wall_ms), self.harness.now
        )
        self.work()
        return snapshot_id


def _latest(control: Iterable[ControlRecord], offset: int) -> tuple[ControlRecord, ...]:
    version: ControlRecord | None = None
    voters: ControlRecord | None = None
    for record in control:
        if record.kraft_version is not None:
            version = record._replace(offset=Offset(offset))
        if record.voters is not None:
            voters = record._replace(offset=Offset(offset))
    return tuple(record for record in (version, voters) if record is not None)


class QuorumHarness:
    """Nodes and the network between them. `say` receives a line for each relevant event."""

    def __init__(self, say: Callable[[str], None] = lambda _line: None) -> None:
        self.say = say
        self.nodes: dict[int, Node] = {}
        self.by_endpoint: dict[SocketAddress, int] = {}
        self.now = Instant(0.0, WALL_START)
        self.cuts: set[tuple[int, int]] = set()
        self.snapshot_control: dict[SnapshotId, tuple[ControlRecord, ...]] = {}
        self.store: dict[SnapshotId, bytes] = {}
        """The snapshots in the object store."""
        self.store_ms = 5.0
        """The response time of the store."""
        self.limits = Limits()
        self.latency: Callable[[], float] = lambda: LATENCY_MS
        self.loses: Callable[[], bool] = lambda: False
        self.refuses_pre_vote: set[int] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._tokens = count(1)
        self._waiting: dict[int, tuple[Node, Callable[[], None]]] = {}
        self._begun: set[tuple[int, int | None, int]] = set()
        self._asked: dict[int, tuple[int, Request, Callable[[Response], None]]] = {}

    # Setup

    def settings(
        self,
        node_id: int,
        *,
        static_voters: tuple[StaticVoter, ...] = (),
        bootstrap: tuple[SocketAddress, ...] = (),
        can_vote: bool = True,
        auto_join: bool = False,
        versions: KRaftVersions = KRaftVersions(),  # noqa: B008  immutable
    ) -> QuorumSettings:
        limits = self.limits
        return QuorumSettings(
            key=replica_key(node_id, directory(node_id)),
            cluster_id=CLUSTER,
            can_vote=can_vote,
            listeners=listeners(node_id),
            versions=versions,
            static_voters=static_voters,
            bootstrap=bootstrap,
            auto_join=auto_join,
            trim_interval_ms=limits.trim_interval_ms,
            retention_bytes=limits.retention_bytes,
            start_offset_lag_time_max_ms=limits.start_offset_lag_time_max_ms,
            observer_session_timeout_ms=limits.observer_session_timeout_ms,
            fetch_snapshot_max_bytes=limits.fetch_snapshot_max_bytes,
            import_timeout_ms=limits.import_timeout_ms,
        )

    def add(self, settings: QuorumSettings, bootstrap: tuple[ControlRecord, ...] = ()) -> Node:
        node = Node(self, settings, Disk(settings.key.directory_id, bootstrap=bootstrap))
        self.nodes[node.id] = node
        self.by_endpoint[endpoint(node.id)] = node.id
        return node

    def static(self, ids: Sequence[int]) -> None:
        voters = tuple(make_static_voter(each, endpoint(each)) for each in ids)
        for each in ids:
            self.add(self.settings(each, static_voters=voters))

    # Time

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now.monotonic_ms + delay_ms, next(self._numbers), action))

    def advance(self, ms: float) -> None:
        """Advance the clock, and process all events."""
        until = self.now.monotonic_ms + ms
        while (at := self._next_moment()) <= until:
            self._go_to(at)
            self._do_moment()
        self._go_to(until)

    def _next_moment(self) -> float:
        moments = [each.core.next_deadline_ms for each in self.nodes.values() if each.core is not None]
        deadlines = [at for at in moments if at is not None]
        if self._events:
            deadlines.append(self._events[0][0])
        return max(min(deadlines, default=float("inf")), self.now.monotonic_ms)

    def _do_moment(self) -> None:
        if self._events and self._events[0][0] <= self.now.monotonic_ms:
            heapq.heappop(self._events)[2]()
            return
        for node in self.nodes.values():
            due = node.core.next_deadline_ms if node.core is not None else None
            if node.core is not None and due is not None and due <= self.now.monotonic_ms:
                node.core.tick(self.now)
                node.work()
                later = node.core.next_deadline_ms
                assert node.hold or later is None or later > self.now.monotonic_ms, f"{node.id} spins as {node.role}"

    def _go_to(self, at: float) -> None:
        self.now = Instant(at, WALL_START + int(at))

    # Messages

    def send(self, sender: Node, send: SendRequest) -> None:
        target, incarnation, request = self.by_endpoint.get(send.to), sender.incarnation, send.request

        def done(outcome: Response | SendFailure) -> None:
            if sender.core is not None and sender.incarnation == incarnation:
                sender.core.on_response(send.serial, outcome, self.now)
                sender.work()

        def fail(error: ErrorCode, delay_ms: float, *, is_refusal: bool = False) -> None:
            self.after(delay_ms, lambda: done(SendFailure(error, is_refusal)))

        def arrive() -> None:
            node = None if target is None else self.nodes.get(target)
            if node is not None and node.is_refusing and (sender.id, target) not in self.cuts:
                fail(ErrorCode.BROKER_NOT_AVAILABLE, self.latency(), is_refusal=True)
            elif target is None or node is None or node.core is None or (sender.id, target) in self.cuts:
                fail(ErrorCode.BROKER_NOT_AVAILABLE, self.latency())
            elif self.loses():
                fail(ErrorCode.BROKER_NOT_AVAILABLE, LOST_MS)
            elif target in self.refuses_pre_vote and isinstance(request, VoteRequest) and request.pre_vote:
                fail(ErrorCode.UNSUPPORTED_VERSION, self.latency())
            elif isinstance(request, ProbeRequest):
                versions = node.settings.versions
                self.after(self.latency(), lambda: done(ProbeResponse(ErrorCode.NONE, versions)))
            else:
                back = (target, sender.id)
                lost = partial(fail, ErrorCode.BROKER_NOT_AVAILABLE, LATENCY_MS)
                self.ask(node, request, lambda response: self._carry_back(back, response, done), sender.id, lost)

        if (line := describe_request(request)) is not None and self._is_new(sender.id, target, request):
            self.say(f"{sender.id} -> {target if target is not None else send.to.host} {line}")
        self.after(self.latency(), arrive)

    def _is_new(self, sender: int, target: int | None, request: Request) -> bool:
        """Whether the request is not a repeated BeginQuorumEpoch."""
        if not isinstance(request, BeginQuorumEpochRequest):
            return True
        begun = (sender, target, request.epoch)
        is_new = begun not in self._begun
        self._begun.add(begun)
        return is_new

    def _carry_back(
        self, way: tuple[int, int], response: Response, done: Callable[[Response | SendFailure], None]
    ) -> None:
        if way in self.cuts or self.loses():
            self.after(LOST_MS, lambda: done(SendFailure(ErrorCode.BROKER_NOT_AVAILABLE)))
        else:
            self.after(self.latency(), lambda: done(response))

    def ask(
        self,
        node: Node,
        request: Request,
        done: Callable[[Response], None],
        sender: int = 0,
        lost: Callable[[], None] | None = None,
    ) -> None:
        """Deliver a request. `done` gets the response, or `lost` if the node stops before."""
        token = next(self._tokens)
        if lost is not None:
            self._waiting[token] = (node, lost)
        self._asked[token] = (sender, request, done)
        node.up.on_request(token, request, self.now)
        node.work()

    def hang_up(self, node: Node) -> None:
        """Fail the requests that wait for a stopped node."""
        for token, (asked, fail) in list(self._waiting.items()):
            if asked is node:
                del self._waiting[token], self._asked[token]
                fail()

    def expect(self, sender: int, feed: Callable[[int], None]) -> None:
        """Send a request outside the network; its response goes only to `say`."""
        token = next(self._tokens)
        self._asked[token] = (sender, ProbeRequest(), lambda _response: None)
        feed(token)

    def answer(self, node: Node, pending: PendingResponse) -> None:
        sender, request, done = self._asked.pop(pending.token)
        self._waiting.pop(pending.token, None)
        response = self._with_data(node, pending)
        if (line := describe_response(request, response)) is not None:
            self.say(f"{node.id} -> {sender or 'client'} {line}")
        done(response)

    def _with_data(self, node: Node, pending: PendingResponse) -> Response:
        match pending:
            case ReadRecords(_, response, offset):
                return replace(response, records=node.disk.read(offset, node.disk.end))
            case ReadSnapshotPage(_, page, max_bytes):
                data = node.disk.snapshots[page.snapshot_id]
                return replace(page, data=data[page.position : page.position + max_bytes])
        return pending.response

    def offer(self, snapshot_id: SnapshotId, data: bytes) -> None:
        """Put a snapshot into the store, with the leader's voters."""
        self.store[snapshot_id] = data
        control = _latest(self.leader().disk.recovered().control, snapshot_id.end_offset - 1)
        self.snapshot_control.setdefault(snapshot_id, control)

    # Faults

    def isolate(self, node_id: int) -> None:
        for other in self.nodes:
            if other != node_id:
                self.cuts |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cuts.clear()

    def wipe(self, node_id: int) -> None:
        """Replace the disk, with a new directory id."""
        node = self.nodes[node_id]
        incarnation = node.disk.directory_id[-1] + 1
        key = replica_key(node_id, directory(node_id, incarnation))
        node.settings = replace(node.settings, key=key)
        node.disk = Disk(key.directory_id, bootstrap=())

    # Queries

    def leader(self) -> Node:
        """Return the only leader of the latest epoch."""
        leaders = [each for each in self.nodes.values() if each.core is not None and each.core.facts.role == "leader"]
        assert leaders, "no node leads"
        return max(leaders, key=lambda each: each.up.facts.epoch)


def _leads(leader: LeaderAndEpoch) -> str:
    who = "no leader" if leader.leader_id is None else f"leader {leader.leader_id}"
    return f"{who} in epoch {leader.epoch}"


def _snapshot(snapshot_id: SnapshotId) -> str:
    return f"{snapshot_id.end_offset}-{snapshot_id.epoch}"

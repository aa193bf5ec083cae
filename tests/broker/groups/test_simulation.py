"""Random group operations: members join, work, leave, crash, restart and pause, while the log delays or refuses appends
and changes its leader. The invariants below must hold after every event, and at the end every process must have an
assignment.

pytest prints a failing seed; `run_seed(n)` repeats it exactly.
"""

from asyncio import Future
from dataclasses import dataclass, field
from random import Random

import pytest

from broker.groups.classic import ClassicGroup
from broker.groups.config import GroupConfig
from broker.groups.records import OffsetKey
from broker.groups.state import GroupState
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leave_group import MemberIdentity
from tests.support.harnesses.group_harness import Client, GroupHarness, ReplyBox

SEEDS = range(20)
EVENTS = 250
PARTITIONS = 12
GROUPS = ("g", "h")
HEARTBEAT_S = 3.0
SESSION_MS = 10_000
REBALANCE_MS = 15_000
FATAL = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


@dataclass
class Worker:
    """A consumer process: joins, syncs, sends heartbeats, commits, and rejoins when required."""

    name: str
    group: str
    instance_id: str | None
    is_alive: bool = True
    joining: ReplyBox | None = None
    syncing: ReplyBox | None = None
    assignment: bytes | None = None
    next_beat: float = 0.0

    @property
    def is_idle(self) -> bool:
        return self.joining is None and self.syncing is None


@dataclass
class GroupSimulation:
    """The shard, the processes, and the expected state to check against."""

    seed: int
    random: Random = field(init=False)
    workers: list[Worker] = field(default_factory=list)
    generations: dict[str, int] = field(default_factory=dict)
    owners: dict[tuple[str, int, str], str] = field(default_factory=dict)
    possible_offsets: dict[OffsetKey, set[int]] = field(default_factory=dict)
    next_offset: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        linger_ms = self.random.choice([0, -1, 5])
        self.harness = GroupHarness(GroupConfig(group_coordinator_append_linger_ms=linger_ms))

    # Actions of workers.

    def act(self, worker: Worker) -> None:
        """Run one step of a process, depending on the responses so far."""
        if not worker.is_alive:
            return
        if worker.joining is not None:
            self.after_join(worker, worker.joining)
        elif worker.syncing is not None:
            self.after_sync(worker, worker.syncing)
        elif worker.assignment is None:
            self.join(worker)
        elif self.harness.loop.time() >= worker.next_beat:
            self.heartbeat(worker)
        elif self.random.random() < 0.3:
            self.commit(worker)

    def join(self, worker: Worker) -> None:
        self.forget_work(worker)
        self.harness.client(worker.name, instance_id=worker.instance_id)
        try:
            worker.joining = self.harness.join(
                worker.name, group=worker.group, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
            )
        except KafkaError:
            worker.joining = None

    def after_join(self, worker: Worker, box: ReplyBox) -> None:
        if box.answer is None:
            return
        worker.joining = None
        if box.error in FATAL:
            self.reset(worker)
        elif box.error is ErrorCode.NONE:
            response = box.joined
            shares = {}
            if response.leader == response.member_id and not response.skip_assignment:
                shares = self.share_out([member.member_id for member in response.members])
            worker.syncing = self.sync(worker, shares)

    def share_out(self, member_ids: list[str]) -> dict[str, bytes]:
        parts: dict[str, list[str]] = {member_id: [] for member_id in member_ids}
        for partition in range(PARTITIONS):
            parts[member_ids[partition % len(member_ids)]].append(str(partition))
        by_id = {client.member_id: client.name for client in self.harness.clients.values()}
        return {by_id[member_id]: "+".join(part).encode() for member_id, part in parts.items() if member_id in by_id}

    def sync(self, worker: Worker, shares: dict[str, bytes]) -> ReplyBox | None:
        return self.harness.sync(worker.name, shares, group=worker.group)

    def after_sync(self, worker: Worker, box: ReplyBox) -> None:
        if box.answer is None:
            return
        worker.syncing = None
        if box.error in FATAL:
            self.reset(worker)
        elif box.error is ErrorCode.NONE:
            worker.assignment = box.synced.assignment
            worker.next_beat = self.harness.loop.time() + HEARTBEAT_S
            self.claim(worker)

    def heartbeat(self, worker: Worker) -> None:
        worker.next_beat = self.harness.loop.time() + HEARTBEAT_S
        error = self.harness.heartbeat(worker.name, group=worker.group)
        if error in FATAL:
            self.reset(worker)
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join(worker)

    def commit(self, worker: Worker) -> None:
        """Commit an offset. It may count even without a response; after a successful response it must count."""
        if not worker.assignment:
            return
        partition = int(worker.assignment.split(b"+")[0])
        key = OffsetKey(worker.group, "t", partition)
        self.next_offset += 1
        offset = self.next_offset
        request = self.harness.commit_request(worker.name, {("t", partition): offset}, worker.group)
        try:
            answer = self.harness.start(lambda shard: shard.commit_offsets(request, 9), soft=True)
        except KafkaError as error:
            if error.code in FATAL:
                self.reset(worker)
            return
        self.possible_offsets.setdefault(key, {-1}).add(offset)
        if isinstance(answer, Future):
            answer.add_done_callback(lambda future: self.after_commit(key, offset, future.exception()))
        else:
            self.after_commit(key, offset, None)

    def after_commit(self, key: OffsetKey, offset: int, error: BaseException | None) -> None:
        if error is None:
            later = {each for each in self.possible_offsets[key] if each > offset}
            self.possible_offsets[key] = {offset, *later}

    def reset(self, worker: Worker) -> None:
        """Discard the member id and join as a new member."""
        self.forget_work(worker)
        self.harness.client(worker.name, member_id="", generation=-1)

    def forget_work(self, worker: Worker) -> None:
        worker.assignment = None

    def claim(self, worker: Worker) -> None:
        """Check that no two processes get the same partition in the same generation."""
        client = self.harness.client(worker.name)
        assert worker.assignment is not None
        for partition in filter(None, worker.assignment.decode().split("+")):
            claim = (worker.group, client.generation, partition)
            who = worker.instance_id or worker.name
            assert self.owners.setdefault(claim, who) == who, f"{claim} belongs to {self.owners[claim]} and {who}"

    # Failures.

    def start_worker(self) -> None:
        number = len(self.workers)
        instance = f"i{number}" if self.random.random() < 0.4 else None
        self.workers.append(Worker(f"w{number}", self.random.choice(GROUPS), instance))

    def crash(self, worker: Worker) -> None:
        worker.is_alive = False
        worker.joining = worker.syncing = None
        self.forget_work(worker)

    def revive(self, worker: Worker) -> None:
        """Start a new process in place of a crashed one; it keeps at most its instance id."""
        worker.is_alive = True
        self.harness.clients[worker.name] = Client(worker.name)

    def leave(self, worker: Worker) -> None:
        leavers = [MemberIdentity(self.harness.client(worker.name).member_id, worker.instance_id)]
        try:
            answer = self.harness.start(lambda shard: shard.leave_group(worker.group, leavers), soft=True)
        except KafkaError:
            return
        if isinstance(answer, Future):
            answer.add_done_callback(Future.exception)  # no process waits for it
        self.crash(worker)

    def fail_over(self) -> None:
        """Load a new coordinator from the old one's log, all of it committed."""
        self.harness.log.holds_commits = False
        self.harness.log.fail_next = self.harness.log.fail_next_batch = None
        self.load()
        self.harness.log.commit()

    def load(self) -> None:
        """Load the log, as after a failover, or when an append was refused whose records had taken effect."""
        self.harness.restart()
        self.generations = {group.group_id: group.generation for group in self.harness.shard.groups}

    def trouble(self) -> None:
        """Start or end a failure of the log."""
        refusal = self.random.choice([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
        match self.random.randrange(5):
            case 0:
                self.harness.log.holds_commits = True
            case 1 | 2:
                self.harness.log.holds_commits = False
                self.harness.log.commit()
            case 3:
                self.harness.log.fail_next_batch = refusal
            case _:
                self.harness.log.fail_next = refusal

    def event(self) -> None:
        """Run one random event and advance the clock."""
        chance = self.random.random()
        worker = self.random.choice(self.workers) if self.workers else None
        if worker is None or (chance < 0.04 and len(self.workers) < 10):
            self.start_worker()
        elif chance < 0.08:
            self.crash(worker)
        elif chance < 0.14 and not worker.is_alive:
            self.revive(worker)
        elif chance < 0.16 and worker.is_alive and worker.is_idle:
            self.leave(worker)
        elif chance < 0.20:
            self.trouble()
        elif chance < 0.22:
            self.fail_over()
        for each in self.random.sample(self.workers, len(self.workers)):
            self.act(each)
        self.harness.advance(self.random.choice([0.0, 0.1, 0.5, 1.0, 2.0]))
        self.harness.loop.run_soon()
        if self.harness.is_broken:
            assert self.harness.config.group_coordinator_append_linger_ms != 0, "nothing takes effect before its append"
            self.load()
        self.check()

    def calm_down(self) -> None:
        """End all failures: every process runs, and time passes in steps shorter than heartbeat intervals."""
        self.harness.log.holds_commits = False
        self.harness.log.fail_next = self.harness.log.fail_next_batch = None
        self.harness.log.commit()
        for worker in self.workers:
            if not worker.is_alive:
                self.revive(worker)
        for _ in range(120):
            for worker in self.workers:
                self.act(worker)
            self.harness.advance(0.5)
            self.harness.loop.run_soon()
            self.check()

    # Invariants.

    def check(self) -> None:
        assert self.harness.loop.failures == []
        assert not self.harness.is_broken
        for group in self.harness.shard.groups:
            self.check_group(group)
        self.check_counts()
        self.check_parked()
        if not self.in_flight() and self.random.random() < 0.1:  # loading takes longer
            self.check_log()

    def in_flight(self) -> bool:
        hosted = self.harness.hosted
        return bool(hosted._open or hosted._uncommitted)

    def check_group(self, group: ClassicGroup) -> None:
        members = group.members
        assert (group.leader in members) if members else group.leader is None
        assert group.generation >= self.generations.get(group.group_id, 0), "a generation was counted down"
        self.generations[group.group_id] = group.generation
        assert (group.state is GroupState.EMPTY) <= (not members)
        assert group.pending_syncs <= members.keys()
        assert not group.pending_joins & members.keys()
        assert group.parked_join_count == sum(member.awaits_join for member in members.values())
        timers = self.harness.shard.timers
        for member in members.values():
            assert not (member.awaits_join and member.awaits_sync), "parked twice"
            has_session = f"session {len(group.group_id)} {group.group_id} {member.member_id}" in timers
            assert has_session or member.is_session_suspended, f"{member.member_id} will never expire"
        if group.state is GroupState.PREPARING_REBALANCE:
            assert f"join {group.group_id}" in timers, "the join phase will never end"
        else:
            assert group.parked_join_count == 0 or group.state is GroupState.STABLE, "parked outside of a join phase"
        if group.pending_syncs:
            assert f"sync {group.group_id}" in timers, "a member that does not sync will never be dropped"
        statics = {member.instance_id for member in members.values() if member.instance_id is not None}
        assert all(group.static_member_id(each) in members for each in statics)

    def check_counts(self) -> None:
        counts = dict.fromkeys(GroupState, 0)
        for group in self.harness.shard.groups:
            counts[group.state] += 1
        assert self.harness.shard.metrics.groups == counts

    def check_parked(self) -> None:
        """Check that every waiting request belongs to a known member; other requests would never be answered."""
        known = {
            member.member_id
            for group in self.harness.shard.groups
            for member in group.members.values()
            if member.awaits_join or member.awaits_sync
        }
        for worker in self.workers:
            waits = [box for box in (worker.joining, worker.syncing) if box is not None and box.answer is None]
            client = self.harness.client(worker.name)
            has_id = client.member_id != ""
            assert not waits or not has_id or client.member_id in known, f"{worker.name} waits for ever"

    def check_log(self) -> None:
        """Check that replaying the log yields the state in memory, as far as the log should contain it."""
        replayed = self.harness.replayed_shard()
        for group in self.harness.shard.groups:
            if group.state is GroupState.STABLE:
                twin = replayed.groups.get_or_raise(group.group_id)
                assert _persistent(twin) == _persistent(group)
        for key, possible in self.possible_offsets.items():
            stored = self.harness.shard.offsets.get(key)
            assert (-1 if stored is None else stored.offset) in possible, f"{key} is lost"
            assert replayed.offsets.get(key) == stored

    def check_everybody_works(self) -> None:
        for name in GROUPS:
            workers = [worker for worker in self.workers if worker.group == name]
            if not workers:
                continue
            group = self.harness.shard.groups.get_or_raise(name)
            assert group.state is GroupState.STABLE
            assert len(group.members) == len(workers)
            parts = [part for worker in workers for part in (worker.assignment or b"").decode().split("+") if part]
            assert sorted(map(int, parts)) == list(range(PARTITIONS))
            partitions = [("t", partition) for partition in range(PARTITIONS)]
            fetched = self.harness.fetch(partitions, group=name, stable=True)
            for partition in range(PARTITIONS):
                possible = self.possible_offsets.get(OffsetKey(name, "t", partition), {-1})
                assert fetched["t", partition] in possible


def _persistent(group: ClassicGroup) -> object:
    members = {
        member.member_id: (member.instance_id, member.assignment, member.metadata(group.protocol), member.client_id)
        for member in group.members.values()
    }
    return group.generation, group.protocol_type, group.protocol, group.leader, members


def run_seed(seed: int) -> GroupSimulation:
    """Run one random history."""
    simulation = GroupSimulation(seed)
    for _ in range(EVENTS):
        simulation.event()
    simulation.calm_down()
    simulation.check_everybody_works()
    return simulation


@pytest.mark.parametrize("seed", SEEDS)
def test_group_invariants_hold_under_random_operations(seed: int) -> None:
    run_seed(seed)

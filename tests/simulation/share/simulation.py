"""One history of a share partition."""

import heapq
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Final

from broker.share.partition import PersistedState, SharePartition, ShareUpdate, StateWrite
from broker.share.records import (
    AcknowledgementBatch,
    AcknowledgeType,
    AcquiredRecords,
    AcquireMode,
    AcquireRequest,
    FetchedBatches,
    OffsetSpan,
    ShareLimits,
)
from protocol.errors import ErrorCode
from tests.simulation.share.checker import ShareChecker
from tests.simulation.share.coordinator import CoordinatorModel
from tests.simulation.simulator import RECOVERY_EVENTS, Counts, Simulator

LOCK_MS: Final = 1_000
WRITE_TIMEOUT_MS: Final = 300
_LIMIT: Final = 4


class Leader:
    """A leader of the partition in one epoch; `partition` is None while its state is loading."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.partition: SharePartition | None = None
        self.is_dead = False
        self.write: StateWrite | None = None
        self.acknowledged: dict[ShareUpdate, tuple[AcknowledgementBatch, ...]] = {}
        self.leaving: dict[ShareUpdate, str] = {}


class ShareSimulator(Simulator):
    """A simulation of one share partition: its log, leaders, coordinator and members."""

    def __init__(self, seed: int, events: int) -> None:
        super().__init__(seed)
        self._rng = Random(seed)
        self._wanted = events
        self._now_ms = 0.0
        self._order = count()
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._checker = ShareChecker(lambda: self._now_ms, _LIMIT)
        self._coordinator = CoordinatorModel()
        self._log: list[OffsetSpan] = []
        self._log_start = self._log_end = 0
        self._leaders: list[Leader] = []
        self._members = [f"m{number}" for number in range(self._rng.randint(2, 5))]
        self._names = count(len(self._members))
        self._is_peace = False

    @property
    def events(self) -> int:
        return self._checker.events

    @property
    def counts(self) -> Counts:
        return self._checker.counts

    def last_lines(self, count: int) -> list[str]:
        return self._checker.last_lines(count)

    def close(self) -> None:
        self._heap.clear()

    def play(self) -> None:
        self._elect()
        self._every(40, self._produce)
        self._every(3_000, self._change_leader)
        self._every(2_000, self._delete_records)
        self._every(1_500, self._kill_member)
        for member in self._members:
            self._after(1, partial(self._poll, member))
        while self.events < self._wanted:
            self._step()
        self._is_peace = True
        self._checker.note("faults end")
        self._settle()

    def _settle(self) -> None:
        last = self.events + RECOVERY_EVENTS
        deadline_ms = self._now_ms + 120_000
        while True:
            self._step()
            current = self._leaders[-1]
            for each in self._leaders[:-1]:
                each.is_dead = True
            if current.partition is not None and current.partition.start_offset >= self._log_end:
                return
            if self.events > last or self._now_ms > deadline_ms:
                self._checker.fail("EverythingIsFinished", "records are left long after the last fault")

    # Time.

    def _after(self, delay_ms: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._heap, (self._now_ms + delay_ms, next(self._order), event))

    def _every(self, mean_ms: float, work: Callable[[], object]) -> None:
        def again() -> None:
            if not self._is_peace:
                work()
                self._after(self._rng.expovariate(1 / mean_ms), again)

        self._after(self._rng.expovariate(1 / mean_ms), again)

    def _step(self) -> None:
        self._now_ms, _, event = heapq.heappop(self._heap)
        self._checker.events += 1
        event()
        for leader in self._leaders:
            if leader.partition is not None and not leader.is_dead:
                self._checker.observe(leader.epoch, leader.partition)

    # The log and its leaders.

    def _produce(self) -> None:
        size = self._rng.randint(1, 12)
        hole = self._rng.choice((0, 0, 0, 0, 2))
        self._checker.missing.update(range(self._log_end, self._log_end + hole))
        self._log_end += hole
        self._log.append(OffsetSpan(self._log_end, self._log_end + size - 1))
        self._log_end += size

    def _delete_records(self) -> None:
        if len(self._log) < 60:
            return
        self._log_start = self._log[len(self._log) - 50].first
        self._checker.missing.update(range(self._log_start))
        self._log = [batch for batch in self._log if batch.first >= self._log_start]
        self._checker.counts.add("deleted records")

    def _change_leader(self) -> None:
        former = self._leaders[-1]
        if self._rng.random() < 0.5:
            self._checker.counts.add("unaware leaders")
            self._after(self._rng.uniform(10, 3_000), partial(setattr, former, "is_dead", True))
        else:
            former.is_dead = True
        self._elect()
        self._checker.counts.add("leader changes")

    def _elect(self) -> None:
        leader = Leader(len(self._leaders))
        self._leaders.append(leader)
        self._after(self._rng.uniform(1, 50), partial(self._load, leader))
        self._checker.note(f"leader {leader.epoch}")

    def _load(self, leader: Leader) -> None:
        state = self._coordinator.read(leader.epoch)
        if state is None:
            leader.is_dead = True
        else:
            self._after(self._rng.uniform(1, 50), partial(self._begin, leader, state))

    def _begin(self, leader: Leader, state: PersistedState) -> None:
        leader.partition = SharePartition(ShareLimits(_LIMIT, 150), leader.epoch, state)
        leader.partition.on_log_start(self._log_start)
        self._expire(leader)

    def _expire(self, leader: Leader) -> None:
        if leader.is_dead or leader.partition is None or leader.partition.is_fenced:
            return
        leader.partition.on_log_start(self._log_start)
        before = leader.partition.expired_locks
        leader.partition.expire(self._now_ms)
        self._checker.counts.add("elapsed locks", leader.partition.expired_locks - before)
        self._write(leader)
        self._after(20, partial(self._expire, leader))

    # Writes.

    def _write(self, leader: Leader) -> None:
        assert leader.partition is not None
        write = None if leader.is_dead else leader.partition.take_write()
        if write is None:
            return
        leader.write = write
        counts, fate = self._checker.counts, 1.0 if self._is_peace else self._rng.random()
        if fate < 0.1:
            counts.add("lost writes")
        elif fate < 0.2:
            counts.add("late writes")
            self._after(self._rng.uniform(WRITE_TIMEOUT_MS, 3_000), partial(self._coordinator.write, write))
        else:
            self._after(self._rng.uniform(1, 30), partial(self._arrive, leader, write))
        if 0.2 < fate < 0.3:
            counts.add("repeated writes")
            self._after(self._rng.uniform(30, 3_000), partial(self._coordinator.write, write))
        self._after(WRITE_TIMEOUT_MS, partial(self._answer, leader, write, ErrorCode.NETWORK_EXCEPTION))

    def _arrive(self, leader: Leader, write: StateWrite) -> None:
        error = self._coordinator.write(write)
        if self._is_peace or self._rng.random() < 0.95:
            self._after(self._rng.uniform(1, 30), partial(self._answer, leader, write, error))

    def _answer(self, leader: Leader, write: StateWrite, error: ErrorCode) -> None:
        if leader.is_dead or leader.write is not write or leader.partition is None:
            return
        leader.write = None
        for update in leader.partition.on_written(error):
            batches = leader.acknowledged.pop(update, ())
            member = leader.leaving.pop(update, None)
            if error is ErrorCode.NONE:
                self._checker.on_durable(leader.epoch, batches)
                if member is not None:
                    self._checker.on_released(leader.epoch, member)
            elif batches:
                self._checker.counts.add("failed acknowledgements")
        if leader.partition.is_fenced:
            self._checker.counts.add("fenced writes")
            leader.is_dead = True
        self._write(leader)

    # Members.

    def _poll(self, member: str) -> None:
        if member not in self._members:
            return
        alive = [each for each in self._leaders[-2:] if not each.is_dead and each.partition is not None]
        if alive:
            self._fetch(member, self._rng.choice(alive))
        self._after(self._rng.uniform(5, 80), partial(self._poll, member))

    def _fetch(self, member: str, leader: Leader) -> None:
        partition, rng = leader.partition, self._rng
        assert partition is not None
        if not partition.can_acquire:
            return
        offset = partition.next_fetch_offset
        found = tuple(batch for batch in self._log if batch.last >= offset)[: rng.randint(1, 5)]
        mode = rng.choice(tuple(AcquireMode))
        request = AcquireRequest(member, rng.randint(1, 30), rng.randint(1, 20), mode)
        until_ms = self._now_ms + LOCK_MS
        acquired = partition.acquire(request, FetchedBatches(offset, found), until_ms)
        if acquired:
            self._checker.note(f"{member} gets {acquired} from leader {leader.epoch}")
            is_deposed = self._coordinator.is_fenced(leader.epoch)
            self._checker.on_acquired(leader.epoch, member, acquired, until_ms, is_deposed=is_deposed)
            delay_ms = rng.choice((rng.uniform(1, 100), rng.uniform(1, 100), rng.uniform(500, 1_500)))
            self._after(delay_ms, partial(self._acknowledge, member, leader, acquired))

    def _acknowledge(self, member: str, leader: Leader, acquired: list[AcquiredRecords]) -> None:
        partition = leader.partition
        if leader.is_dead or partition is None or member not in self._members:
            return
        batches = tuple(AcknowledgementBatch(each.first, each.last, self._types(each)) for each in acquired)
        if not self._is_peace and self._rng.random() < 0.1:
            batches = tuple(each._replace(types=(AcknowledgeType.RENEW,)) for each in batches)
            self._after(self._rng.uniform(100, 600), partial(self._acknowledge, member, leader, acquired))
        start, until_ms = partition.start_offset, self._now_ms + LOCK_MS
        update = partition.acknowledge(member, batches, until_ms)
        if isinstance(update, ErrorCode):
            return
        self._checker.on_taken(leader.epoch, member, start, batches)
        if batches[0].types == (AcknowledgeType.RENEW,):
            offsets = [offset for each in batches for offset in range(each.first, each.last + 1)]
            self._checker.on_renewed(leader.epoch, offsets, until_ms)
            return
        self._checker.on_attempt(batches)
        if update.batches:
            leader.acknowledged[update] = batches
        self._write(leader)

    def _types(self, acquired: AcquiredRecords) -> tuple[AcknowledgeType, ...]:
        kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.GAP)
        weights = (1, 0, 0, 0) if self._is_peace else (8, 3, 1, 1)
        size = acquired.last - acquired.first + 1 if self._rng.random() < 0.5 else 1
        return tuple(self._rng.choices(kinds, weights, k=size))

    def _kill_member(self) -> None:
        """End a member; leaders learn of it from their connections, or only from the lock."""
        member = self._rng.choice(self._members)
        self._members.remove(member)
        self._checker.counts.add("dead members")
        if self._rng.random() < 0.7:
            for leader in self._leaders[-2:]:
                if leader.partition is not None and not leader.is_dead:
                    leader.leaving[leader.partition.release_member(member)] = member
                    self._write(leader)
        successor = f"m{next(self._names)}"
        self._members.append(successor)
        self._after(10, partial(self._poll, successor))

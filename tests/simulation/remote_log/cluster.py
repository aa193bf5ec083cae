"""Simulator of a tiered partition on three brokers, one history per seed.

Brokers have real logs, the real RemoteLogManager with its drivers, and a real segment store over a bucket with all
kinds of faults (`store.py`). They share remote metadata, whose responses may be delayed or lost. The schedule does
replication, elections, isolation of leaders, power losses, clock steps and local retention; consumers read meanwhile,
and `ottla remote collect` and `recover` run at times. All randomness comes from the seed; time is that of a
`SimulatedLoop`.

`checker.py` has the invariants.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from random import Random

from broker.runtime.remote_log.settings import RemoteLogSettings
from storage.config import LogConfig
from storage.errors import LogDirFailure
from storage.tiered.segment_metadata import RemoteSegment, SegmentUpdate
from storage.tiered.stores.backoff import Backoff
from tests.simulation.remote_log.checker import Checker
from tests.simulation.remote_log.collector import Collector, Journal
from tests.simulation.remote_log.consumer import Consumer
from tests.simulation.remote_log.failures import Failures
from tests.simulation.remote_log.gauges import GaugeChecker
from tests.simulation.remote_log.loop import SimulatedLoop
from tests.simulation.remote_log.replicas import Replicas
from tests.simulation.remote_log.state import SEGMENT_BYTES, TASK_INTERVAL_MS, RemoteStorageCounts, State
from tests.simulation.remote_log.store import Weather
from tests.simulation.simulator import Simulator
from tests.simulation.world import early_ms_of
from tests.support.harnesses.remote_log_harness import TIERED, Bucket, LoopClock

BROKERS = 3
CHUNK_S = 25.0
"""Longest time without fetches of followers."""
PEACE_STEP_S = 25.0


class RemoteStorageSimulator(Simulator):
    """Simulator of a tiered partition; its history is in `state`."""

    def __init__(self, seed: int, events: int) -> None:
        super().__init__(seed)
        self.random = Random(f"tiered {seed}")
        self._least_events = events
        self.clock = LoopClock()
        weather = Weather(self.random, self.clock.now_ms)
        self.state = State(seed, self.random, Bucket(), weather, _config(self.random), _settings(self.random))
        self.checker = Checker(self.state)
        self.gauges = GaugeChecker(self.state)
        self.consumer = Consumer(self.state, self.checker)
        self.replicas = Replicas(self.state)
        self.failures = Failures(self.state, self.replicas)
        self.failures.on_log_start = self.checker.check_start
        self._weights = self._schedule()

    # ---- one history

    @property
    def events(self) -> int:
        return self.state.events

    @property
    def counts(self) -> RemoteStorageCounts:
        return self.state.counts

    def last_lines(self, count: int) -> list[str]:
        return list(self.state.lines)[-count:]

    def play(self) -> None:
        try:
            SimulatedLoop(early_s=early_ms_of(self.state.seed) / 1000).run(self._main())
        except Exception:
            if self.state.found is not None:  # raised inside of a broker, which wraps it
                raise self.state.found from None
            raise
        finally:
            counts = self.state.counts
            counts.set(self.state.weather.happened)
            counts.set({"late PUTs": self.state.weather.memory.late_puts})
            counts.set({"zombie hours": round(self.state.zombie_s / 3600)})

    def close(self) -> None:
        """Do nothing: the loop cancels all brokers."""

    async def _main(self) -> None:
        state, publish = self.state, self.state.bucket.metadata.publish
        self._delay_metadata()
        state.weather.memory.on_put = self.checker.check_put
        state.weather.latest_s = state.grace_s / 2
        self.failures.uploads_s = self.random.choice([0.2, 30.0, 200.0, 2 * state.grace_s, 2 * state.grace_s])
        state.servers = [self.failures.new_server(number) for number in range(1, BROKERS + 1)]
        self.collector = Collector(
            state, state.weather.faulty, Journal(state.bucket.metadata, publish), self.clock.now_ms
        )
        await self._live()

    async def _live(self) -> None:
        state = self.state
        for server in state.servers:
            self.failures.begin(server)
        state.in_sync = {server.id for server in state.servers}
        self.replicas.elect()
        while state.events < self._least_events:
            state.actions += 1
            await self._act()
            await self.failures.bury_the_dead()
            self.replicas.reconnect()
            self.replicas.sync_watermarks()
            self.consumer.poll()
            self.checker.check()
            self.gauges.check()
        await self._recover()

    def _delay_metadata(self) -> None:
        """Delay metadata events, in order, and lose some responses."""
        metadata, due = self.state.bucket.metadata, [0.0]
        publish = metadata.publish
        loop = asyncio.get_running_loop()

        def later(event: object, done: "asyncio.Future[None]") -> None:
            if isinstance(event, RemoteSegment):
                self.checker.check_copy(event)
            if isinstance(event, SegmentUpdate):
                self.checker.check_update(event)
            due[0] = max(due[0], loop.time() + self.random.uniform(0.0, 0.3))
            loop.call_at(due[0], apply, event, done)

        def apply(event: object, done: "asyncio.Future[None]") -> None:
            if self.random.random() < self.state.weather.failing / 3:
                metadata.fail_next(TimeoutError("no answer"), applies=self.random.random() < 0.5)
            publish(event, done)  # type: ignore[arg-type]

        metadata.publish = later  # type: ignore[method-assign]

    # ---- ---- schedule

    def _schedule(self) -> tuple[list[Callable[[], None]], list[float]]:
        replicas, failures = self.replicas, self.failures
        choices: list[tuple[float, Callable[[], None]]] = [
            (10, replicas.produce),
            (8, replicas.replicate_some),
            (4, self._retain_some),
            (2, replicas.toggle_transaction),
            (1, replicas.delete_records),
            (1, failures.toggle_store),
            (1, replicas.elect),
            (0.7, failures.kill_during_request),
            (1, self._audit),
            (1, self._collect),
            (1, failures.flush_some),
            (0.5, self._cut_off),
            (self.random.choice([0.0, 0.5]), failures.step_a_clock),
            (0.3, failures.rot_on_disk),
            (0.2, failures.fill_a_disk),
            (0.1, failures.rot_in_store),
            (0.05, failures.hide_log_starts),
            (0.5, self._recover_metadata),
        ]
        return [each for _, each in choices], list(accumulate(weight for weight, _ in choices))

    async def _act(self) -> None:
        actions, weights = self._weights
        action = self.random.choices(actions, cum_weights=weights)[0]
        with contextlib.suppress(LogDirFailure):
            action()
        self.failures.note_failed_disks()
        luck = self.random.random()
        if luck < 0.022:
            await self.failures.crash_or_restart(self.random.choice(self.state.servers))
        elif luck < 0.026:
            await self.failures.lose_power()
        elif luck < 0.032:
            await self._lose_metadata()
        elif luck < 0.042:
            await self._pause(self.random.uniform(0.2, 2.0) * self.state.grace_s)
        else:
            await self._pause(self.random.choice([0.0, 0.0, 0.5, 2.0, 10.0, 40.0]))

    async def _lose_metadata(self) -> None:
        """Lose metadata; at times the operator does not notice, and collects."""
        await self.failures.lose_metadata()
        if self.random.random() < 0.5:
            self.state.counts.add("collections after metadata losses")
            await self._pause(self.random.uniform(0.0, 1.5) * self.state.grace_s)
            self.collector.audit()
            await self._pause(5.0)
            self.collector.remove()

    async def _pause(self, seconds: float) -> None:
        """Let time pass; followers fetch meanwhile."""
        end_s = asyncio.get_running_loop().time() + seconds
        while (left_s := end_s - asyncio.get_running_loop().time()) > 0:
            self.replicas.sync_watermarks()
            self.replicas.reconnect()
            await asyncio.sleep(min(left_s, CHUNK_S))

    def _retain_some(self) -> None:
        if self.state.alive:
            server = self.random.choice(self.state.alive)
            self.checker.check_local_deletions(server, server.broker.retain())

    def _cut_off(self) -> None:
        grace_s = self.state.grace_s
        self.replicas.cut_off_leader(self.random.choice([60.0, 2 * grace_s, 5 * grace_s]))

    def _audit(self) -> None:
        self.collector.audit()

    def _collect(self) -> None:
        self.collector.remove()

    def _recover_metadata(self) -> None:
        if self.state.unrecorded:
            self.collector.recover()

    # ---- peace

    async def _recover(self) -> None:
        state = self.state
        state.note("faults end")
        self._heal()
        state.weather.restore_log_starts()
        await self.failures.bury_the_dead()
        self.replicas.reconnect(at_once=True)
        await self.failures.revive()
        self.replicas.elect()  # a new leader reads again what was damaged
        while state.leader is None:
            state.in_sync = {server.id for server in state.alive}
            self.replicas.elect()
        self.replicas.abort_open(state.leader)
        if state.unrecorded:
            self.collector.recover()
            await asyncio.sleep(1)
        state.is_recovered = True
        await self._rest(4 * state.grace_s)
        for _ in range(3 if state.unrecorded else 0):  # segments that others held before have to be recovered now
            self.collector.recover()
            await self._rest(2 * state.grace_s)
        self.checker.check_nothing_left_over(strictly=False)
        self.collector.audit()
        self.collector.remove()
        self.checker.check_nothing_left_over(strictly=True)
        await self._rest(state.grace_s / 2)  # after the collection the leader decides once more, and reports
        self.gauges.check_at_peace()
        self.consumer.read_all()
        self.collector.check_in_order()

    async def _rest(self, seconds: float) -> None:
        """Let time pass without faults."""
        end_s = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end_s:
            for follower in self.state.followers:
                self.replicas.replicate(follower)
            self.replicas.commit()
            await asyncio.sleep(PEACE_STEP_S)
            self.checker.check()
            self.gauges.check()

    def _heal(self) -> None:
        self.state.weather.heal()
        self.failures.uploads_s = 0.2
        for server in self.state.servers:
            server.connection.revive()
            server.clock.offset_ms = 0
            server.broker.fs.capacity_bytes = None
            for rot in server.present_rot():
                rot.mend()


def _settings(random: Random) -> RemoteLogSettings:
    return RemoteLogSettings(
        task_interval_ms=TASK_INTERVAL_MS,
        remover_interval_ms=600_000,
        grace_ms=random.choice([600_000, 600_000, 1_200_000]),
        backoff=Backoff(5_000, 60_000, 0.2),
    )


def _config(random: Random) -> LogConfig:
    by_size = random.choice([-1, -1, 4_000, 12_000])
    local = random.choice([0, 1_500, 5_000])
    return replace(
        TIERED,
        segment_bytes=SEGMENT_BYTES,
        local_retention_bytes=local if by_size < 0 else min(1_500, by_size),
        retention_ms=random.choice([-1, -1, 1_800_000]),
        retention_bytes=by_size,
    )

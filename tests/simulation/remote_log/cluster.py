"""Simulator of a tiered partition on three brokers, one history per seed.

Brokers have real logs, the real RemoteLogManager with its drivers, and a real segment store over a bucket with all
kinds of faults (`store.py`). They share remote metadata, whose responses may be delayed or lost. The schedule does
replication, clean and unclean elections, and local retention; consumers read meanwhile, and `ottla remote collect` runs
at times. All randomness comes from the seed; time is that of a `FastForwardLoop`.

`checker.py` has the invariants.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random

from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType
from storage.config import LogConfig
from storage.log import Log
from storage.producer_state import Origin, ProducerState
from storage.remote_log_start import RemoteLogStart
from storage.retention import SegmentDeletionReason
from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.segment_metadata import RemoteSegment, SegmentUpdate
from storage.tiered.segments.reading import SegmentReader
from tests.simulation.remote_log.checker import Checker
from tests.simulation.remote_log.collector import Collector, Journal
from tests.simulation.remote_log.consumer import Consumer
from tests.simulation.remote_log.state import RECORDS, SEGMENT_BYTES, RemoteStorageCounts, Server, State
from tests.simulation.remote_log.store import Connection, Weather
from tests.simulation.simulator import Simulator
from tests.support.fakes.fast_forward_loop import run_fast
from tests.support.fakes.transaction_markers import end_transaction_marker
from tests.support.harnesses.remote_log_harness import SETTINGS, TIERED, Broker, Bucket, HarnessReplica, LoopClock

BROKERS = 3
VALUE = 30
GRACE_S = SETTINGS.grace_ms / 1000
INDEX_CACHE_BYTES = 2_000


class RemoteStorageSimulator(Simulator):
    """Simulator of a tiered partition; its history is in `state`."""

    def __init__(self, seed: int, events: int) -> None:
        super().__init__(seed)
        self.random = Random(f"tiered {seed}")
        self._least_events = events
        self.clock = LoopClock()
        weather = Weather(self.random, self.clock.now_ms)
        self.state = State(seed, self.random, Bucket(), weather, _config(self.random))
        self.checker = Checker(self.state)
        self.consumer = Consumer(self.state, self.checker)
        self.open_producer: int | None = None
        self.producers = 0
        self.restarted: set[int] = set()
        self.uploads_s = 0.2

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
            run_fast(self._main())
        except Exception:
            if self.state.found is not None:  # raised inside of a broker, which wraps it
                raise self.state.found from None
            raise
        finally:
            self.state.counts.set(self.state.weather.happened)

    def close(self) -> None:
        """Do nothing: `play` stops all brokers."""

    async def _main(self) -> None:
        publish = self.state.bucket.metadata.publish
        self._delay_metadata()
        self.uploads_s = self.random.choice([0.2, 3.0, 40.0])
        self.state.servers = [self._server(number) for number in range(1, BROKERS + 1)]
        self.collector = Collector(
            self.state, self.state.weather.faulty, Journal(self.state.bucket.metadata, publish), self.clock.now_ms
        )
        try:
            await self._live()
        finally:
            for server in self.state.servers:
                await server.broker.give_up()

    def _server(self, number: int) -> Server:
        weather = self.state.weather
        connection = Connection(weather.faulty)
        storage = weather.connect(connection)
        broker = Broker(
            self.state.bucket,
            number,
            upload_s=lambda: self.random.uniform(0.0, self.uploads_s),
            storage=storage,
            answer_s=weather.answer_s,
        )
        reader = SegmentReader(storage, IndexCache(broker.fs, "index-cache", storage, INDEX_CACHE_BYTES))
        return Server(broker, connection, reader)

    async def _live(self) -> None:
        state = self.state
        for server in state.servers:
            server.broker.config = state.config
            server.broker.start()
            self._watch(server.broker.replica())
        state.in_sync = {server.id for server in state.servers}
        self._elect()
        while state.events < self._least_events:
            state.actions += 1
            await self._act()
            await self._bury_the_dead()
            self._sync_watermarks()
            self.consumer.poll()
            self.checker.check()
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
                self.checker.note_deletion(event)
            due[0] = max(due[0], loop.time() + self.random.uniform(0.0, 0.3))
            loop.call_at(due[0], apply, event, done)

        def apply(event: object, done: "asyncio.Future[None]") -> None:
            if self.random.random() < self.state.weather.failing / 3:
                metadata.fail_next(TimeoutError("no answer"), applies=self.random.random() < 0.5)
            publish(event, done)  # type: ignore[arg-type]

        metadata.publish = later  # type: ignore[method-assign]

    def _watch(self, replica: HarnessReplica) -> None:
        """Check each log start offset that a broker sets on its log."""

        def moved() -> None:
            self.checker.check_start(replica.log)

        def low_watermark() -> int:
            return min(server.log.log_start_offset for server in self.state.servers if server.is_up)

        replica.on_log_start_moved = moved  # type: ignore[method-assign]
        replica.low_watermark = low_watermark  # type: ignore[method-assign]

    # ---- ---- schedule

    async def _act(self) -> None:
        choices: list[tuple[float, Callable[[], None]]] = [
            (10, self._produce),
            (8, self._replicate_some),
            (4, self._retain_some),
            (2, self._toggle_transaction),
            (1, self._delete_records),
            (1, self._toggle_store),
            (1, self._elect),
            (0.7, self._kill_during_request),
            (1, self._audit),
            (1, self._collect),
        ]
        action = self.random.choices([each for _, each in choices], [weight for weight, _ in choices])[0]
        action()
        if self.random.random() < 0.03:
            await self._crash_or_restart(self.random.choice(self.state.servers))
        for _ in range(self.random.choice([0, 1, 2, 10])):
            self._sync_watermarks()
            await asyncio.sleep(0.5)

    @property
    def _alive(self) -> list[Server]:
        return [server for server in self.state.servers if server.is_up]

    @property
    def _followers(self) -> list[Server]:
        return [server for server in self._alive if server is not self.state.leader]

    # ---- clients

    def _produce(self) -> None:
        if self.state.leader is not None:
            for _ in range(self.random.randint(1, 3)):
                self._append(self.state.leader.log, transactional=self.open_producer is not None)

    def _append(self, log: Log, *, transactional: bool) -> None:
        epoch, now_ms = self.state.epoch, self.clock.now_ms()
        values = [f"{epoch}/{log.log_end_offset + n}".encode().ljust(VALUE, b".") for n in range(RECORDS)]
        fields = {"producer_id": self.open_producer, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
        data = build_batch([Record(now_ms, b"k", value) for value in values], transactional=transactional, **fields)  # type: ignore[arg-type]
        info = log.append_as_leader(bytearray(data), epoch, now_ms=now_ms, origin=Origin.COORDINATOR)
        if not info.duplicate:
            for number, value in enumerate(values):
                self.state.written[epoch, info.first_offset + number] = value

    def _toggle_transaction(self) -> None:
        if self.state.leader is None:
            return
        if self.open_producer is None:
            self.producers += 1
            self.open_producer = self.producers
            self._append(self.state.leader.log, transactional=True)
            return
        kind = self.random.choice([ControlType.ABORT, ControlType.COMMIT])
        self._end_transaction(self.state.leader.log, kind, self.open_producer)
        self.open_producer = None

    def _end_transaction(self, log: Log, kind: ControlType, producer: int) -> None:
        now_ms = self.clock.now_ms()
        marker = end_transaction_marker(kind, producer, 0, 0, now_ms)
        log.append_as_leader(bytearray(marker), self.state.epoch, now_ms=now_ms, origin=Origin.COORDINATOR)

    def _delete_records(self) -> None:
        state = self.state
        if state.leader is not None and self.random.random() < 0.5:
            log = state.leader.log
            target = self.random.randint(log.log_start_offset, min(log.log_start_offset + 60, log.high_watermark))
            if log.maybe_increment_log_start_offset(target):
                state.trimmed_to = target
                state.gone_below = max(state.gone_below, target)
                state.note(f"records deleted below {target}")

    # ---- replication

    def _replicate_some(self) -> None:
        if self.state.leader is not None and self._followers:
            self._replicate(self.random.choice(self._followers), rounds=self.random.randint(1, 6))
        self._commit()

    def _sync_watermarks(self) -> None:
        """Advance the high watermark and log start offset of in-sync followers, as frequent fetches do."""
        if self.state.leader is not None:
            source = self.state.leader.log
            for server in self._followers:
                if server.id in self.state.in_sync:
                    server.log.follow_high_watermark(source.high_watermark)
                    server.log.maybe_increment_log_start_offset(min(source.log_start_offset, server.log.high_watermark))

    def _replicate(self, follower: Server, rounds: int = 1_000) -> None:
        """Replicate as many batches as fit some fetches, after a truncation to the leader's log."""
        assert self.state.leader is not None
        source, target, now_ms = self.state.leader.log, follower.log, self.clock.now_ms()
        common = common_end(source, target)
        if common < target.log_end_offset:
            self.state.in_sync.discard(follower.id)
        if common > source.log_start_offset:
            target.truncate_to(common, now_ms=now_ms)  # also removes epochs without records
        elif (target.log_start_offset, target.log_end_offset) != (source.log_start_offset, source.log_start_offset):
            target.truncate_fully_and_start_at(source.log_start_offset, now_ms=now_ms)
        if target.log_end_offset < source.local_log_start_offset:
            self._begin_from_tier(source, follower)
        for _ in range(rounds):
            if target.log_end_offset >= source.log_end_offset:
                break
            found = source.read(target.log_end_offset, 1, source.log_end_offset)
            target.append_as_follower(bytes(found.data), now_ms=now_ms)
        target.follow_high_watermark(source.high_watermark)
        target.maybe_increment_log_start_offset(min(source.log_start_offset, target.high_watermark))
        if target.log_end_offset == source.log_end_offset:
            self.state.in_sync.add(follower.id)
            self.restarted.discard(follower.id)

    def _begin_from_tier(self, source: Log, follower: Server) -> None:
        start = source.local_log_start_offset
        producers = ProducerState()
        producers.end_offset = start
        entries = tuple(entry for entry in source.epochs.entries if entry.start_offset < start)
        self.state.counts.add("starts from the tier")
        follower.log.start_behind_remote_log(
            RemoteLogStart(
                next_offset=start, log_start_offset=source.log_start_offset, epochs=entries, producers=producers
            ),
            now_ms=self.clock.now_ms(),
            checkpoint=lambda log: follower.broker.dirs.checkpoints.write_log_starts(),
        )

    def _commit(self) -> None:
        if self.state.leader is not None:
            self.state.in_sync.add(self.state.leader.id)
            ends = [self.state.servers[number - 1].log.log_end_offset for number in self.state.in_sync]
            self.state.leader.log.advance_high_watermark(min(ends))

    def _elect(self) -> None:
        """Elect another leader, usually from the in-sync replicas."""
        state, clean = self.state, [server for server in self._alive if server.id in self.state.in_sync]
        if not clean and self.random.random() < 0.5:
            clean = self._alive
            state.counts.add("unclean elections", int(bool(clean)))
        if not clean:
            return
        leader = state.leader = self.random.choice(clean)
        is_clean = leader.id in state.in_sync
        if not is_clean:
            state.in_sync = {leader.id}
        # A replica that was down or isolated may not know the log start offset for a while.
        state.log_start_may_be_unknown |= not is_clean or leader.id in self.restarted
        state.epoch += 1
        state.counts.add("elections")
        self.open_producer = None  # the client is gone: its open transaction holds the last stable offset
        if leader.log.producers.open_transactions:
            self._abort_open(leader.log)
        state.note(f"{leader.id} leads epoch {state.epoch} from {leader.log}")
        leader.broker.lead(state.epoch)
        for follower in self._followers:
            follower.broker.follow(state.epoch)

    def _abort_open(self, log: Log) -> None:
        for producer in list(log.producers.open_transactions.values()):
            self._end_transaction(log, ControlType.ABORT, producer)

    # ---- disks, processes, the store

    def _retain_some(self) -> None:
        if not self._alive:
            return
        server = self.random.choice(self._alive)
        log = server.log
        for expired in server.broker.retain():
            for segment in expired.segments:
                self.state.counts.add("local deletions")
                if expired.reason is not SegmentDeletionReason.BELOW_LOG_START:
                    end = min(other.base_offset for other in log.segments if other.base_offset > segment.base_offset)
                    first = max(segment.base_offset, log.log_start_offset, self.state.gone_below)
                    what = f"left the disk of {server.id}"
                    self.checker.check_remote(log, first, end, "NotDroppedBeforeCopied", what)

    def _toggle_store(self) -> None:
        weather = self.state.weather
        if weather.is_down or self.random.random() < 0.5:
            weather.toggle()
            self.state.counts.add("outages", int(weather.is_down))
            self.state.note(f"store down: {weather.is_down}")

    def _kill_during_request(self) -> None:
        """Kill a broker in the middle of its next store request."""
        if self._alive:
            server = self.random.choice(self._alive)
            server.connection.die_after(self.random.randint(0, 6), server.die)

    async def _bury_the_dead(self) -> None:
        for server in self._alive:
            if server.is_dying:
                self.state.counts.add("deaths in the middle of a request")
                await self._crash_or_restart(server)

    async def _crash_or_restart(self, server: Server) -> None:
        if not server.is_up:
            self._restart(server)
            return
        self.state.counts.add("crashes")
        self.state.note(f"{server.id} crashes")
        if self.random.random() < 0.7:
            server.broker.dirs.checkpoints.write_recovery_points()
            server.broker.dirs.checkpoints.write_high_watermarks()
        await server.broker.crash()
        if len(self.state.in_sync) > 1:
            self.state.in_sync.discard(server.id)
        if server is self.state.leader:
            self.state.leader = None
            self._elect()

    def _restart(self, server: Server) -> None:
        self.state.note(f"{server.id} starts")
        self.restarted.add(server.id)
        server.connection.revive()
        server.is_dying = False
        server.broker.start()
        self._watch(server.broker.replica())
        if self.state.leader is None:
            self._elect()
        elif server is not self.state.leader:
            server.broker.follow(self.state.epoch)

    def _audit(self) -> None:
        self.collector.audit()

    def _collect(self) -> None:
        self.collector.remove()

    async def _recover(self) -> None:
        state = self.state
        state.note("faults end")
        state.weather.heal()
        self.uploads_s = 0.2
        for server in state.servers:
            server.connection.revive()
        await self._bury_the_dead()
        for server in state.servers:
            if not server.is_up:
                self._restart(server)
        while state.leader is None:
            state.in_sync = {server.id for server in state.servers}
            self._elect()
        self._abort_open(state.leader.log)
        for _ in range(round(4 * GRACE_S)):
            for follower in self._followers:
                self._replicate(follower)
            self._commit()
            await asyncio.sleep(1)
            self.checker.check()
        self.checker.check_nothing_left_over()
        self.collector.audit()
        self.collector.remove()
        self.checker.check_nothing_left_over()
        self.consumer.read_all()
        self.collector.check_in_order()


def _config(random: Random) -> LogConfig:
    by_size = random.choice([-1, -1, 4_000, 12_000])
    local = random.choice([0, 1_500, 5_000])
    return replace(
        TIERED,
        segment_bytes=SEGMENT_BYTES,
        local_retention_bytes=local if by_size < 0 else min(1_500, by_size),
        retention_ms=random.choice([-1, -1, 90_000]),
        retention_bytes=by_size,
    )


def common_end(one: Log, other: Log) -> int:
    """Return the offset at which two logs diverge."""
    offset = min(one.log_end_offset, other.log_end_offset)
    floor = max(one.log_start_offset, other.log_start_offset)
    while offset > floor and one.epochs.epoch_for_offset(offset - 1) != other.epochs.epoch_for_offset(offset - 1):
        offset -= 1
    return offset

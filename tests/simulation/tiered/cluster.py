"""One seed, one history of a tiered partition on three brokers: what befalls it, and what must hold all the while.

The brokers are those of `remote_stage`: real logs, the real RemoteLogManager with all it drives, a shared store and
shared metadata that answer late, fail, lose answers. Replication, elections, clean and unclean, and local retention are
done by the schedule. Everything random comes out of the seed; time is a `FastForwardLoop`'s.

What must hold, after every action:
 1. every offset from the leader's log start to its high watermark can be read, here or from a finished segment, and is
    what was written there by the leader of its epoch (except below where a former leader let the log begin, once a
    replica has led that may not have heard of it);
 2. no copy begins of anything at or above the last stable offset;
 3. nothing leaves a disk that is not in a finished segment, unless it is below the log start;
 4. retention by size leaves at least as much as it should.
And when all is well again for a while:
 5. there is no segment that was begun and not ended, no object without metadata, no metadata without object, and no
    segment that holds nothing which others do not.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from protocol.primitives import Uuid
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, end_transaction_marker
from protocol.records.reader import iter_all_records
from storage.log import Log
from storage.producer_state import Origin, ProducerState
from storage.retention import Reason
from storage.tier_start import TierStart
from storage.tiered.copying import lineage_of
from storage.tiered.errors import RemoteStorageError, RetriableRemoteStorageError
from storage.tiered.expiry import Tier, chain
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
from tests.support.fast_forward_loop import run_fast
from tests.support.remote_stage import SETTINGS, TIERED, Broker, Bucket, StagedReplica
from tests.support.shared_remote_storage import Fault, Operation, SharedRemoteStorage

BROKERS = 3
RECORDS = 5
SEGMENT_BYTES = 1_000
"""Some three batches."""
VALUE = 30
GRACE_S = SETTINGS.grace_ms / 1000


class Violation(AssertionError):
    """Something that must hold does not."""


@dataclass(slots=True)
class Counts:
    """What a history had of what it is about: one that had nothing shows nothing."""

    copies: int = 0
    local_deletions: int = 0
    remote_deletions: int = 0
    elections: int = 0
    unclean: int = 0
    crashes: int = 0
    tier_starts: int = 0
    collected: int = 0


@dataclass(slots=True)
class Weather:
    """Of the store: how often calls fail, and whether it is down."""

    random: Random
    failing: float
    is_down: bool = False
    counts: Counts = field(default_factory=Counts)

    def __call__(self, operation: Operation, segment: RemoteSegment) -> Fault | None:
        if operation == "copy":
            self.counts.copies += 1
        if operation == "delete":
            self.counts.remote_deletions += 1
        if self.is_down:
            return Fault(RetriableRemoteStorageError("the store is down"))
        if self.random.random() >= self.failing:
            return None
        kind = self.random.choice([RemoteStorageError, RetriableRemoteStorageError])
        return Fault(kind("it failed"), applies=self.random.random() < 0.5)


class Cluster:
    """Use once: `run`. `lines` tell what happened."""

    def __init__(self, seed: int, actions: int = 250) -> None:
        self.seed = seed
        self.random = Random(f"tiered {seed}")
        self.actions = actions
        self.lines: list[str] = []
        self.counts = Counts()
        self.weather = Weather(self.random, self.random.choice([0.0, 0.05, 0.3]), counts=self.counts)
        self.by_size = self.random.choice([None, None, 4_000, 12_000])
        self.by_time_ms = self.random.choice([-1, -1, 90_000])
        self.config = replace(
            TIERED,
            segment_bytes=SEGMENT_BYTES,
            local_retention_bytes=self.random.choice([0, 1_500, 5_000]),
            retention_ms=self.by_time_ms,
            retention_bytes=-1 if self.by_size is None else self.by_size,
        )
        if self.by_size is not None:
            self.config = replace(self.config, local_retention_bytes=min(1_500, self.by_size))
        self.epoch = -1
        self.leader: Broker | None = None
        self.in_sync: set[int] = set()
        self.written: dict[tuple[int, int], bytes] = {}
        self.open_producer: int | None = None
        self.producers = 0
        self.trimmed_to = 0
        self.gone_below = 0
        self.found: Violation | None = None
        self.restarted: set[int] = set()
        self.may_be_told_late = False
        self.uploads_s = 0.2
        self.lost_with_crash: set[Uuid] = set()

    # ---- one history

    def run(self) -> Counts:
        """Raises Violation."""
        try:
            run_fast(self._main())
        except Exception:
            if self.found is not None:  # inside of a broker, perhaps
                raise self.found from None
            raise
        return self.counts

    async def _main(self) -> None:
        self.bucket = Bucket()
        self.bucket.storage = SharedRemoteStorage(self.weather)
        self._delay_metadata()
        self.uploads_s = self.random.choice([0.2, 3.0, 40.0])
        self.brokers = [
            Broker(self.bucket, number, upload_s=lambda: self.random.uniform(0.0, self.uploads_s))
            for number in range(1, BROKERS + 1)
        ]
        try:
            await self._live()
        finally:
            for broker in self.brokers:
                await broker.give_up()

    async def _live(self) -> None:
        for broker in self.brokers:
            broker.config = self.config
            broker.start()
            self._watch(broker.replica())
        self.in_sync = {broker.id for broker in self.brokers}
        self._elect()
        for _ in range(self.actions):
            await self._act()
            self._tell_marks()
            self.check()
        await self._make_peace()

    def _delay_metadata(self) -> None:
        """Events take effect a little later, in order; now and then the answer gets lost."""
        metadata, due = self.bucket.metadata, [0.0]
        publish = metadata.publish
        loop = asyncio.get_running_loop()

        def later(event: object, done: "asyncio.Future[None]") -> None:
            if isinstance(event, RemoteSegment):
                self._check_copy(event)
            due[0] = max(due[0], loop.time() + self.random.uniform(0.0, 0.3))
            loop.call_at(due[0], apply, event, done)

        def apply(event: object, done: "asyncio.Future[None]") -> None:
            if self.random.random() < self.weather.failing / 3:
                metadata.fail_next(TimeoutError("no answer"), applies=self.random.random() < 0.5)
            publish(event, done)  # type: ignore[arg-type]

        metadata.publish = later  # type: ignore[method-assign]

    def _watch(self, replica: StagedReplica) -> None:
        """Looks at every start that a log is given by its own broker."""

        def moved() -> None:
            self._check_size(replica.log)

        def low_watermark() -> int:
            return min(broker.replica().log.log_start_offset for broker in self.brokers if broker.is_up)

        replica.on_log_start_moved = moved  # type: ignore[method-assign]
        replica.low_watermark = low_watermark  # type: ignore[method-assign]

    def note(self, what: str) -> None:
        self.lines.append(f"{asyncio.get_running_loop().time() - 1000:8.2f} {what}")

    # ---- what befalls it

    async def _act(self) -> None:
        choices: list[tuple[int, Callable[[], None]]] = [
            (10, self._produce),
            (8, self._replicate_some),
            (4, self._retain_some),
            (2, self._toggle_transaction),
            (1, self._delete_records),
            (1, self._toggle_store),
            (1, self._elect),
        ]
        action = self.random.choices([each for _, each in choices], [weight for weight, _ in choices])[0]
        action()
        if self.random.random() < 0.03:
            await self._crash_or_restart()
        for _ in range(self.random.choice([0, 1, 2, 10])):
            self._tell_marks()
            await asyncio.sleep(0.5)

    def _produce(self) -> None:
        if self.leader is None:
            return
        for _ in range(self.random.randint(1, 3)):
            self._append(self.leader.replica().log, transactional=self.open_producer is not None)

    def _append(self, log: Log, *, transactional: bool) -> None:
        now_ms = self.brokers[0].clock.now_ms()
        values = [f"{self.epoch}/{log.log_end_offset + n}".encode().ljust(VALUE, b".") for n in range(RECORDS)]
        fields = {"producer_id": self.open_producer, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
        data = build_batch([Record(now_ms, b"k", value) for value in values], transactional=transactional, **fields)  # type: ignore[arg-type]
        info = log.append_as_leader(bytearray(data), self.epoch, now_ms=now_ms, origin=Origin.COORDINATOR)
        if not info.duplicate:
            for number, value in enumerate(values):
                self.written[self.epoch, info.first_offset + number] = value

    def _toggle_transaction(self) -> None:
        if self.leader is None:
            return
        log = self.leader.replica().log
        if self.open_producer is None:
            self.producers += 1
            self.open_producer = self.producers
            self._append(log, transactional=True)
            return
        kind = self.random.choice([ControlType.ABORT, ControlType.COMMIT])
        marker = end_transaction_marker(kind, self.open_producer, 0, 0, self.leader.clock.now_ms())
        log.append_as_leader(
            bytearray(marker), self.epoch, now_ms=self.leader.clock.now_ms(), origin=Origin.COORDINATOR
        )
        self.open_producer = None

    def _replicate_some(self) -> None:
        followers = [broker for broker in self.brokers if broker.is_up and broker is not self.leader]
        if self.leader is not None and followers:
            self._replicate(self.random.choice(followers), rounds=self.random.randint(1, 6))
        self._commit()

    def _tell_marks(self) -> None:
        """Followers in sync fetch all the time, and learn of the leader's marks even where there are no records."""
        if self.leader is not None:
            source = self.leader.replica().log
            for broker in self.brokers:
                if broker.is_up and broker.id in self.in_sync and broker is not self.leader:
                    log = broker.replica().log
                    log.follow_high_watermark(source.high_watermark)
                    log.maybe_increment_log_start_offset(min(source.log_start_offset, log.high_watermark))

    def _replicate(self, follower: Broker, rounds: int = 1_000) -> None:
        """As much as fits so many fetches, after what the leader does not have was cut."""
        assert self.leader is not None
        source, target = self.leader.replica().log, follower.replica().log
        now_ms = follower.clock.now_ms()
        common = common_end(source, target)
        if common < target.log_end_offset:
            self.in_sync.discard(follower.id)
        if common > source.log_start_offset:
            target.truncate_to(common, now_ms=now_ms)  # forgets epochs without records too
        elif (target.log_start_offset, target.log_end_offset) != (source.log_start_offset, source.log_start_offset):
            target.truncate_fully_and_start_at(source.log_start_offset, now_ms=now_ms)
        if target.log_end_offset < source.local_log_start_offset:
            self._begin_from_tier(source, target, follower)
        for _ in range(rounds):
            if target.log_end_offset >= source.log_end_offset:
                break
            found = source.read(target.log_end_offset, 1, source.log_end_offset)
            target.append_as_follower(bytes(found.data), now_ms=now_ms)
        target.follow_high_watermark(source.high_watermark)
        target.maybe_increment_log_start_offset(min(source.log_start_offset, target.high_watermark))
        if target.log_end_offset == source.log_end_offset:
            self.in_sync.add(follower.id)
            self.restarted.discard(follower.id)

    def _begin_from_tier(self, source: Log, target: Log, follower: Broker) -> None:
        start = source.local_log_start_offset
        producers = ProducerState()
        producers.end_offset = start
        entries = tuple(entry for entry in source.epochs.entries if entry.start_offset < start)
        self.counts.tier_starts += 1
        target.start_from_tier(
            TierStart(next_offset=start, log_start_offset=source.log_start_offset, epochs=entries, producers=producers),
            now_ms=follower.clock.now_ms(),
            checkpoint=lambda log: follower.dirs.write_log_starts(),
        )

    def _commit(self) -> None:
        if self.leader is not None:
            self.in_sync.add(self.leader.id)
            ends = [self._log(number).log_end_offset for number in self.in_sync]
            self.leader.replica().log.advance_high_watermark(min(ends))

    def _log(self, number: int) -> Log:
        return self.brokers[number - 1].replica().log

    def _retain_some(self) -> None:
        broker = self.random.choice([broker for broker in self.brokers if broker.is_up] or [None])
        if broker is None:
            return
        log = broker.replica().log
        for expired in broker.retain():
            for segment in expired.segments:
                self.counts.local_deletions += 1
                if expired.reason is not Reason.BELOW_LOG_START:
                    end = min(
                        [*(other.base_offset for other in log.segments if other.base_offset > segment.base_offset)]
                    )
                    first = max(segment.base_offset, log.log_start_offset, self.gone_below)
                    self._check_remote(log, first, end, f"left the disk of {broker.id}")

    def _delete_records(self) -> None:
        if self.leader is not None and self.random.random() < 0.5:
            log = self.leader.replica().log
            target = self.random.randint(log.log_start_offset, min(log.log_start_offset + 60, log.high_watermark))
            if log.maybe_increment_log_start_offset(target):
                self.trimmed_to = target
                self.gone_below = max(self.gone_below, target)
                self.note(f"records deleted below {target}")

    def _toggle_store(self) -> None:
        self.weather.is_down = not self.weather.is_down and self.random.random() < 0.5
        self.note(f"store down: {self.weather.is_down}")

    def _elect(self) -> None:
        """Another leader, from the in-sync set as a rule."""
        alive = [broker for broker in self.brokers if broker.is_up]
        clean = [broker for broker in alive if broker.id in self.in_sync]
        if not clean and self.random.random() < 0.5:
            clean = alive
            self.counts.unclean += bool(alive)
        if not clean:
            return
        self.leader = self.random.choice(clean)
        is_clean = self.leader.id in self.in_sync
        if not is_clean:
            self.in_sync = {self.leader.id}
        # A replica that was down, or cut off, may not know how much of the log is gone, for a while.
        self.may_be_told_late |= not is_clean or self.leader.id in self.restarted
        self.epoch += 1
        self.counts.elections += 1
        self.open_producer = next(iter(self.leader.replica().log.producers.open_transactions.values()), None)
        if self.open_producer is not None:
            self.open_producer = None  # its client is gone: it stays open, and holds the last stable offset
            self._abort_open(self.leader.replica().log)
        self.note(f"{self.leader.id} leads epoch {self.epoch} from {self.leader.replica().log}")
        self.leader.lead(self.epoch)
        for broker in alive:
            if broker is not self.leader:
                broker.follow(self.epoch)

    def _abort_open(self, log: Log) -> None:
        for producer in list(log.producers.open_transactions.values()):
            now_ms = self.brokers[0].clock.now_ms()
            marker = end_transaction_marker(ControlType.ABORT, producer, 0, 0, now_ms)
            log.append_as_leader(bytearray(marker), self.epoch, now_ms=now_ms, origin=Origin.COORDINATOR)

    async def _crash_or_restart(self) -> None:
        broker = self.random.choice(self.brokers)
        if not broker.is_up:
            self._restart(broker)
            return
        self.counts.crashes += 1
        self.note(f"{broker.id} crashes")
        self.lost_with_crash |= set(broker.tools.copying.values())
        if self.random.random() < 0.7:
            broker.dirs.write_recovery_points()
            broker.dirs.write_high_watermarks()
        await broker.crash()
        if len(self.in_sync) > 1:
            self.in_sync.discard(broker.id)
        if broker is self.leader:
            self.leader = None
            self._elect()

    def _restart(self, broker: Broker) -> None:
        self.note(f"{broker.id} starts")
        self.restarted.add(broker.id)
        broker.start()
        self._watch(broker.replica())
        if self.leader is None:
            self._elect()
        elif broker is not self.leader:
            broker.follow(self.epoch)

    async def _make_peace(self) -> None:
        self.note("peace")
        self.weather.is_down, self.weather.failing, self.uploads_s = False, 0.0, 0.2
        for broker in self.brokers:
            if not broker.is_up:
                self._restart(broker)
        while self.leader is None:
            self.in_sync = {broker.id for broker in self.brokers}
            self._elect()
        self._abort_open(self.leader.replica().log)
        for _ in range(round(4 * GRACE_S)):
            for broker in self.brokers:
                if broker is not self.leader:
                    self._replicate(broker)
            self._commit()
            await asyncio.sleep(1)
            self.check()
        self._check_nothing_left_over()

    # ---- what must hold

    def _violated(self, text: str) -> None:
        told = "\n".join(self.lines[-30:])
        self.found = self.found or Violation(f"seed {self.seed}: {text}\n{told}")
        raise self.found

    def check(self) -> None:
        """Invariant 1, and that every broker is at work."""
        for broker in self.brokers:
            if broker.is_up and broker.has_ended:
                self._violated(f"{broker.id} has ended by itself")
        if self.leader is None:
            return
        log = self.leader.replica().log
        first = log.log_start_offset
        if self.may_be_told_late:
            first = min(max(first, self.gone_below), log.local_log_start_offset)
        self._check_remote(log, first, log.local_log_start_offset, "cannot be read")
        offset = log.local_log_start_offset
        while offset < log.high_watermark:
            found = log.read(offset, 1, log.log_end_offset)
            for _, record in iter_all_records(bytes(found.data)):
                if record.offset >= offset:
                    self._check_value(log, record.offset, bytes(record.value or b""))
            offset = found.next_offset

    def _check_value(self, log: Log, offset: int, value: bytes) -> None:
        expected = self.written.get((log.epochs.epoch_for_offset(offset) or 0, offset))
        if expected is not None and value != expected:
            self._violated(f"offset {offset} of {log} is {value!r} instead of {expected!r}")

    def _check_remote(self, log: Log, first: int, end: int, what: str) -> None:
        """All of [first, end) is in finished segments, and is what was written."""
        cache, offset = self.bucket.metadata.cache(self.brokers[0].replica().id), first
        while offset < end:
            epoch = log.epochs.epoch_for_offset(offset)
            segment = None if epoch is None else cache.segment_for(epoch, offset)
            if segment is None or segment.id.id not in self.bucket.storage.stored:
                self._violated(f"offset {offset} of epoch {epoch} {what}: {log}, {segment}")
                return
            content = self.bucket.storage.stored[segment.id.id].log
            last = min(end - 1, lineage_of(log).agreed_end(segment))
            for _, record in iter_all_records(content):
                if offset <= record.offset <= last:
                    self._check_value(log, record.offset, bytes(record.value or b""))
            offset = last + 1

    def _check_copy(self, segment: RemoteSegment) -> None:
        """Invariant 2."""
        broker = self.brokers[segment.broker_id - 1]
        log = broker.replica().log
        self.note(f"{broker.id} copies {segment.start_offset}-{segment.end_offset}")
        if broker is self.leader and segment.end_offset >= log.last_stable_offset:
            self._violated(f"{segment} is copied, the last stable offset is {log.last_stable_offset}")

    def _check_size(self, log: Log) -> None:
        """Invariant 4, where nothing else may have moved the start."""
        self.gone_below = max(self.gone_below, log.log_start_offset)
        self.note(f"log start of {log}")
        if self.by_size is None or self.by_time_ms >= 0 or log.log_start_offset <= self.trimmed_to:
            return
        left = log.log_end_offset - log.log_start_offset
        bytes_a_record = SEGMENT_BYTES / (RECORDS * 3)
        if (left + 6 * RECORDS) * bytes_a_record < self.by_size / 2:
            self._violated(f"{left} records are left of {log}, of which there were to be {self.by_size} bytes")

    def _check_nothing_left_over(self) -> None:
        """Invariant 5."""
        assert self.leader is not None
        log = self.leader.replica().log
        if log.log_start_offset < log.local_log_start_offset:
            self._check_remote(log, log.log_start_offset, log.log_start_offset + 1, "is where the log says it begins")
        segments = self.bucket.segments()
        unfinished = [segment for segment in segments if segment.state is not SegmentState.COPY_FINISHED]
        if unfinished:
            self._violated(f"begun and never ended: {unfinished}")
        if orphans := self.bucket.orphans() - self.lost_with_crash:
            self._violated(
                f"objects that nobody knows of: {[self.bucket.storage.stored[one].segment for one in orphans]}"
            )
        if missing := [segment for segment in segments if segment.id.id not in self.bucket.storage.stored]:
            self._violated(f"metadata without objects: {missing}")
        links = chain(_view(log, segments))
        useless = {segment.id for segment in segments} - {link.segment.id for link in links}
        if useless:
            self._violated(f"of no use: {[segment for segment in segments if segment.id in useless]}")
        self.counts.collected = len(self.bucket.metadata.events)


def _view(log: Log, segments: list[RemoteSegment]) -> Tier:
    return Tier(
        segments=segments,
        lineage=lineage_of(log),
        log_start_offset=log.log_start_offset,
        local_start_offset=log.local_log_start_offset,
        high_watermark=log.high_watermark,
        local=[],
        retention_ms=-1,
        retention_bytes=-1,
        now_ms=0,
        broker_id=0,
        grace_ms=0,
    )


def common_end(one: Log, other: Log) -> int:
    """Where two histories part."""
    offset = min(one.log_end_offset, other.log_end_offset)
    floor = max(one.log_start_offset, other.log_start_offset)
    while offset > floor and one.epochs.epoch_for_offset(offset - 1) != other.epochs.epoch_for_offset(offset - 1):
        offset -= 1
    return offset

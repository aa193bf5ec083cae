"""Failures of the simulated brokers: processes, disks, power, clocks, the bucket and the remote metadata."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import cast

from protocol.ids import BrokerId
from protocol.records.batch import ATTRIBUTES_POSITION, LENGTH_PREFIX_SIZE
from storage.directories.checkpoints import read_offsets
from storage.log import Log
from storage.segment import INDEX_SUFFIX, LOG_SUFFIX, LogSegment
from storage.tiered.bucket.partition_objects import PartitionObjects
from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.remote_storage import RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
from storage.tiered.segments.reading import SegmentReader
from tests.simulation.remote_log.metadata import PARTITION, BrokerMetadata, cache_of
from tests.simulation.remote_log.replicas import Replicas
from tests.simulation.remote_log.state import CLUSTER_ID, RECORDS, Rot, Server, State, SteppedClock
from tests.simulation.remote_log.store import Connection
from tests.simulation.remote_log.uplink import PausingPool, Uplink
from tests.support.fakes.memory_files import MemoryFileSystem, Operation
from tests.support.harnesses.remote_log_harness import Broker

INDEX_CACHE_BYTES = 2_000


class SimulatedDisk(MemoryFileSystem):
    """A disk in memory that records no operations."""

    def maybe_fail(self, operation: Operation, path: str) -> None:
        """Do nothing: this disk fails by its capacity, and loses power."""


class Failures:
    """Starts and stops brokers, and damages what they rely on."""

    def __init__(self, state: State, replicas: Replicas) -> None:
        self._state = state
        self._random = state.random
        self._replicas = replicas
        self.uploads_s = 0.2
        """Longest upload of a segment."""
        self.on_log_start: Callable[[Server, Log], None] = lambda server, log: None

    # ---- processes

    def new_server(self, number: int) -> Server:
        """Return a broker that is not running."""
        broker = Broker(
            self._state.bucket,
            number,
            settings=self._state.settings,
            answer_s=self._state.weather.answer_s,
        )
        broker.fs = SimulatedDisk()
        broker.metadata_of = BrokerMetadata
        clock = broker.clock = SteppedClock()
        broker.config = self._state.config
        server = Server(broker, Connection(self._state.weather.faulty), clock)
        broker.make_copy_pool = lambda: self._new_copy_pool(server)
        return server

    def _new_copy_pool(self, server: Server) -> PausingPool:
        server.copy_pool = PausingPool(self._state.weather.answer_s)
        return server.copy_pool

    def _upload_s(self) -> float:
        upload_s = self._random.uniform(0.0, self.uploads_s)
        self._state.counts.add("slow copies", int(upload_s > self._state.grace_s * 3 / 4))
        return upload_s

    def begin(self, server: Server) -> None:
        """Start a process."""
        broker, state = server.broker, self._state
        server.connection.revive()
        server.is_dying = False
        broker.fs.capacity_bytes = None
        server.started_s = asyncio.get_running_loop().time()
        storage = state.weather.connect(server.connection)
        server.uplink = Uplink(storage, self._upload_s)
        broker.storage = cast(RemoteStorageManager, server.uplink)
        server.reader = SegmentReader(storage, IndexCache(broker.fs, "index-cache", storage, INDEX_CACHE_BYTES))
        broker.log_starts = PartitionObjects(
            server.connection,
            state.weather.keys,
            cluster_id=CLUSTER_ID,
            broker_id=BrokerId(server.id),
            now_ms=server.clock.now_ms,
        )
        broker._remember_start = lambda log: self._remember_start(server)  # type: ignore[method-assign]
        flushed_to, was_rotten = self._flushed_end(server), bool(server.present_rot())
        broker.start()
        replica = broker.replica()
        replica.on_log_start_moved = lambda: self.on_log_start(server, replica.log)  # type: ignore[method-assign]
        replica.low_watermark = lambda: self._low_watermark(replica.log)  # type: ignore[method-assign]
        self._note_loss(server, flushed_to, was_rotten=was_rotten)

    def _note_loss(self, server: Server, flushed_to: int, *, was_rotten: bool) -> None:
        """Check that a log ends before its flushed end because of rot alone, and that the broker says so.

        A broker that has lost flushed records does not register as one that kept them: the controllers take it out of
        the in-sync replicas.
        """
        state, log, losses = self._state, server.log, server.broker.dirs.losses
        if bool(losses) != (max(log.log_end_offset, log.log_start_offset) < flushed_to):
            state.violated("FlushedIsKept", f"{log} on {server.id} reports {losses}, it was flushed to {flushed_to}")
        if losses and not was_rotten:
            state.violated("FlushedIsKept", f"{log} on {server.id} has lost records without any rot: {losses}")
        if was_rotten:
            self._check_holes(server)
        if losses:
            state.in_sync.discard(server.id)
            state.counts.add("logs cut at rotten bytes")
            state.note(f"{log} of {server.id} is cut at rotten bytes: {losses}")

    def _check_holes(self, server: Server) -> None:
        """Check that no batch is missing between two others; the rest of their headers may be rotten."""
        log = server.log
        bases = [header.base_offset for segment in log.segments for _, header in segment.headers()]
        for before, base in pairwise(bases):
            if base - before > RECORDS and base > log.log_start_offset:
                self._state.violated("LogsHaveNoHoles", f"{log} on {server.id} has one between {before} and {base}")

    @staticmethod
    def _flushed_end(server: Server) -> int:
        """Return the checkpointed recovery point of the log."""
        return max(read_offsets(server.broker.fs, "d/recovery-point-offset-checkpoint").values(), default=0)

    def _remember_start(self, server: Server) -> "asyncio.Future[None]":
        """Write the log start checkpoint; a disk may stall before."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        dirs = server.broker.dirs

        def write() -> None:
            if server.broker.dirs is dirs and server.is_up and not server.is_dying:
                dirs.checkpoints.write_log_starts()
                self.note_failed_disks()
                done.set_result(None)

        stalls = self._random.random() < 0.1
        loop.call_later(self._random.uniform(1.0, 60.0) if stalls else 0.001, write)
        self._state.counts.add("disk stalls", int(stalls))
        return done

    def _low_watermark(self, log: Log) -> int:
        return min((server.log.log_start_offset for server in self._state.alive), default=log.log_start_offset)

    def kill_during_request(self) -> None:
        """Kill a broker in the middle of one of its next store requests."""
        if self._state.alive:
            server = self._random.choice(self._state.alive)
            server.connection.die_after(self._random.randint(0, 6), server.die)

    async def bury_the_dead(self) -> None:
        """Stop the rest of the brokers that died in a request."""
        for server in self._state.alive:
            if server.is_dying:
                self._state.counts.add("deaths in the middle of a request")
                await self._crash(server)

    async def crash_or_restart(self, server: Server) -> None:
        if server.is_up:
            await self._crash(server)
        else:
            self._restart(server)

    async def _crash(self, server: Server) -> None:
        self._state.counts.add("crashes")
        self._state.note(f"{server.id} crashes")
        if self._random.random() < 0.7:
            server.broker.dirs.checkpoints.write_recovery_points()
            server.broker.dirs.checkpoints.write_high_watermarks()
        await self._end(server)
        self._replicas.on_down(server)

    async def _end(self, server: Server) -> None:
        server.copy_pool.is_dead = True
        await server.broker.crash()
        metadata = server.broker.metadata
        assert isinstance(metadata, BrokerMetadata)
        metadata.close_now()

    def _restart(self, server: Server) -> None:
        self._state.note(f"{server.id} starts")
        self.begin(server)
        self._replicas.on_up(server)

    async def revive(self) -> None:
        """Start the brokers that are down, at times without one that stays dead for good."""
        state = self._state
        doomed = [server for server in state.servers if self._is_dispensable(server)]
        dead = self._random.choice(doomed) if doomed and self._random.random() < 0.5 else None
        if dead is not None:
            if dead.is_up:
                await self._crash(dead)
            state.in_sync.discard(dead.id)
            state.counts.add("brokers dead for good")
            state.note(f"{dead.id} is dead for good")
        for server in state.servers:
            if not server.is_up and server is not dead:
                self._restart(server)

    def _is_dispensable(self, server: Server) -> bool:
        """Whether a running in-sync replica has everything that is committed without this broker."""
        others = (each for each in self._state.reachable if each is not server)
        return any(each.id in self._state.in_sync and not each.present_rot() for each in others)

    # ---- power

    async def lose_power(self) -> None:
        """Lose the power of one broker, or of all; they start again."""
        state = self._state
        struck = state.alive if self._random.random() < 0.4 else [self._random.choice(state.servers)]
        for server in [each for each in struck if each.is_up]:
            state.counts.add("power losses")
            state.note(f"{server.id} loses power")
            await self._end(server)
            server.broker.fs.crash(self._random)
            self._lose_indexes(server)
        if all(not server.is_up for server in state.servers):
            state.leader = None
        for server in struck:
            if not server.is_up:
                if any(each.is_up for each in state.servers):
                    self._replicas.on_down(server)
                self._restart(server)

    def _lose_indexes(self, server: Server) -> None:
        """Lose the offset indexes of some rotten segments, so that the next start reads these segments."""
        fs = server.broker.fs
        for rot in server.present_rot():
            index = rot.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
            if fs.exists(index) and self._random.random() < 0.5:
                fs.remove(index)

    # ---- disks

    def fill_a_disk(self) -> None:
        """Leave little room on the disk of a broker, until it starts again."""
        if self._state.alive:
            fs = self._random.choice(self._state.alive).broker.fs
            fs.capacity_bytes = fs._used(fs._root) + self._random.randint(0, 3_000)

    def note_failed_disks(self) -> None:
        """End brokers whose only log directory has failed."""
        for server in self._state.alive:
            if not server.is_dying and (server.log.failure is not None or not server.has_disk):
                self._state.counts.add("full disks")
                self._state.note(f"the disk of {server.id} is full")
                server.die()

    def flush_some(self) -> None:
        """Sync a log and write the recovery points."""
        if self._state.alive:
            server = self._random.choice(self._state.alive)
            server.log.flush(server.clock.now_ms())
            server.broker.dirs.checkpoints.write_recovery_points()

    def rot_on_disk(self) -> None:
        """Flip a bit of a closed, synced segment."""
        if not self._state.alive:
            return
        server = self._random.choice(self._state.alive)
        log = server.log
        closed = [each for each in log.segments if each.base_offset < log.active_segment.base_offset and each.size]
        synced = [each for each in closed if log.segments.end_of(each, log.log_end_offset) <= log.recovery_point]
        copied = server.uplink.running.values()  # an upload reads the file once; here it reads the beginning again
        whole = [
            each for each in synced if each.base_offset not in copied and not server.is_rotten_at(each.base_offset)
        ]
        if whole:
            self._rot(server, self._random.choice(whole))

    def _rot(self, server: Server, segment: LogSegment) -> None:
        path = segment.path(LOG_SUFFIX)
        node = server.broker.fs._file(path)
        position = _checked_position(node.content, self._random.randrange(len(node.content)))
        node.content[position] ^= 1
        node.durable = bytes(node.content)
        offsets = range(segment.base_offset, server.log.segments.end_of(segment, server.log.log_end_offset))
        server.rotten.append(Rot(path, node, node.durable[: position + 1], offsets))
        self._state.counts.add("rotten bytes on disks")
        self._state.note(f"a bit of {path} of {server.id} flips")

    # ---- clocks

    def step_a_clock(self) -> None:
        """Step the wall clock of a broker."""
        limit_ms = self._state.settings.grace_ms // 2
        server = self._random.choice(self._state.servers)
        server.clock.offset_ms = self._random.randint(-limit_ms, limit_ms)
        self._state.has_clock_steps = True
        self._state.counts.add("clock steps")
        self._state.note(f"the clock of {server.id} is off by {server.clock.offset_ms} ms")

    # ---- the bucket

    def toggle_store(self) -> None:
        """Begin or end an outage."""
        weather = self._state.weather
        if weather.is_down or self._random.random() < 0.5:
            weather.toggle()
            self._state.counts.add("outages", int(weather.is_down))
            self._state.note(f"store down: {weather.is_down}")

    def rot_in_store(self) -> None:
        """Flip a bit of an object."""
        self._state.counts.add("rotten bytes in the store", int(self._state.weather.rot()))

    def hide_log_starts(self) -> None:
        """Make log start objects unreadable."""
        self._state.weather.hide_log_starts()
        self._state.counts.add("log starts unreadable")
        self._state.note("log start objects cannot be read")

    # ---- remote metadata

    def _some(self, finished: list[RemoteSegment]) -> list[RemoteSegment]:
        return self._random.sample(finished, self._random.randint(1, min(6, len(finished))))

    def _rivals(self, finished: list[RemoteSegment]) -> list[RemoteSegment]:
        """Return the segments of one history whose offsets another history has, too; mostly none."""
        pairs = [(one, other) for one in finished for other in finished if _are_rivals(one, other)]
        if not pairs or self._random.random() < 0.2:
            return []
        self._state.counts.add("rival histories without metadata")
        epoch = self._random.choice(pairs)[0].leader_epochs[-1].epoch
        rivals = {one.id: one for one, _ in pairs if one.leader_epochs[-1].epoch == epoch}
        return list(rivals.values())

    async def lose_metadata(self) -> None:
        """Lose the metadata of some finished segments while all brokers are down; they start again."""
        state, metadata = self._state, self._state.bucket.metadata
        finished = [each for each in state.bucket.segments() if each.state is SegmentState.COPY_FINISHED]
        if not finished:
            return
        running = state.alive
        for server in running:
            await self._crash(server)
        lost = {each.id for each in self._rivals(finished) or self._some(finished)}
        events = [event for event in metadata.events if getattr(event, "id", None) not in lost]
        state.actions += len(metadata.events) - len(events)
        metadata.caches[PARTITION] = cache_of(each for each in state.bucket.segments() if each.id not in lost)
        metadata.events = events
        state.unrecorded += [each for each in finished if each.id in lost]
        state.counts.add("metadata losses")
        state.note(f"the metadata of {len(lost)} segments are lost")
        for server in running:
            self._restart(server)


def _are_rivals(one: RemoteSegment, other: RemoteSegment) -> bool:
    """Whether two segments have different records at one offset, as after an unclean election."""
    epochs = {epoch for epoch, _ in one.leader_epochs}
    overlap = one.start_offset <= other.end_offset and other.start_offset <= one.end_offset
    return overlap and epochs.isdisjoint(epoch for epoch, _ in other.leader_epochs)


def _checked_position(log: bytes | bytearray, position: int) -> int:
    """Return the position, or another one of its batch that the checks of a copy cover: the leader epoch, which no
    checksum covers, in a quarter of all cases, or a later one.
    """
    start = 0
    while position >= (end := start + LENGTH_PREFIX_SIZE + int.from_bytes(log[start + 8 : start + LENGTH_PREFIX_SIZE])):
        start = end
    if position % 4 == 0:
        return start + LENGTH_PREFIX_SIZE + position // 4 % 4
    return max(position, start + ATTRIBUTES_POSITION)

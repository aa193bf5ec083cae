"""Writes, replication and elections of the simulated partition; its controllers are ideal.

A leader may be cut off from the controllers alone: another replica leads, and the former leader goes on copying,
expiring and appending under its old epoch until it hears of the election.
"""

import asyncio
import contextlib

from protocol.ids import LeaderEpoch
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, end_transaction_marker
from storage.errors import LogDirFailure
from storage.log import Log
from storage.producer_state import Origin, ProducerState
from storage.remote_log_start import RemoteLogStart
from tests.simulation.remote_log.state import RECORDS, Server, State

VALUE = 30


class Replicas:
    """The replicas of the partition and their roles."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._random = state.random
        self._open_producer: int | None = None
        self._producers = 0
        self.restarted: set[int] = set()
        """Brokers that have not caught up since their last start."""

    # ---- clients

    def produce(self) -> None:
        """Append to the leader, or to a broker that takes itself for the leader."""
        leader = self._state.leader
        if self._random.random() < 0.3:
            leader = next((each for each in self._state.zombies if each.replica.is_leader), leader)
        if leader is not None:
            transactional = leader is self._state.leader and self._open_producer is not None
            for _ in range(self._random.randint(1, 3)):
                self._append(leader, transactional=transactional)

    def _append(self, server: Server, *, transactional: bool) -> None:
        log, epoch, now_ms = server.log, server.replica.leader_epoch, server.clock.now_ms()
        values = [f"{epoch}/{log.log_end_offset + n}".encode().ljust(VALUE, b".") for n in range(RECORDS)]
        fields = {"producer_id": self._open_producer, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
        data = build_batch([Record(now_ms, b"k", value) for value in values], transactional=transactional, **fields)  # type: ignore[arg-type]
        info = log.append_as_leader(bytearray(data), LeaderEpoch(epoch), now_ms=now_ms, origin=Origin.COORDINATOR)
        if not info.duplicate:
            for number, value in enumerate(values):
                self._state.written[epoch, info.first_offset + number] = value

    def toggle_transaction(self) -> None:
        """Begin a transaction on the leader, or end the open one."""
        leader = self._state.leader
        if leader is None:
            return
        if self._open_producer is None:
            self._producers += 1
            self._open_producer = self._producers
            self._append(leader, transactional=True)
            return
        kind = self._random.choice([ControlType.ABORT, ControlType.COMMIT])
        self._end_transaction(leader, kind, self._open_producer)
        self._open_producer = None

    def _end_transaction(self, server: Server, kind: ControlType, producer: int) -> None:
        now_ms = server.clock.now_ms()
        marker = end_transaction_marker(kind, producer, 0, 0, now_ms)
        server.log.append_as_leader(
            bytearray(marker), LeaderEpoch(self._state.epoch), now_ms=now_ms, origin=Origin.COORDINATOR
        )

    def abort_open(self, server: Server) -> None:
        """Abort the open transactions of the leader's log."""
        for producer in list(server.log.producers.open_transactions.values()):
            self._end_transaction(server, ControlType.ABORT, producer)

    def delete_records(self) -> None:
        """Raise the leader's log start offset, as DeleteRecords does."""
        state = self._state
        if state.leader is not None and self._random.random() < 0.5:
            log = state.leader.log
            target = self._random.randint(log.log_start_offset, min(log.log_start_offset + 60, log.high_watermark))
            if log.maybe_increment_log_start_offset(target):
                state.trimmed_to, state.trimmed_s = target, asyncio.get_running_loop().time()
                state.gone_below = max(state.gone_below, target)
                state.note(f"records deleted below {target}")

    # ---- replication

    def replicate_some(self) -> None:
        """Replicate a few batches to one follower."""
        if self._state.leader is not None and self._state.followers:
            self.replicate(self._random.choice(self._state.followers), rounds=self._random.randint(1, 6))
        self.commit()

    def sync_watermarks(self) -> None:
        """Advance the high watermark and log start offset of in-sync followers, as frequent fetches do."""
        if self._state.leader is not None:
            source = self._state.leader.log
            for server in self._state.followers:
                if server.id in self._state.in_sync:
                    log = server.log
                    log.follow_high_watermark(source.high_watermark)
                    log.maybe_increment_log_start_offset(min(source.log_start_offset, log.high_watermark))

    def replicate(self, follower: Server, rounds: int = 1_000) -> None:
        """Replicate as many batches as fit some fetches, after a truncation to the leader's log."""
        state = self._state
        assert state.leader is not None
        source, target, now_ms = state.leader.log, follower.log, follower.clock.now_ms()
        common = common_end(source, target)
        if common < target.log_end_offset:
            state.in_sync.discard(follower.id)
        if common > source.log_start_offset:
            target.truncate_to(common, now_ms=now_ms)  # also removes epochs without records
        elif (target.log_start_offset, target.log_end_offset) != (source.log_start_offset, source.log_start_offset):
            target.truncate_fully_and_start_at(source.log_start_offset, now_ms=now_ms)
        if target.log_end_offset < source.local_log_start_offset:
            self._begin_from_tier(source, follower)
        for _ in range(rounds):
            if target.log_end_offset >= source.log_end_offset or state.leader.is_rotten_at(target.log_end_offset):
                break  # a follower does not accept rotten batches
            found = source.read(target.log_end_offset, 1, source.log_end_offset)
            target.append_as_follower(bytes(found.data), now_ms=now_ms)
        target.follow_high_watermark(source.high_watermark)
        target.maybe_increment_log_start_offset(min(source.log_start_offset, target.high_watermark))
        if target.log_end_offset == source.log_end_offset:
            state.in_sync.add(follower.id)
            self.restarted.discard(follower.id)

    def _begin_from_tier(self, source: Log, follower: Server) -> None:
        start = source.local_log_start_offset
        producers = ProducerState()
        producers.end_offset = start
        entries = tuple(entry for entry in source.epochs.entries if entry.start_offset < start)
        self._state.counts.add("starts from the tier")
        follower.log.start_behind_remote_log(
            RemoteLogStart(
                next_offset=start, log_start_offset=source.log_start_offset, epochs=entries, producers=producers
            ),
            now_ms=follower.clock.now_ms(),
            checkpoint=lambda log: follower.broker.dirs.checkpoints.write_log_starts(),
        )

    def commit(self) -> None:
        """Advance the high watermark to the least end of the in-sync replicas."""
        state = self._state
        if state.leader is not None:
            state.in_sync.add(state.leader.id)
            state.leader.log.advance_high_watermark(
                min(state.server(each).log.log_end_offset for each in state.in_sync)
            )

    # ---- elections

    def elect(self) -> None:
        """Elect another leader, usually from the in-sync replicas."""
        state, reachable = self._state, self._state.reachable
        clean = [server for server in reachable if server.id in state.in_sync]
        if not clean and self._random.random() < 0.5:
            clean = reachable
            state.counts.add("unclean elections", int(bool(clean)))
        if clean:
            with contextlib.suppress(LogDirFailure):  # its disk is full: the broker ends soon
                self._lead(self._random.choice(clean))

    def _lead(self, leader: Server) -> None:
        state = self._state
        is_clean = leader.id in state.in_sync
        if not is_clean:
            state.in_sync = {leader.id}
        # A replica that was down or isolated may not know the log start offset for a while.
        state.log_start_may_be_unknown |= not is_clean or leader.id in self.restarted
        state.leader = leader
        state.epoch += 1
        state.counts.add("elections")
        self._open_producer = None  # the client is gone: its open transaction holds the last stable offset
        leader.broker.lead(state.epoch)
        if leader.log.producers.open_transactions:
            self.abort_open(leader)
        state.note(f"{leader.id} leads epoch {state.epoch} from {leader.log}")
        for follower in state.followers:
            follower.broker.follow(state.epoch)

    def on_down(self, server: Server) -> None:
        """Handle the end of a broker: it leaves the in-sync replicas, and another one leads."""
        state = self._state
        self._end_isolation(server)
        if len(state.in_sync) > 1:
            state.in_sync.discard(server.id)
        if server is state.leader:
            state.leader = None
            self.elect()

    def on_up(self, server: Server) -> None:
        """Handle the start of a broker."""
        state = self._state
        self.restarted.add(server.id)
        if state.leader is None:
            self.elect()
        elif server is not state.leader:
            server.broker.follow(state.epoch)

    # ---- isolation from the controllers

    def cut_off_leader(self, for_s: float) -> None:
        """Cut the leader off from the controllers alone, and elect an in-sync replica."""
        state, leader = self._state, self._state.leader
        if leader is None or not any(server.id in state.in_sync for server in state.followers):
            return
        now_s = asyncio.get_running_loop().time()
        leader.cut_off_since_s, leader.cut_off_until_s = now_s, now_s + for_s
        state.in_sync.discard(leader.id)
        state.leader = None
        state.counts.add("leaders cut off")
        state.note(f"{leader.id} is cut off from the controllers for {for_s:.0f} s")
        self.elect()

    def reconnect(self, *, at_once: bool = False) -> None:
        """Tell brokers of the election whose isolation is over."""
        isolated = [server for server in self._state.servers if server.cut_off_until_s is not None]
        now_s = asyncio.get_running_loop().time() if isolated else 0.0
        for server in isolated:
            assert server.cut_off_until_s is not None
            if at_once or now_s >= server.cut_off_until_s:
                self._state.note(f"{server.id} hears of epoch {self._state.epoch}")
                self._end_isolation(server)
                self.on_up(server)

    def _end_isolation(self, server: Server) -> None:
        if server.cut_off_until_s is not None:
            self._state.zombie_s += asyncio.get_running_loop().time() - server.cut_off_since_s
            server.cut_off_until_s = None


def common_end(one: Log, other: Log) -> int:
    """Return the offset at which two logs diverge."""
    offset = min(one.log_end_offset, other.log_end_offset)
    floor = max(one.log_start_offset, other.log_start_offset)
    while offset > floor and one.epochs.epoch_for_offset(offset - 1) != other.epochs.epoch_for_offset(offset - 1):
        offset -= 1
    return offset

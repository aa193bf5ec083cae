"""A broker with one partition for KIP-405 scenarios: a real log on a disk in memory, with the real leader and follower
rules.

The leader applies the rules of Fetch, ListOffsets and OffsetForLeaderEpoch that followers depend on; the follower uses
a real fetcher. `harness.py` provides loop and network.
"""

from asyncio import Future
from collections.abc import Callable
from random import Random

from broker.metrics.topics import TopicMeters
from broker.replication.epochs import EpochEnd, check_leader_epoch, has_diverged
from broker.replication.fetch_state import FetchPosition
from broker.replication.remote_log_aux_state_machine import EARLIEST_LOCAL
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsPartitionResponse
from protocol.messages.offset_for_leader_epoch import EpochEndOffset as EpochEndAnswer
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition
from protocol.primitives import Buffer, Uuid
from protocol.records.builder import Record, build_batch
from storage.config import LogConfig
from storage.directories.checkpoints import (
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from storage.errors import OffsetMovedToTier, OffsetOutOfRange
from storage.files import join
from storage.log import Log
from storage.remote_log_start import RemoteLogStart
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.memory_files import MemoryFileSystem

TOPIC = "t"
TOPIC_ID = Uuid(b"t" * 16)
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(remote_storage_enable=True, index_interval_bytes=0)
MAX_BYTES = 1_000_000
PRODUCER = 7

_ROOT = "logs"
_NAME = TopicPartition(TOPIC, 0)


class Broker:
    """Broker `name`. `leader` is the followed broker, None on a leader and a stopped broker. Implements
    FollowedPartition.
    """

    topic = TOPIC
    topic_id = TOPIC_ID
    index = 0

    def __init__(self, name: str, broker_id: int, loop: ManualLoop) -> None:
        self.name = name
        self.id = broker_id
        self.traffic = TopicMeters()
        self.is_running = True
        self.is_leading = False
        self.leader: Broker | None = None
        self.leader_epoch = LeaderEpoch(-1)
        self._loop = loop
        self._make_disk()

    def _make_disk(self) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_directory(_ROOT)
        self.fs.sync_directory(".")
        self.log = self._open()

    def _open(self) -> Log:
        log = Log.open(
            self.fs,
            join(_ROOT, f"{TOPIC}-0"),
            CONFIG,
            now_ms=NOW_MS,
            clean_shutdown=False,
            recovery_point=read_offsets(self.fs, join(_ROOT, RECOVERY_POINT_FILE)).get(_NAME, 0),
            log_start_offset=read_offsets(self.fs, join(_ROOT, LOG_START_OFFSET_FILE)).get(_NAME),
            before_truncation=self._write_recovery_point,
        )
        self._write_log_start(log)
        return log

    def _write_recovery_point(self, log: Log) -> None:
        write_offsets(self.fs, join(_ROOT, RECOVERY_POINT_FILE), {_NAME: log.recovery_point})

    def _write_log_start(self, log: Log) -> None:
        write_offsets(self.fs, join(_ROOT, LOG_START_OFFSET_FILE), {_NAME: log.log_start_offset})

    # ---- lifecycle

    def stop(self) -> None:
        """Stop the process; written data stay on the disk."""
        self.log.flush()
        self._write_recovery_point(self.log)
        self.log.close(clean=False)
        self.is_running = self.is_leading = False
        self.leader = None

    def start(self) -> None:
        self.is_running = True
        self.log = self._open()

    def lose_unflushed(self, seed: int) -> None:
        """Cut the power: flushed data stay, the rest is lost at random."""
        self.is_running = self.is_leading = False
        self.leader = None
        self.fs.crash(Random(seed))

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self._make_disk()

    def flush(self) -> None:
        self.log.flush()
        self._write_recovery_point(self.log)

    # ---- roles

    def lead(self, epoch: LeaderEpoch) -> None:
        self.is_leading, self.leader, self.leader_epoch = True, None, epoch
        self.log.assign_epoch(epoch)

    def follow(self, leader: "Broker") -> None:
        self.is_leading, self.leader, self.leader_epoch = False, leader, leader.leader_epoch

    def write(self, value: str, producer_id: int = PRODUCER) -> None:
        """Append as a producer that continues after its last record in this log."""
        known = self.log.producers.entries.get(producer_id)
        sequence = 0 if known is None else known.last_sequence + 1
        record = Record(NOW_MS, None, value.encode())
        batch = bytearray(build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence))
        self.log.append_as_leader(batch, LeaderEpoch(self.leader_epoch), now_ms=NOW_MS)

    def delete_records(self, offset: int) -> None:
        """Raise the log start offset durably."""
        if self.log.maybe_increment_log_start_offset(offset):
            self._write_log_start(self.log)

    # ---- as a leader

    def read_for_follower(self, asked: FetchPartition) -> PartitionData:
        log, data = self.log, PartitionData(0)
        data.error_code = self._check(asked.current_leader_epoch)
        if data.error_code:
            return data
        data.high_watermark, data.log_start_offset = log.high_watermark, log.log_start_offset
        if asked.last_fetched_epoch >= 0:
            end = EpochEnd(*log.end_offset_for_epoch(LeaderEpoch(asked.last_fetched_epoch)))
            if not end.is_known or asked.fetch_offset < log.log_start_offset:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return data
            if has_diverged(LeaderEpoch(asked.last_fetched_epoch), asked.fetch_offset, end):
                data.diverging_epoch = EpochEndOffset(end.epoch, end.end_offset)
                return data
        try:
            data.records = bytes(log.read(asked.fetch_offset, MAX_BYTES, log.log_end_offset).data)
        except OffsetMovedToTier:
            data.error_code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        except OffsetOutOfRange:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return data

    def offset_for(self, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        log, code = self.log, self._check(asked.current_leader_epoch)
        if code:
            return ListOffsetsPartitionResponse(0, code)
        offsets = {-1: log.log_end_offset, -2: log.log_start_offset, EARLIEST_LOCAL: log.local_log_start_offset}
        offset = offsets[asked.timestamp]
        epoch = log.epochs.epoch_for_offset(offset)
        return ListOffsetsPartitionResponse(0, offset=offset, leader_epoch=-1 if epoch is None else epoch)

    def epoch_end(self, asked: OffsetForLeaderPartition) -> EpochEndAnswer:
        end = self.log.end_offset_for_epoch(LeaderEpoch(asked.leader_epoch))
        return EpochEndAnswer(self._check(asked.current_leader_epoch), 0, end.epoch, end.end_offset)

    def _check(self, epoch: int) -> ErrorCode:
        if not self.is_leading:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return check_leader_epoch(LeaderEpoch(epoch), LeaderEpoch(self.leader_epoch))

    # ---- as a follower

    is_flushed = True

    def when_flushed(self, callback: Callable[[], None]) -> None:
        callback()

    @property
    def is_following(self) -> bool:
        return self.leader is not None

    @property
    def leader_id(self) -> int | None:
        return None if self.leader is None else self.leader.id

    @property
    def local_start_offset(self) -> int:
        return self.log.local_log_start_offset

    def fetch_position(self) -> FetchPosition:
        return FetchPosition(self.log.log_end_offset, self.log.epochs.latest_epoch, self.log.log_start_offset)

    def end_for_epoch(self, epoch: int) -> EpochEnd:
        return EpochEnd(*self.log.end_offset_for_epoch(LeaderEpoch(epoch)))

    def append_fetched(
        self, leader_epoch: int, offset: int, records: Buffer, leader_high_watermark: int, leader_log_start_offset: int
    ) -> bool:
        if leader_epoch != self.leader_epoch or offset != self.log.log_end_offset:
            return False
        if len(records):
            self.log.append_as_follower(records, now_ms=NOW_MS)
        self.log.follow_high_watermark(leader_high_watermark)
        self.delete_records(min(leader_log_start_offset, self.log.high_watermark))
        return True

    def truncate(self, leader_epoch: int, offset: int) -> "Future[bool]":
        return self._cut(leader_epoch, lambda: self.log.truncate_to(offset, now_ms=NOW_MS))

    def truncate_fully_and_start_at(self, leader_epoch: int, offset: int) -> "Future[bool]":
        return self._cut(leader_epoch, lambda: self.log.truncate_fully_and_start_at(offset, now_ms=NOW_MS))

    def start_behind_remote_log(self, leader_epoch: int, start: RemoteLogStart) -> "Future[bool]":
        return self._cut(
            leader_epoch,
            lambda: self.log.start_behind_remote_log(start, now_ms=NOW_MS, checkpoint=self._write_log_start),
        )

    def _cut(self, leader_epoch: int, cut: Callable[[], object]) -> "Future[bool]":
        done: Future[bool] = self._loop.create_future()
        is_same_epoch = leader_epoch == self.leader_epoch
        if is_same_epoch:
            cut()
        done.set_result(is_same_epoch)
        return done

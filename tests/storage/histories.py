"""A log on a disk with faults and a model of its content, for tests of random histories."""

from dataclasses import dataclass
from random import Random

from protocol.ids import LeaderEpoch
from protocol.records.batch import iter_headers, parse_header
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import LogConfig
from storage.directories.checkpoints import TopicPartition, read_offsets, write_offsets
from storage.epochs import LeaderEpochs
from storage.errors import LogDirFailure
from storage.index.transaction import AbortedTxn
from storage.log import Log
from storage.producer_state import Origin, ProducerState
from storage.replay import apply_to_producers, marker_of
from tests.support.fakes.memory_files import MemoryFileSystem

DIRECTORY = "logs/t-0"
RECOVERY_POINTS = "logs/recovery-point-offset-checkpoint"
LOG_STARTS = "logs/log-start-offset-checkpoint"
PARTITION = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000

SMALL = LogConfig(segment_bytes=4096, index_interval_bytes=200, segment_index_bytes=12 * 16)
"""Limits so small that rolls, full indexes and several segments occur within a few dozen appends."""


@dataclass
class Producer:
    producer_id: int
    epoch: int = 0
    next_sequence: int = 0
    in_transaction: bool = False


class History:
    """Operations on a log and its model. `held` are the batches in the log, `flushed` the offset below which no batch
    may be lost.
    """

    def __init__(self, config: LogConfig = SMALL) -> None:
        self.fs = MemoryFileSystem()
        self.config = config
        self.fs.make_directory("logs")
        self.fs.sync_directory(".")
        self.held: list[bytes] = []
        self.flushed = 0
        self.epoch = 0
        self.clock_ms = NOW_MS
        self.producers = {n: Producer(n) for n in (1, 2, 3)}
        self.log = self.open(clean=True)

    # -- verbs -----------------------------------------------------------------------------------------------------

    def open(self, *, clean: bool) -> Log:
        log = Log.open(
            self.fs,
            DIRECTORY,
            self.config,
            now_ms=self.clock_ms,
            clean_shutdown=clean,
            recovery_point=read_offsets(self.fs, RECOVERY_POINTS).get(PARTITION, 0),
            log_start_offset=read_offsets(self.fs, LOG_STARTS).get(PARTITION, 0),
            jitter=lambda bound: 0,
            before_truncation=self.checkpoint,
        )
        assert log.recovery.lost is None
        return log

    def checkpoint(self, log: Log) -> None:
        write_offsets(self.fs, RECOVERY_POINTS, {PARTITION: log.recovery_point})

    def checkpoint_log_start(self) -> None:
        write_offsets(self.fs, LOG_STARTS, {PARTITION: self.log.log_start_offset})

    def append(self, records: int, value_bytes: int, codec: int = 0, step_ms: int = 1) -> None:
        self.clock_ms += step_ms
        batch = build_batch([Record(self.clock_ms, None, b"v" * value_bytes)] * records, codec=codec)
        self._append(batch, Origin.CLIENT)

    def append_idempotent(self, number: int, records: int, value_bytes: int, *, transactional: bool) -> None:
        producer = self.producers[number]
        transactional = transactional or producer.in_transaction
        batch = build_batch(
            [Record(self.clock_ms, b"k", b"v" * value_bytes)] * records,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.next_sequence,
            transactional=transactional,
        )
        self._append(batch, Origin.CLIENT)
        producer.next_sequence += records
        producer.in_transaction = transactional

    def end_transaction(self, number: int, type: ControlType) -> None:
        producer = self.producers[number]
        marker = end_transaction_marker(type, number, producer.epoch, 0, self.clock_ms)
        self._append(marker, Origin.COORDINATOR)
        producer.in_transaction = False

    def _append(self, batch: bytes | bytearray, origin: Origin) -> None:
        end = self.log.log_end_offset
        buffer = bytearray(batch)
        try:
            info = self.log.append_as_leader(buffer, LeaderEpoch(self.epoch), now_ms=self.clock_ms, origin=origin)
        except LogDirFailure:
            assert self.log.log_end_offset == end
            raise
        assert (info.first_offset, info.duplicate) == (end, False)
        self.held.append(bytes(buffer))

    def replicate(self, gap: int, records: int) -> None:
        """Append a batch from another leader after a gap, as compaction leaves it."""
        base = self.log.log_end_offset + gap
        batch = build_batch(
            [Record(self.clock_ms, b"k", b"v")] * records, base_offset=base, leader_epoch=LeaderEpoch(self.epoch)
        )
        self.log.append_as_follower(batch, now_ms=self.clock_ms)
        self.held.append(batch)

    def flush(self) -> None:
        self.flushed = max(self.flushed, self.log.flush())

    def truncate(self, batches: int) -> None:
        """Truncate the last few batches, or all if only deleted ones would remain on disk."""
        if not self.held:
            return
        offset = parse_header(self.held[max(0, len(self.held) - batches)]).base_offset
        if self.log.segments.first.base_offset < offset <= self.log.log_start_offset:
            self.held = []
        self.log.truncate_to(offset, now_ms=self.clock_ms)
        self.checkpoint_log_start()
        self.held = [batch for batch in self.held if parse_header(batch).last_offset < offset]
        self.flushed = min(self.flushed, offset)
        self.learn_producers()

    def start_over(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset, now_ms=self.clock_ms)
        self.checkpoint_log_start()
        self.held = []
        self.flushed = offset
        self.learn_producers()

    def raise_log_start(self, offset: int) -> None:
        """Raise the log start offset with its checkpoint, as DeleteRecords does."""
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.log.maybe_increment_log_start_offset(offset)
        self.checkpoint_log_start()

    def restart(self, random: Random) -> None:
        """Restart after a clean shutdown; a power loss right after it must change nothing."""
        self.log.close()
        self.checkpoint(self.log)
        self.fs.crash(random)
        self.flushed = self.log.log_end_offset
        self.log = self.open(clean=True)
        assert self.log.log_end_offset == self.flushed

    def crash(self, random: Random) -> None:
        """Lose power; the log must then hold a prefix of its content with everything flushed."""
        log_start = self.log.log_start_offset
        self.fs.faults.clear()
        self.fs.crash(random)
        self.log = self.open(clean=False)
        end = self.log.log_end_offset
        assert end >= self.flushed, f"offset {self.flushed} was flushed, but the log ends at {end}"
        assert self.log.log_start_offset == log_start
        self.held = [b for b in self.held if parse_header(b).last_offset < end] if self.log.size_bytes else []
        self.learn_producers()

    def learn_producers(self) -> None:
        """Continue the clients' sequences from the state of the log."""
        for number, producer in self.producers.items():
            entry = self.log.producers.entries.get(number)
            producer.epoch = entry.epoch if entry else 0
            producer.next_sequence = entry.last_sequence + 1 if entry else 0
            producer.in_transaction = entry is not None and entry.transaction_start >= 0

    # -- checks ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.check_content()
        self.check_indexes()
        self.check_epochs()
        self.check_producers()

    def visible(self) -> list[bytes]:
        first = self.log.segments.first.base_offset
        return [batch for batch in self.held if parse_header(batch).base_offset >= first]

    def check_content(self) -> None:
        """Check the content of the segments, then the results of reads."""
        stored = b"".join(segment.file.read(0, segment.size) for segment in self.log.segments)
        assert stored == b"".join(self.visible())
        offset, read = self.log.log_start_offset, b""
        while offset < self.log.log_end_offset:
            found = self.log.read(offset, 700, self.log.log_end_offset)
            if not found.data:
                break
            assert found.next_offset > offset
            read += bytes(found.data)
            offset = found.next_offset
        wanted = [b for b in self.visible() if parse_header(b).last_offset >= self.log.log_start_offset]
        assert read == b"".join(wanted)

    def check_indexes(self) -> None:
        expected_aborts = self.replayed()[1]
        aborts: list[AbortedTxn] = []
        for segment in self.log.segments:
            batches = {p: h for p, h in iter_headers(segment.file.read(0, segment.size))}
            entries = list(segment.offset_index)
            assert all(batches[position].last_offset == offset for offset, position in entries)
            assert [offset for offset, _ in entries] == sorted({offset for offset, _ in entries})
            for timestamp, offset in segment.time_index:
                upto = [h for h in batches.values() if h.last_offset <= offset]
                assert max(h.max_timestamp for h in upto) == timestamp
            for position, header in batches.items():
                assert segment.find(header.last_offset) == position
            own = segment.txn_index.entries
            assert all(segment.base_offset <= abort.last_offset < segment.next_offset for abort in own)
            aborts += own
        assert aborts == expected_aborts

    def check_epochs(self) -> None:
        if self.log.log_start_offset == self.log.log_end_offset:
            return  # no offset with an epoch
        fresh = LeaderEpochs(self.fs, "unused", [])
        for batch in self.visible():
            header = parse_header(batch)
            fresh.assign(header.leader_epoch, header.base_offset)
        fresh.truncate_from_end(self.log.log_end_offset)
        fresh.truncate_from_start(self.log.log_start_offset)
        assert self.log.epochs.entries == fresh.entries

    def replayed(self) -> tuple[ProducerState, list[AbortedTxn]]:
        state, aborts = ProducerState(), []
        for batch in self.held:
            header = parse_header(batch)
            aborted = apply_to_producers(state, header, marker_of(header, batch))
            if aborted is not None:
                aborts.append(aborted)
        return state, aborts

    def check_producers(self) -> None:
        fresh, _ = self.replayed()
        assert summary(self.log.producers) == summary(fresh)
        assert list(self.log.producers.open_transactions.items()) == list(fresh.open_transactions.items())


def summary(state: ProducerState) -> dict[int, tuple[int, ...]]:
    """Return the fields of each producer that a snapshot keeps."""
    return {
        entry.producer_id: (
            entry.epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.transaction_start,
            entry.last_sequence,
            entry.last_data_offset,
        )
        for entry in state.entries.values()
    }

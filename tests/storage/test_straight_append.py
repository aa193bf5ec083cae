"""The straight path of an append against the general one: same answers, same state."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.ids import LeaderEpoch
from protocol.records.batch import MAX_SEQUENCE, TimestampType, pack_batch, parse_header
from protocol.records.builder import Record, build_batch
from protocol.records.compression import Codec
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import CompressionType, LogConfig, MessageTimestampType
from storage.errors import CorruptBatch, InvalidRecords, StorageError
from storage.log import Log
from storage.producer_state import CACHED_BATCHES, Origin, ProducerState
from storage.segment import LogSegment
from storage.straight_append import COPIED_BYTES, append_straight
from storage.validation import admit, admit_generally
from storage.verification import Guard
from tests.storage.producer_entries import attributes_of
from tests.support.fakes.memory_files import MemoryFileSystem

NOW = 1_700_000_000_000
EPOCH = LeaderEpoch(0)
DIRECTORY = "t-0"

CONFIGS = st.sampled_from(
    (
        LogConfig(),
        LogConfig(index_interval_bytes=150, segment_bytes=900),
        LogConfig(index_interval_bytes=0, segment_index_bytes=36),
        LogConfig(index_interval_bytes=0, segment_ms=20),
        LogConfig(preallocate=True, segment_bytes=900),
        LogConfig(flush_messages=3),
        LogConfig(verify_transactions=True),
        LogConfig(message_timestamp_type=MessageTimestampType.LOG_APPEND_TIME),
        LogConfig(compression_type=CompressionType.LZ4),
        LogConfig(max_message_bytes=90),
    )
)


@dataclass(frozen=True)
class Sent:
    """One batch; `sequence` is relative to the producer's next one, and `repeats` sends the one before it again."""

    producer: int = -1
    epoch: int = 0
    records: int = 1
    sequence: int = 0
    repeats: bool = False
    transactional: bool = False
    timestamp: int = NOW
    value_bytes: int = 5
    codec: int = 0
    damage: str = ""
    is_writable: bool = True
    origin: Origin = Origin.CLIENT
    leader_epoch: int = 0


ORDINARY = st.builds(
    Sent,
    producer=st.sampled_from((1, 1, 1, 2, -1)),
    records=st.integers(1, 3),
    transactional=st.booleans(),
    timestamp=st.sampled_from((NOW, -1, NOW - 30, NOW + 5, NOW + 30)),
    value_bytes=st.sampled_from((0, 40, COPIED_BYTES)),
    is_writable=st.booleans(),
    leader_epoch=st.sampled_from((0, 0, 1)),
)
DEVIATIONS: tuple[dict[str, Any], ...] = (
    {"epoch": 1},
    {"sequence": -2},
    {"sequence": -1},
    {"sequence": 1},
    {"sequence": MAX_SEQUENCE - 1},
    {"repeats": True},
    {"codec": Codec.GZIP},
    {"codec": 6},
    {"damage": "checksum"},
    {"damage": "short"},
    {"damage": "twice"},
    {"damage": "base offset"},
    {"damage": "log append time"},
    {"origin": Origin.COORDINATOR},
)
UNUSUAL = st.builds(lambda sent, deviation: replace(sent, **deviation), ORDINARY, st.sampled_from(DEVIATIONS))
CHANGES = st.sampled_from(
    ("commit", "abort", "begin sequences again", "truncate", "expire", "verify", "verify next epoch", "advance", "fail")
)
STEPS = st.lists(st.one_of(ORDINARY, ORDINARY, UNUSUAL, CHANGES), min_size=8, max_size=16)


class Driver:
    """A log with the memory of its producers; `straight` selects the path of its appends."""

    def __init__(self, config: LogConfig, *, straight: bool) -> None:
        self.fs = MemoryFileSystem()
        self.straight = straight
        self.log = Log.open(self.fs, DIRECTORY, config, now_ms=NOW, clean_shutdown=True, jitter=lambda bound: 0)
        self.next_sequence = {1: 0, 2: 0}
        self.last_count = {1: 0, 2: 0}
        self.guards: dict[int, Guard | None] = {}

    def run(self, step: Sent | str) -> object:
        """Take one step; return its answer, or its error."""
        try:
            return self._append(step) if isinstance(step, Sent) else self._change(step)
        except (CorruptBatch, InvalidRecords) as error:
            return type(error), str(error), getattr(error, "kind", None), getattr(error, "record_errors", None)
        except StorageError as error:
            return type(error), str(error)

    def _append(self, sent: Sent) -> object:
        data = bytearray(self._batch(sent))
        view = memoryview(data) if sent.is_writable else memoryview(bytes(data))
        log, leader_epoch, guard = self.log, LeaderEpoch(sent.leader_epoch), self.guards.get(sent.producer)
        if self.straight:
            info = log.append_as_leader(view, leader_epoch, now_ms=NOW, origin=sent.origin, guard=guard)
        else:
            admitted = admit_generally(view, log.config, NOW, sent.origin)
            info = log.append_generally(admitted, leader_epoch, NOW, sent.origin, guard)
        if not info.duplicate and sent.producer > 0:
            header = parse_header(data)
            self.next_sequence[sent.producer] = header.base_sequence + header.last_offset_delta + 1 & MAX_SEQUENCE
            self.last_count[sent.producer] = header.record_count
        return info, bytes(view)

    def _batch(self, sent: Sent) -> bytes:
        records, sequence = sent.records, -1
        if sent.producer > 0:
            sequence = self.next_sequence[sent.producer]
            if sent.repeats:
                records = self.last_count[sent.producer] or records
                sequence -= records
            sequence = sequence + sent.sequence & MAX_SEQUENCE
        data = build_batch(
            [Record(sent.timestamp, b"k", b"v" * sent.value_bytes)] * records,
            codec=min(sent.codec, Codec.ZSTD),
            producer_id=sent.producer,
            producer_epoch=sent.epoch if sent.producer > 0 else -1,
            base_sequence=sequence,
            transactional=sent.transactional and sent.producer > 0,
            timestamp_type=TimestampType(sent.damage == "log append time"),
        )
        if sent.codec > Codec.ZSTD:
            header = parse_header(data)
            data = pack_batch(header._replace(attributes=header.attributes | sent.codec), data[61:])
        match sent.damage:
            case "checksum":
                return data[:-1] + bytes((data[-1] ^ 1,))
            case "short":
                return data[:-1]
            case "twice":
                return data + data
            case "base offset":
                return b"\0\0\0\0\0\0\0\7" + data[8:]
        return data

    def _change(self, step: str) -> object:
        log = self.log
        match step:
            case "commit" | "abort":
                kind = ControlType.COMMIT if step == "commit" else ControlType.ABORT
                marker = end_transaction_marker(kind, 1, 0, 0, NOW)
                return log.append_as_leader(marker, EPOCH, now_ms=NOW, origin=Origin.COORDINATOR)
            case "begin sequences again":
                # A later batch in order may then repeat a remembered one.
                self.next_sequence[1] = 2
                return log.append_as_follower(replicated(log, 0, records=2), now_ms=NOW)
            case "truncate":
                return log.truncate_to(max(0, log.log_end_offset - 2), now_ms=NOW)
            case "expire":
                return log.expire_producers(NOW + 10, 20)
            case "verify":
                self.guards[1] = log.start_verification(1, 0, self.next_sequence[1], NOW)
                return self.guards[1]
            case "verify next epoch":
                return log.start_verification(1, 1, 0, NOW)
            case "advance":
                return log.advance_high_watermark(log.log_end_offset - 1)
            case "fail":
                self.fs.fail("write", path_part=".log")
        return None


def replicated(log: Log, sequence: int, *, records: int = 1) -> bytes:
    """Return a batch of producer 1 as the leader wrote it."""
    return build_batch(
        [Record(NOW, b"k", b"v")] * records,
        base_offset=log.log_end_offset,
        leader_epoch=EPOCH,
        producer_id=1,
        producer_epoch=0,
        base_sequence=sequence,
    )


def producers_of(state: ProducerState) -> object:
    entries = {producer: attributes_of(entry) for producer, entry in state.entries.items()}
    return entries, state.end_offset, state.open_transactions, state.first_unstable_offset


def segment_of(segment: LogSegment) -> object:
    facts = (segment.base_offset, segment.next_offset, segment.max_timestamp_so_far, segment.first_timestamp)
    indexes = (list(segment.offset_index), list(segment.time_index), list(segment.txn_index.entries))
    return facts, indexes, segment.file.read(0, segment.file.size())


def state_of(log: Log) -> object:
    """Return everything that an append may change."""
    marks = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset, log.flush_due)
    return (
        marks,
        log.appended_messages,
        log.epochs.entries,
        log.epochs.latest_epoch,
        producers_of(log.producers),
        [log.verifications.accepts(1, Guard(guard)) for guard in range(1, 9)],
        [segment_of(segment) for segment in log.segments],
    )


@given(CONFIGS, STEPS)
def test_straight_path_agrees_with_the_general_path(config: LogConfig, steps: list[Sent | str]) -> None:
    straight, general = Driver(config, straight=True), Driver(config, straight=False)
    for step in steps:
        assert straight.run(step) == general.run(step), step
        assert state_of(straight.log) == state_of(general.log), step


def ordinary(sequence: int = 0, *, records: int = 1, timestamp: int = NOW) -> bytearray:
    record = Record(timestamp, b"k", b"v")
    return bytearray(build_batch([record] * records, producer_id=1, producer_epoch=0, base_sequence=sequence))


def goes_straight(log: Log, data: bytes | bytearray, *, epoch: int = 0, origin: Origin = Origin.CLIENT) -> bool:
    (admitted,) = admit(data, log.config, NOW, origin)
    return append_straight(log, admitted, LeaderEpoch(epoch), NOW, origin) is not None


@pytest.fixture
def log() -> Log:
    """A log with one batch of producer 1."""
    log = Driver(LogConfig(segment_ms=1000), straight=True).log
    log.append_as_leader(ordinary(), EPOCH, now_ms=NOW)
    return log


def test_batches_in_order_go_straight(log: Log) -> None:
    assert goes_straight(log, ordinary(1, records=3))
    assert goes_straight(log, ordinary(4))
    assert goes_straight(log, build_batch([Record(NOW, b"k", b"v")]))
    assert log.log_end_offset == 6


def test_batches_that_need_a_decision_take_the_general_path(log: Log) -> None:
    end = log.log_end_offset
    assert not goes_straight(log, ordinary(0))
    assert not goes_straight(log, ordinary(2))
    assert not goes_straight(log, ordinary(1), epoch=1)
    assert not goes_straight(log, ordinary(1), origin=Origin.COORDINATOR)
    assert not goes_straight(log, ordinary(1, timestamp=NOW + log.config.segment_ms + 1))
    assert not goes_straight(log, build_batch([Record(NOW, b"k", b"v" * COPIED_BYTES)]))
    assert log.log_end_offset == end


def test_batches_go_straight_again_once_no_remembered_sequence_is_later(log: Log) -> None:
    log.append_as_follower(replicated(log, MAX_SEQUENCE), now_ms=NOW)
    log.append_as_leader(ordinary(0, records=2), EPOCH, now_ms=NOW)
    sequence = 2
    while not goes_straight(log, ordinary(sequence)):
        log.append_as_leader(ordinary(sequence), EPOCH, now_ms=NOW)
        sequence += 1
    assert 2 < sequence <= CACHED_BATCHES + 1


def test_straight_append_ends_the_verification_of_its_producer(log: Log) -> None:
    data = build_batch([Record(NOW, b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
    log.append_as_leader(data, EPOCH, now_ms=NOW)
    guard = log.start_verification(1, 1, 0, NOW)
    assert guard is not None
    again = build_batch([Record(NOW, b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=2, transactional=True)
    assert goes_straight(log, again)
    assert not log.accepts(1, guard)

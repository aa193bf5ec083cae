"""Random histories of a log on a disk that loses and tears unsynced writes.

After every crash the flushed batches exist in order, the rest is cut at a batch boundary, and indexes, leader epochs
and producer state match the remaining batches.
"""

import contextlib
import errno
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from protocol.records.control import ControlType
from storage.errors import LogDirFailure
from tests.protocol.profile import EXHAUSTIVE
from tests.storage.histories import History
from tests.support.fakes.memory_files import Operation

seeds = st.integers(0, 2**32)
producers = st.sampled_from((1, 2, 3))
record_counts = st.integers(1, 4)
value_sizes = st.integers(0, 700)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.history = History()

    @rule(records=record_counts, value_bytes=value_sizes, codec=st.integers(0, 4), step_ms=st.integers(-5, 5))
    def append(self, records: int, value_bytes: int, codec: int, step_ms: int) -> None:
        self.history.append(records, value_bytes, codec, step_ms)

    @rule(number=producers, records=record_counts, value_bytes=value_sizes, transactional=st.booleans())
    def append_idempotent(self, number: int, records: int, value_bytes: int, transactional: bool) -> None:
        self.history.append_idempotent(number, records, value_bytes, transactional=transactional)

    @rule(number=producers, type=st.sampled_from((ControlType.ABORT, ControlType.COMMIT)))
    def end_transaction(self, number: int, type: ControlType) -> None:
        self.history.end_transaction(number, type)

    @rule(records=record_counts)
    def replicate(self, records: int) -> None:
        self.history.replicate(0, records)

    @rule()
    def new_leader(self) -> None:
        self.history.epoch += 1

    @rule()
    def flush(self) -> None:
        self.history.flush()

    @rule()
    def checkpoint(self) -> None:
        self.history.checkpoint(self.history.log)

    @rule()
    def roll(self) -> None:
        self.history.log.roll(self.history.clock_ms)

    @rule(batches=st.integers(1, 10))
    def truncate(self, batches: int) -> None:
        self.history.truncate(batches)

    @rule(ahead=st.integers(0, 5))
    def start_over(self, ahead: int) -> None:
        self.history.start_over(self.history.log.log_end_offset + ahead)

    @rule(ahead=st.integers(1, 10))
    def raise_log_start(self, ahead: int) -> None:
        log = self.history.log
        self.history.raise_log_start(min(log.log_start_offset + ahead, log.log_end_offset))

    @rule(seed=seeds)
    def restart(self, seed: int) -> None:
        self.history.restart(Random(seed))
        self.history.check()

    @rule(seed=seeds)
    def crash(self, seed: int) -> None:
        self.history.crash(Random(seed))
        self.history.check()

    @rule(
        seed=seeds,
        operation=st.sampled_from(("open", "write", "truncate", "sync", "sync_directory")),
        skip=st.integers(0, 3),
        error=st.sampled_from((errno.EIO, errno.ENOSPC)),
    )
    def fail_and_crash(self, seed: int, operation: Operation, skip: int, error: int) -> None:
        history = self.history
        history.fs.fail(operation, error, skip=skip)
        with contextlib.suppress(LogDirFailure):
            for _ in range(3):
                history.append(2, 300)
                history.log.roll(history.clock_ms)
                history.flush()
        if history.log.failure is not None:
            with pytest.raises(LogDirFailure):
                history.append(1, 1)
        history.crash(Random(seed))
        history.check()

    @invariant()
    def offsets_are_ordered(self) -> None:
        log = self.history.log
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset

    def teardown(self) -> None:
        self.history.fs.faults.clear()
        if self.history.log.failure is None:
            self.history.check()


def test_flushed_records_survive_every_history() -> None:
    machine: Any = LogMachine
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=3000 if EXHAUSTIVE else 100,
            stateful_step_count=80 if EXHAUSTIVE else 40,
            derandomize=not EXHAUSTIVE,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )

"""MarkersAreDecided: a partition has a marker only of a decision that was committed in `__transaction_state` before.

A decision that is not committed yet may be lost with its coordinator, and the next one may decide otherwise.
"""

from collections.abc import Callable
from typing import NamedTuple

from broker.metadata.image.topic_names import TRANSACTION_STATE_TOPIC
from broker.replication.leader import LeaderRole
from broker.runtime.partitions.partition import Partition
from broker.transactions.records import TransactionWritten, decode_record
from broker.transactions.state import TransactionPartition
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.control import ControlType, read_marker
from protocol.records.reader import iter_records
from storage.log import Log
from tests.simulation.cluster.coordinators import inspection


class _Decision(NamedTuple):
    """The outcome of one transaction, as its markers have it."""

    producer_id: int
    producer_epoch: int
    is_commit: bool


class DecisionChecker:
    """The decisions that are committed in `__transaction_state`."""

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self._fail = fail
        self._decisions: set[_Decision] = set()
        self._ends: dict[int, int] = {}

    def observe(self, partition: Partition) -> None:
        """Add the decisions that a leader of `__transaction_state` has committed."""
        if partition.topic == TRANSACTION_STATE_TOPIC and isinstance(partition.role, LeaderRole):
            end = partition.log.high_watermark
            if end > self._ends.get(partition.index, 0):
                self._add(partition.log, self._ends.get(partition.index, 0), end)
                self._ends[partition.index] = end

    def _add(self, log: Log, start: int, end: int) -> None:
        while start < end:
            found = inspection.read(log, start, end)
            assert found.data, f"{log} has no records from {start} to {end}"
            for position, header in iter_headers(found.data):
                start = header.next_offset
                for record in () if header.is_control else iter_records(found.data, position):
                    event = None if record.key is None else decode_record(record.key, record.value)
                    if isinstance(event, TransactionWritten) and event.transaction.state.is_prepared:
                        decided = event.transaction
                        self._decisions.add(
                            _Decision(decided.producer_id, decided.producer_epoch, decided.state.is_commit)
                        )

    def on_marker(self, partition: TransactionPartition, header: BatchHeader, data: memoryview, position: int) -> None:
        """Check a marker that a leader has committed."""
        marker = read_marker(data, position)
        if marker is None:
            return
        decision = _Decision(header.producer_id, header.producer_epoch, marker[0] is ControlType.COMMIT)
        if decision not in self._decisions:
            self._fail("MarkersAreDecided", f"{partition} has a marker at {header.base_offset} of undecided {decision}")

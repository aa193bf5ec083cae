"""Invariants of transactions, from the view of producers and of read_committed consumers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.transactions.state import TransactionPartition
from protocol.records.batch import iter_headers
from protocol.records.reader import FullRecord, iter_records
from storage.log import Log
from tests.simulation.simulator import Counts, EventLog

_ALL = 1 << 30


class TransactionCounts(Counts):
    """Incidents of transaction histories."""

    NAMES = (
        "committed",
        "aborted",
        "coordinator changes",
        "unaware coordinators",
        "leader changes",
        "fenced producers",
        "instances beside another",
        "late requests",
        "lost messages",
        "timed-out transactions",
        "unknown outcomes",
        "exhausted epochs",
        "upgrades",
        "version 2 transactions",
        "older transactions",
    )


class SentRecord(NamedTuple):
    """A record of a transaction: `number` counts those of the transaction in its partition."""

    partition: TransactionPartition
    number: int


@dataclass(slots=True)
class SentTransaction:
    """A transaction as its producer knows it. `name` is in each record."""

    name: str
    sent: set[SentRecord] = field(default_factory=set)
    commit_was_sent: bool = False
    is_committed: bool = False


class _Appended(NamedTuple):
    offset: int
    producer_id: int
    is_marker: bool


class _PartitionHistory:
    """The batches of one partition, and how far a read_committed consumer has read them."""

    def __init__(self) -> None:
        self.appended: list[_Appended] = []
        self.consumed = 0
        self._open: dict[int, int] = {}
        self._unreplicated: list[tuple[int, int]] = []

    def append(self, entry: _Appended) -> None:
        self.appended.append(entry)
        if not entry.is_marker:
            self._open.setdefault(entry.producer_id, entry.offset)
        elif (first := self._open.pop(entry.producer_id, None)) is not None:
            self._unreplicated.append((first, entry.offset))

    @property
    def first_open(self) -> int | None:
        """The first offset of the transactions without a marker."""
        return min(self._open.values(), default=None)

    def first_undecided(self, high_watermark: int) -> int:
        """Return the first offset of the transactions without a marker below the high watermark."""
        self._unreplicated = [each for each in self._unreplicated if each[1] >= high_watermark]
        return min([*self._open.values(), *(first for first, _ in self._unreplicated)], default=high_watermark)

    def truncate_to(self, end: int) -> None:
        kept = [each for each in self.appended if each.offset < end]
        if len(kept) != len(self.appended):
            self.appended.clear()
            self._open.clear()
            self._unreplicated.clear()
            for entry in kept:
                self.append(entry)


class TransactionChecker(EventLog):
    """Checks after every event that reaches a log; `finish` checks the whole history."""

    def __init__(self, counts: TransactionCounts, now_ms: Callable[[], float]) -> None:
        super().__init__(counts, now_ms)
        self.transactions: dict[str, SentTransaction] = {}
        self._partitions: dict[TransactionPartition, _PartitionHistory] = {}
        self._visible: dict[str, set[SentRecord]] = {}
        self._hidden: set[str] = set()

    def begin(self, name: str) -> SentTransaction:
        """Note a new transaction of a producer."""
        transaction = self.transactions[name] = SentTransaction(name)
        return transaction

    def _history(self, partition: TransactionPartition) -> _PartitionHistory:
        return self._partitions.setdefault(partition, _PartitionHistory())

    def on_data(self, partition: TransactionPartition, producer_id: int, offset: int) -> None:
        """Note an appended batch."""
        self._history(partition).append(_Appended(offset, producer_id, False))

    def on_marker(self, partition: TransactionPartition, producer_id: int, offset: int) -> None:
        """Note an appended marker."""
        self._history(partition).append(_Appended(offset, producer_id, True))

    def on_truncation(self, partition: TransactionPartition, end: int) -> None:
        """Note that a new leader's log ends at `end`."""
        self._history(partition).truncate_to(end)

    def first_open(self, partition: TransactionPartition) -> int | None:
        """Return the first offset of the transactions without a marker, as far as appended batches are known."""
        return self._history(partition).first_open

    def _first_undecided(self, partition: TransactionPartition, log: Log) -> int:
        return self._history(partition).first_undecided(log.high_watermark)

    def on_high_watermark(self, partition: TransactionPartition, log: Log) -> None:
        """Check the last stable offset, and read what has become stable."""
        history, stable = self._history(partition), log.last_stable_offset
        if stable < history.consumed:
            self.fail("StableOffsetIsTrue", f"{partition}: back from {history.consumed} to {stable}")
        undecided = self._first_undecided(partition, log)
        if stable > undecided:
            self.fail("StableOffsetIsTrue", f"{partition}: {stable}, but the records from {undecided} on are undecided")
        aborted = log.aborted_transactions(history.consumed, stable)
        for producer_id, offset, record, name in self._records(log, history.consumed, stable, partition):
            is_aborted = any(
                each.producer_id == producer_id and each.first_offset <= offset <= each.last_offset for each in aborted
            )
            if is_aborted:
                self._on_hidden(name)
            else:
                self._on_visible(name, record)
        history.consumed = stable

    def _records(
        self, log: Log, start: int, end: int, partition: TransactionPartition
    ) -> Iterator[tuple[int, int, SentRecord, str]]:
        """Yield (producer id, offset, record, transaction) of the data records in [start, end)."""
        while start < end:
            found = log.read(start, _ALL, end)
            if not found.data:
                return
            for position, header in iter_headers(found.data):
                start = header.next_offset
                if header.is_control or not header.is_transactional:
                    continue
                for record in iter_records(found.data, position):
                    name, _, index = self._label(partition, record).rpartition("#")
                    yield header.producer_id, record.offset, SentRecord(partition, int(index)), name

    def _label(self, partition: TransactionPartition, record: FullRecord) -> str:
        """Return the transaction and the number of a record, as "transaction#number"."""
        return (record.value or b"").decode()

    def _on_visible(self, name: str, record: SentRecord) -> None:
        if name in self._hidden:
            self.fail("TransactionsAreAtomic", f"{record} of {name} is visible, and other records of it are not")
        if not self.transactions[name].commit_was_sent:
            self.fail("DecisionsAreOwn", f"{name} is committed without its producer's EndTxn")
        visible = self._visible.setdefault(name, set())
        if record in visible:
            self.fail("RecordsAreVisibleOnce", f"{record} of {name} is visible twice")
        visible.add(record)

    def _on_hidden(self, name: str) -> None:
        if name in self._visible:
            self.fail("TransactionsAreAtomic", f"records of {name} are visible, and others are not")
        if self.transactions[name].is_committed:
            self.fail("CommitsAreKept", f"{name} is aborted after its commit was acknowledged")
        self._hidden.add(name)

    def finish(self) -> None:
        """Check each transaction after all of them are decided."""
        for name, transaction in self.transactions.items():
            visible = self._visible.get(name, set())
            if visible != transaction.sent and (visible or transaction.is_committed):
                missing = sorted(transaction.sent - visible)
                self.fail("CommitsAreKept", f"{name} is committed without {missing}, and has {sorted(visible)}")
            self.counts.add("committed" if visible else "aborted")

"""One partition of `__transaction_state` as a state machine: the transactional ids that it coordinates.

A response waits until the records of its command are committed, so no producer learns of a decision that a new
coordinator may not have. Markers are sent after the decision is committed, too (`MarkerSender`).

The record that ends a transaction follows its markers. No response waits for this record, so the record waits for the
next command of the transactional id, and both are one batch. Without such a command a timer writes it. A coordinator
that is elected in between writes the markers again, which changes nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias, assert_never

from broker.coordination.shard import CoordinatorResult
from broker.coordination.timers import CoordinatorClock, TimerQueue
from broker.transactions.config import TransactionConfig
from broker.transactions.end import EndRequest, ended, fenced_and_aborted
from broker.transactions.init_producer import InitRequest, check_producer, checked_request, new_session
from broker.transactions.partitions import added, verified
from broker.transactions.records import (
    FLEXIBLE_VALUE,
    PLAIN_VALUE,
    TransactionEvent,
    TransactionRecord,
    TransactionRemoved,
    TransactionWritten,
    decode_record,
    transaction_removed,
    transaction_written,
)
from broker.transactions.state import (
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    Transaction,
    TransactionPartition,
    TransactionState,
)
from broker.transactions.table import TransactionTable
from protocol.errors import ErrorCode, KafkaError

_AGAIN_MS = 500
"""Pause before the next look whether a decision is committed."""
_REMOVAL_SLICE = "remove expired slice"
_COMPLETION = "complete"
COMPLETION_DELAY_MS: Final = 200
"""Longest wait of the record that ends a transaction: the pause of a producer between two transactions under load."""
COMPLETIONS_PER_SLICE: Final = 256
"""Limit of the ends that one timer writes."""


class MarkersDue(NamedTuple):
    """The look whether a decision is committed, so that its markers may be sent."""

    transactional_id: str


class AbortTimedOutDue(NamedTuple):
    """The periodic abortion of transactions that last too long."""


class RemoveExpiredDue(NamedTuple):
    """The periodic removal of transactional ids that were not used for long: its slice before `position`.

    None begins at the end of the table.
    """

    position: int | None = None


class CompletionsDue(NamedTuple):
    """The end of transactions that have all their markers, and no later command."""


TransactionCause: TypeAlias = MarkersDue | AbortTimedOutDue | RemoveExpiredDue | CompletionsDue
Outcome: TypeAlias = CoordinatorResult[TransactionEvent, None]


class MarkerSender(Protocol):
    """Writes the markers of decided transactions to their partitions, and reports to `TransactionShard.complete`."""

    def send(self, transactional_id: str, transaction: Transaction) -> None:
        """Write the markers of a transaction, in place of those of an earlier one of the id."""
        ...

    def clear(self) -> None:
        """Stop: this node no longer coordinates the partition."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterTransactionVersion:
    """The finalized feature `transaction.version`."""

    level: int

    @property
    def value_version(self) -> int:
        """The version of values in `__transaction_state`."""
        return FLEXIBLE_VALUE if self.level >= 1 else PLAIN_VALUE


class TransactionShard:
    """The transactional ids of one partition. `version` returns the cluster's transaction version.

    `unwritten_ends` counts the ended transactions whose last record could not be written, and is due again.

    Commands that may need a producer id take `fresh_id`, and raise ProducerIdNeeded if it is NO_PRODUCER_ID and needed.
    """

    def __init__(
        self,
        config: TransactionConfig,
        clock: CoordinatorClock,
        markers: MarkerSender,
        version: Callable[[], ClusterTransactionVersion],
    ) -> None:
        self._config = config
        self._clock = clock
        self._markers = markers
        self._version = version
        self._queue: TimerQueue[TransactionCause] = TimerQueue(clock.monotonic_ms)
        self._transactions = TransactionTable()
        self._ongoing: dict[str, None] = {}
        self._prepared: dict[str, None] = {}
        self._marked: dict[str, None] = {}
        self.unwritten_ends = 0

    def __len__(self) -> int:
        return len(self._transactions)

    def slices(self) -> Iterator[list[tuple[str, Transaction]]]:
        """Yield all transactional ids as in the log, in slices of about a millisecond.

        The shard may change in between.
        """
        return self._transactions.slices()

    def views(self) -> Iterator[list[tuple[str, Transaction]]]:
        """Yield all transactional ids in slices; transactions that have all their markers have ended."""
        for each in self._transactions.slices():
            yield [(name, self._ended(name, state)) for name, state in each] if self._marked else each

    def get(self, transactional_id: str) -> Transaction | None:
        """Return the state of a transactional id. A transaction that has all its markers has ended."""
        found = self._transactions.get(transactional_id)
        return None if found is None else self._ended(transactional_id, found)

    # Interface of every shard.

    @property
    def timers(self) -> TimerQueue[TransactionCause]:
        return self._queue

    @property
    def parking(self) -> None:
        """None: every record is replayed at once."""

    def decode(self, key: bytes, value: bytes | None) -> TransactionEvent | None:
        return decode_record(key, value)

    def replay(self, event: TransactionEvent, offset: int, producer_id: int) -> None:
        match event:
            case TransactionWritten(transactional_id, transaction):
                self._transactions.put(transactional_id, transaction)
                self._forget(transactional_id)
                if transaction.state is TransactionState.ONGOING:
                    self._ongoing[transactional_id] = None
                elif transaction.state.is_prepared:
                    self._prepared[transactional_id] = None
            case TransactionRemoved(transactional_id):
                self._transactions.remove(transactional_id)
                self._forget(transactional_id)
            case _:
                assert_never(event)

    def _forget(self, transactional_id: str) -> None:
        self._ongoing.pop(transactional_id, None)
        self._prepared.pop(transactional_id, None)
        self._marked.pop(transactional_id, None)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """Do nothing: no record of this topic belongs to a transaction."""

    def on_loaded(self) -> None:
        """Start the periodic work, and write the markers of decided transactions as soon as the log is committed.

        All markers are written again: the former coordinator may have written some.
        """
        self._schedule_abortion()
        self._schedule_removal()
        for transactional_id in self._prepared:
            self._queue.schedule(_markers_key(transactional_id), 0, MarkersDue(transactional_id))

    def on_unloaded(self) -> None:
        self._queue.clear()
        self._markers.clear()
        self._marked.clear()

    def on_timer(self, cause: TransactionCause) -> Outcome:
        match cause:
            case MarkersDue(transactional_id):
                return self._send_when_committed(transactional_id)
            case AbortTimedOutDue():
                self._schedule_abortion()
                return self._abort_timed_out()
            case RemoveExpiredDue(position):
                if position is None:
                    self._schedule_removal()
                    position = len(self._transactions)
                return self._remove_expired(position)
            case CompletionsDue():
                return self._write_ends()
            case _:
                assert_never(cause)

    # Requests. All raise KafkaError.

    def init_producer(
        self, transactional_id: str, request: InitRequest, fresh_id: int
    ) -> CoordinatorResult[TransactionEvent, ProducerIdAndEpoch | ErrorCode]:
        """Begin a producer session; the response is its producer id and epoch.

        An ongoing transaction is aborted first, and the response is CONCURRENT_TRANSACTIONS: the client tries again
        until the markers are written.
        """
        request = checked_request(request, self._config)
        before, now_ms = self.get(transactional_id), self._clock.now_ms()
        if before is not None and before.state is TransactionState.ONGOING:
            check_producer(before, request.known)
            aborted = fenced_and_aborted(before, fresh_id, self._version().level, now_ms)
            return self._decide(transactional_id, before, aborted).answering(ErrorCode.CONCURRENT_TRANSACTIONS)
        after = new_session(before, request, fresh_id, now_ms)
        return self._write(transactional_id, before, after).answering(after.producer)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TransactionPartition],
        version: int,
    ) -> Outcome:
        """Add partitions to the transaction; begin one if none is ongoing."""
        before = self.get(transactional_id)
        after = added(before, producer, partitions, version, self._clock.now_ms())
        return CoordinatorResult(None) if after is None else self._write(transactional_id, before, after)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TransactionPartition]
    ) -> Mapping[TransactionPartition, ErrorCode]:
        """Return for each partition NONE, or TRANSACTION_ABORTABLE if it is not in the ongoing transaction."""
        return verified(self.get(transactional_id), producer, partitions)

    def end(
        self, transactional_id: str, request: EndRequest, fresh_id: int
    ) -> CoordinatorResult[TransactionEvent, ProducerIdAndEpoch]:
        """Decide the outcome; the response is the producer id and epoch of the next transaction."""
        before = self.get(transactional_id)
        if before is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        after = ended(before, request, fresh_id, self._clock.now_ms())
        if after is None:
            return CoordinatorResult(before.next_producer, self._end_records(transactional_id, before))
        return self._decide(transactional_id, before, after).answering(after.next_producer)

    def describe(self, transactional_id: str) -> CoordinatorResult[TransactionEvent, Transaction | None]:
        """Return the state of a transactional id, and write the end of a transaction that has all its markers."""
        found = self.get(transactional_id)
        return CoordinatorResult(found, self._end_records(transactional_id, found))

    def complete(self, transactional_id: str, decided: ProducerIdAndEpoch) -> Outcome:
        """End a transaction whose markers are all written; do nothing for one that is not the present one.

        The record follows within COMPLETION_DELAY_MS.
        """
        before = self._transactions.get(transactional_id)
        if before is not None and before.state.is_prepared and before.producer == decided:
            self._marked[transactional_id] = None
            if _COMPLETION not in self._queue:
                self._queue.schedule(_COMPLETION, COMPLETION_DELAY_MS, CompletionsDue())
        return CoordinatorResult(None)

    # Decisions and markers

    def _ended(self, transactional_id: str, transaction: Transaction) -> Transaction:
        """Return the transaction, ended if it has all its markers."""
        return transaction.completed(self._clock.now_ms()) if transactional_id in self._marked else transaction

    def _end_records(self, transactional_id: str, ended: Transaction | None) -> tuple[TransactionRecord, ...]:
        """Return the record of a transaction that has ended, if the log lacks it."""
        if ended is None or transactional_id not in self._marked:
            return ()
        return (transaction_written(transactional_id, ended, self._version().value_version),)

    def _write(self, transactional_id: str, before: Transaction | None, after: Transaction) -> Outcome:
        record = transaction_written(transactional_id, after, self._version().value_version)
        return CoordinatorResult(None, (*self._end_records(transactional_id, before), record))

    def _decide(self, transactional_id: str, before: Transaction, after: Transaction) -> Outcome:
        record = transaction_written(transactional_id, after, self._version().value_version)
        return CoordinatorResult(
            None,
            (*self._end_records(transactional_id, before), record),
            on_outcome=lambda error: self._on_decided(transactional_id, after.producer, error),
        )

    def _send_when_committed(self, transactional_id: str) -> Outcome:
        """Wait for the commit of everything in the log, and so of the decision."""
        decided = self._transactions.get(transactional_id)
        if decided is None or not decided.state.is_prepared:
            return CoordinatorResult(None)
        producer = decided.producer
        return CoordinatorResult(None, on_outcome=lambda error: self._on_decided(transactional_id, producer, error))

    def _on_decided(self, transactional_id: str, producer: ProducerIdAndEpoch, error: ErrorCode) -> Outcome:
        """Send the markers once the decision is committed.

        After a timeout of the commit the decision is still in the log, and no other may replace it.
        """
        decided = self._transactions.get(transactional_id)
        if decided is not None and decided.state.is_prepared and decided.producer == producer:
            if error is ErrorCode.NONE:
                self._markers.send(transactional_id, decided)
            elif error is ErrorCode.REQUEST_TIMED_OUT:
                self._queue.schedule(_markers_key(transactional_id), _AGAIN_MS, MarkersDue(transactional_id))
        return CoordinatorResult(None)

    def _write_ends(self) -> Outcome:
        """Write the records of transactions that have all their markers, and try again as long as some remain."""
        some = list(islice(self._marked, COMPLETIONS_PER_SLICE))
        records = tuple(record for each in some for record in self._end_records(each, self.get(each)))

        def go_on(error: ErrorCode) -> Outcome:
            # After a timeout of the commit the records are in the log.
            has_failed = error not in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
            self.unwritten_ends = len(self._marked) if has_failed else 0
            if self._marked and _COMPLETION not in self._queue:
                delay_ms = _AGAIN_MS if has_failed else COMPLETION_DELAY_MS
                self._queue.schedule(_COMPLETION, delay_ms, CompletionsDue())
            return CoordinatorResult(None)

        return CoordinatorResult(None, records, atomic=False, on_outcome=go_on)

    # Periodic work

    def _schedule_abortion(self) -> None:
        interval_ms = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._queue.schedule("abort timed out", interval_ms, AbortTimedOutDue())

    def _schedule_removal(self) -> None:
        interval_ms = self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._queue.schedule("remove expired", interval_ms, RemoveExpiredDue())

    def _abort_timed_out(self) -> Outcome:
        """Abort the transactions that have lasted longer than their timeout, and fence their producers."""
        now_ms, version = self._clock.now_ms(), self._version()
        aborted: dict[str, Transaction] = {}
        for transactional_id in self._ongoing:
            transaction = self._transactions.get(transactional_id)
            if transaction is not None and transaction.has_timed_out(now_ms):
                # The producer is gone, so the next session replaces an exhausted id.
                aborted[transactional_id] = fenced_and_aborted(transaction, NO_PRODUCER_ID, 0, now_ms)
        records = tuple(transaction_written(each, after, version.value_version) for each, after in aborted.items())

        def on_outcome(error: ErrorCode) -> Outcome:
            for transactional_id, after in aborted.items():
                self._on_decided(transactional_id, after.producer, error)
            return CoordinatorResult(None)

        return CoordinatorResult(None, records, atomic=False, on_outcome=on_outcome)

    def _remove_expired(self, position: int) -> Outcome:
        """Remove transactional ids that had no transaction for `transactional.id.expiration.ms`.

        The next slice follows the commit of this one. If the write fails, the next period begins anew.
        """
        oldest_ms = self._clock.now_ms() - self._config.transactional_id_expiration_ms
        transactions, following = self._transactions.slice_before(position)
        expired = tuple(
            transaction_removed(transactional_id)
            for transactional_id, each in transactions
            if each.last_update_ms <= oldest_ms
            and each.state is not TransactionState.ONGOING
            and not each.state.is_prepared
        )

        def go_on(error: ErrorCode) -> Outcome:
            if error is ErrorCode.NONE:
                self._queue.schedule(_REMOVAL_SLICE, 0, RemoveExpiredDue(following))
            return CoordinatorResult(None)

        return CoordinatorResult(None, expired, atomic=False, on_outcome=go_on if following else None)


def _markers_key(transactional_id: str) -> str:
    return f"markers {transactional_id}"

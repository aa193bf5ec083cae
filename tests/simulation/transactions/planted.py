"""Known kinds of bugs of transactions, planted one at a time.

`PLANTED` names the invariants of which one must fail, and the number of seeds within which it must.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.coordination.shard import CoordinatorResult
from broker.transactions import end, shard
from broker.transactions.shard import TransactionShard
from broker.transactions.state import Transaction, TransactionState
from protocol.records.batch import BatchHeader
from storage.log import Log
from storage.producer_state import CompletedTxn, EndTransactionMarker, ProducerState
from tests.simulation.replication.campaign import Patch

EVENTS: Final = 2_000

_prepared = Transaction.prepared
_decide = TransactionShard._decide
_apply = Log._apply
_apply_marker = ProducerState.apply_marker


class Planted(NamedTuple):
    """A bug, the invariants of which one must fail, and the number of seeds within which it must."""

    patches: Sequence[Patch]
    catchers: Sequence[str]
    seeds: int


def _keep_epoch(transaction: Transaction, **arguments: Any) -> Transaction:
    return _prepared(transaction, **{**arguments, "bumps_epoch": False})


def _send_at_once(
    coordinator: TransactionShard, transactional_id: str, before: Transaction, after: Transaction
) -> CoordinatorResult[Any, None]:
    result = _decide(coordinator, transactional_id, before, after)
    coordinator._markers.send(transactional_id, after)
    return CoordinatorResult(None, result.records)


def _keep_guards(log: Log, header: BatchHeader, marker: EndTransactionMarker | None) -> None:
    guards = dict(log.verifications._entries) if marker is not None else {}
    _apply(log, header, marker)
    log.verifications._entries.update(guards)


def _load_without_markers(coordinator: TransactionShard) -> None:
    coordinator._schedule_abortion()
    coordinator._schedule_removal()


def _commit_marker(state: ProducerState, header: BatchHeader, marker: EndTransactionMarker) -> CompletedTxn | None:
    completed = _apply_marker(state, header, marker)
    return None if completed is None else completed._replace(is_aborted=False)


def _first_open(state: ProducerState) -> int | None:
    return next(iter(state.open_transactions), None)


def _any_outcome(before: Transaction, request: end.EndRequest, fresh_id: int, now_ms: int) -> Transaction | None:
    if before.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        return None
    return end.ended(before, request, fresh_id, now_ms)


PLANTED: Final[Mapping[str, Planted]] = {
    "a decision leaves the producer epoch as it is": Planted(
        [Patch(Transaction, "prepared", _keep_epoch)], ("DecisionsAreOwn", "CommitsAreKept", "EverythingIsDecided"), 20
    ),
    "first batches of transactions are not verified": Planted(
        [
            Patch(Log, "start_verification", lambda log, *producer: None),
            Patch(Log, "_begins_transaction", lambda log, header: False),
        ],
        ("EverythingIsDecided", "DecisionsAreOwn", "TransactionsAreAtomic"),
        20,
    ),
    "an open transaction of another epoch counts as verified": Planted(
        [
            Patch(
                ProducerState,
                "has_open_transaction",
                lambda state, producer_id, epoch: (
                    producer_id in state.entries and state.entries[producer_id].transaction_start >= 0
                ),
            )
        ],
        ("EverythingIsDecided", "DecisionsAreOwn", "TransactionsAreAtomic"),
        20,
    ),
    "a guard outlives the marker of its transaction": Planted(
        [Patch(Log, "_apply", _keep_guards)],
        ("EverythingIsDecided", "DecisionsAreOwn", "TransactionsAreAtomic"),
        40,
    ),
    "markers are sent before the decision is committed": Planted(
        [Patch(TransactionShard, "_decide", _send_at_once)],
        ("TransactionsAreAtomic", "CommitsAreKept", "DecisionsAreOwn", "EverythingIsDecided"),
        50,
    ),
    "a new coordinator writes no markers of decided transactions": Planted(
        [Patch(TransactionShard, "on_loaded", _load_without_markers)], ("EverythingIsDecided",), 20
    ),
    "markers of a former coordinator are taken": Planted(
        [Patch(ProducerState, "check_marker", lambda state, header, marker: None)],
        ("DecisionsAreOwn", "CommitsAreKept", "TransactionsAreAtomic"),
        50,
    ),
    "transactions that last too long go on": Planted(
        [Patch(TransactionShard, "_abort_timed_out", lambda coordinator: CoordinatorResult(None))],
        ("EverythingIsDecided",),
        10,
    ),
    "the last stable offset ignores transactions": Planted(
        [Patch(Log, "last_stable_offset", property(lambda log: log.high_watermark))],
        ("StableOffsetIsTrue", "DecisionsAreOwn"),
        5,
    ),
    "the last stable offset ignores markers above the high watermark": Planted(
        [Patch(ProducerState, "first_unstable_offset", property(_first_open))],
        ("StableOffsetIsTrue", "TransactionsAreAtomic", "DecisionsAreOwn", "CommitsAreKept"),
        50,
    ),
    "aborted transactions are missing in the index": Planted(
        [Patch(ProducerState, "apply_marker", _commit_marker)], ("DecisionsAreOwn",), 5
    ),
    "an EndTxn with the other outcome counts as repeated": Planted(
        [Patch(shard, "ended", _any_outcome)], ("CommitsAreKept",), 50
    ),
    "batches of an older epoch or sequence are taken": Planted(
        [Patch(ProducerState, "check", lambda state, header, origin, committed: None)],
        ("RecordsAreVisibleOnce", "CommitsAreKept", "EverythingIsDecided", "DecisionsAreOwn"),
        10,
    ),
}
"""Planted bugs by name."""

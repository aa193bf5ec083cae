"""Open transactions with their age."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.api.pipeline.permission import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from broker.console.answers import SharedAnswers
from broker.console.cluster import ConsoleCluster
from broker.console.listing import Filter, RowListing
from broker.console.request import ConsoleRequest, Json, paged
from broker.net.peer import PeerError
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


class _Row(NamedTuple):
    id: str
    coordinator: int


class _Listed(NamedTuple):
    listing: RowListing[_Row]
    missing: Sequence[Json]


class TransactionViews:
    """The view `transactions`."""

    def __init__(self, cluster: ConsoleCluster, shared: SharedAnswers) -> None:
        self._cluster = cluster
        self._shared = shared

    async def page(self, request: ConsoleRequest) -> Json:
        """Return a page of transactional ids; `all=1` includes those without an open transaction."""
        page = request.page(("id",))
        is_open = request.text("all", "0") != "1"
        known = await self._shared.get(("transactions", is_open), lambda: self._list(is_open))
        filters: list[Filter[_Row]] = self._cluster.filters(request, DESCRIBE_TRANSACTIONAL_ID, lambda row: row.id)
        found = await known.listing.select(page, filters)
        states = await self._describe(found.rows)
        items = [self._item(request, row, states.get(row.id)) for row in found.rows]
        return paged(items, page, found.total, known.missing)

    async def _list(self, is_open: bool) -> _Listed:
        request = ListTransactionsRequest(list(_OPEN) if is_open else [])
        answers = await self._cluster.ask_all(self._cluster.live_brokers, lambda _: request, ListTransactionsResponse)
        coordinators = {
            each.transactional_id: broker
            for broker, response in answers.by_id.items()
            for each in response.transaction_states
        }
        rows = [_Row(id, coordinators[id]) for id in sorted(coordinators)]
        return _Listed(RowListing(rows, lambda row: row.id), answers.missing)

    async def _describe(self, rows: Sequence[_Row]) -> dict[str, TransactionState]:
        by_broker: defaultdict[int, list[str]] = defaultdict(list)
        for row in rows:
            by_broker[row.coordinator].append(row.id)
        states: dict[str, TransactionState] = {}
        for broker, ids in by_broker.items():
            try:
                response = await self._cluster.ask(
                    broker, DescribeTransactionsRequest(ids), DescribeTransactionsResponse
                )
            except PeerError:
                continue
            states.update({each.transactional_id: each for each in response.transaction_states if not each.error_code})
        return states

    def _item(self, request: ConsoleRequest, row: _Row, state: TransactionState | None) -> Json:
        item: Json = {"id": row.id, "coordinator": row.coordinator}
        if state is None:
            return {
                **item,
                **dict.fromkeys(("state", "producer_id", "producer_epoch", "start_ms", "age_ms", "timeout_ms")),
                "partitions": [],
            }
        start = state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None
        is_open = state.transaction_state in _OPEN and start is not None
        return {
            **item,
            "state": state.transaction_state,
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "start_ms": start if is_open else None,
            "age_ms": max(0, self._cluster.node.clock.now_ms() - start) if is_open and start is not None else None,
            "timeout_ms": state.transaction_timeout_ms,
            "partitions": [
                {"topic": each.topic, "partitions": sorted(each.partitions)}
                for each in state.topics
                if self._cluster.allows(request, DESCRIBE_TOPIC, each.topic)
            ],
        }

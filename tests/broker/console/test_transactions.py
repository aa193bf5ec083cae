"""The view of transactions."""

from typing import Any

from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.console.answers import SharedAnswers
from broker.console.request import Json
from broker.console.transactions import TransactionViews
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from protocol.messages.list_transactions import TransactionState as Listed
from tests.broker.metadata.images import image_with
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.console_harness import ALICE, ConsoleHarness, asked

STATES = {"pay-1": ("Ongoing", 1), "pay-2": ("CompleteCommit", 1), "ship": ("PrepareAbort", 2)}
BEGAN_AGO_MS = 5_000


class Views:
    def __init__(self, authorizer: GrantedPermissions | None = None) -> None:
        self.harness = ConsoleHarness(image_with(brokers=(1, 2)), authorizer)
        self.began_ms = self.harness.clock.now_ms() - BEGAN_AGO_MS
        self.harness.nodes.answers[ListTransactionsRequest] = self._list
        self.harness.nodes.answers[DescribeTransactionsRequest] = self._describe
        shared = SharedAnswers(self.harness.clock.monotonic_ms, 1_000)
        self.views = TransactionViews(self.harness.cluster, shared)

    def _list(self, node: int, request: ListTransactionsRequest) -> ListTransactionsResponse:
        found = [
            Listed(id, 7, state)
            for id, (state, broker) in STATES.items()
            if broker == node and (not request.state_filters or state in request.state_filters)
        ]
        return ListTransactionsResponse(transaction_states=found)

    def _describe(self, node: int, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        topics = [TopicData("a", [1, 0]), TopicData("secret", [0])]
        found = [
            TransactionState(0, id, STATES[id][0], 60_000, self.began_ms, 7, 3, topics)
            for id in request.transactional_ids
        ]
        return DescribeTransactionsResponse(transaction_states=found)

    async def items(self, **parameters: Any) -> list[Json]:
        return list((await self.views.page(asked(**parameters)))["items"])


async def test_open_transactions_have_an_age() -> None:
    first, second = await Views().items()
    assert (first["id"], first["state"], first["age_ms"], first["timeout_ms"]) == ("pay-1", "Ongoing", 5_000, 60_000)
    assert first["partitions"] == [{"topic": "a", "partitions": [0, 1]}, {"topic": "secret", "partitions": [0]}]
    assert (second["id"], second["coordinator"], second["age_ms"]) == ("ship", 2, 5_000)


async def test_ids_without_open_transaction_are_shown_on_request() -> None:
    views = Views()
    assert [(item["id"], item["age_ms"]) for item in await views.items(all=1, search="PAY")] == [
        ("pay-1", 5_000),
        ("pay-2", None),
    ]


async def test_principal_sees_only_ids_and_topics_that_it_may_describe() -> None:
    authorizer = GrantedPermissions(
        [
            (ALICE, AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, "pay-1"),
            (ALICE, AclOperation.DESCRIBE, AclResourceType.TOPIC, "a"),
        ]
    )
    (item,) = await Views(authorizer).items(all=1)
    assert (item["id"], item["partitions"]) == ("pay-1", [{"topic": "a", "partitions": [0, 1]}])


async def test_silent_coordinator_is_named_or_leaves_the_state_unknown() -> None:
    views = Views()
    await views.items()
    views.harness.nodes.silent.add(2)
    assert [item["state"] for item in await views.items()] == ["Ongoing", None]
    views.harness.clock.advance_ms(1_000)
    answer = await views.views.page(asked())
    assert [item["id"] for item in answer["items"]] == ["pay-1"]
    assert [each["broker"] for each in answer["missing"]] == [2]

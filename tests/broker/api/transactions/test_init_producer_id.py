"""InitProducerId: producer ids for idempotent producers; sessions of transactional ones from the coordinator."""

from typing import cast

import pytest

from broker.api.transactions.init_producer_id import InitProducerIdHandler
from broker.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from broker.transactions.init_producer import InitRequest
from broker.transactions.state import ProducerIdAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.broker.api.metadata_harness import context


class Ids:
    def __init__(self, failure: KafkaError | None = None) -> None:
        self._failure = failure
        self._last = 999

    async def next_id(self) -> int:
        if self._failure is not None:
            raise self._failure
        self._last += 1
        return self._last


class Coordinator:
    """A transaction coordinator with one answer."""

    def __init__(self, answer: ProducerIdAndEpoch | ErrorCode) -> None:
        self._answer = answer
        self.asked: list[tuple[str, InitRequest]] = []

    async def init_producer(self, transactional_id: str, request: InitRequest) -> ProducerIdAndEpoch:
        self.asked.append((transactional_id, request))
        if isinstance(self._answer, ErrorCode):
            raise KafkaError(self._answer)
        return self._answer


def handler_of(coordinator: Coordinator, ids: Ids | None = None) -> InitProducerIdHandler:
    return InitProducerIdHandler(ids or Ids(), cast(TransactionCoordinator, coordinator))


async def ask(
    transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1, failure: KafkaError | None = None
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id, 60_000, producer_id, epoch)
    return await handler_of(Coordinator(ErrorCode.INVALID_REQUEST), Ids(failure))(request, context(6))


async def test_every_producer_gets_a_new_id_at_epoch_0() -> None:
    handler = handler_of(Coordinator(ErrorCode.INVALID_REQUEST))
    answers = [await handler(InitProducerIdRequest(None), context(4)) for _ in range(3)]
    assert [(each.error_code, each.producer_id, each.producer_epoch) for each in answers] == [
        (0, 1000, 0),
        (0, 1001, 0),
        (0, 1002, 0),
    ]


async def test_producer_with_an_id_gets_another() -> None:
    assert (await ask(producer_id=5, epoch=3)).producer_id == 1000


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
async def test_incomplete_identity_is_refused(producer_id: int, epoch: int) -> None:
    response = await ask(producer_id=producer_id, epoch=epoch)
    assert (ErrorCode(response.error_code), response.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


async def test_transactional_producer_is_known_to_the_coordinator() -> None:
    coordinator = Coordinator(ProducerIdAndEpoch(7, 3))
    request = InitProducerIdRequest("orders", 60_000, 7, 2)
    response = await handler_of(coordinator)(request, context(6))
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 7, 3)
    assert coordinator.asked == [("orders", InitRequest(60_000, ProducerIdAndEpoch(7, 2)))]


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
async def test_old_clients_know_the_fenced_epoch_only(version: int, code: ErrorCode) -> None:
    response = await handler_of(Coordinator(ErrorCode.PRODUCER_FENCED))(
        InitProducerIdRequest("orders"), context(version)
    )
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        (InitProducerIdRequest("orders", 1, enable2_pc=True), InitRequest(1, None, is_two_phase=True)),
        (InitProducerIdRequest("orders", 1, keep_prepared_txn=True), InitRequest(1, None, keeps_prepared=True)),
    ],
)
async def test_two_phase_commit_reaches_the_coordinator(request_: InitProducerIdRequest, asked: InitRequest) -> None:
    coordinator = Coordinator(ProducerIdAndEpoch(7, 0))
    response = await handler_of(coordinator)(request_, context(6))
    assert (response.error_code, response.ongoing_txn_producer_id) == (0, -1)
    assert coordinator.asked == [("orders", asked)]


async def test_missing_ids_make_the_client_retry() -> None:
    response = await ask(failure=KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert ErrorCode(response.error_code) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

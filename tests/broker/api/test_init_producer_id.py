"""InitProducerId: idempotent producers are served, transactional ones refused."""

import logging

import pytest

from broker.api.init_producer_id import MAX_REMEMBERED_REFUSALS, InitProducerIdHandler
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


async def ask(
    transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1, failure: KafkaError | None = None
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id, 60_000, producer_id, epoch)
    return await InitProducerIdHandler(Ids(failure))(request, context(6))


async def test_every_producer_gets_a_new_id_at_epoch_0() -> None:
    handler = InitProducerIdHandler(Ids())
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


REFUSAL = "transactional producer refused: transactions are not supported"


@pytest.mark.parametrize("transactional_id", ["", "orders"])
async def test_transactional_id_is_refused_and_logged_once(
    transactional_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    handler = InitProducerIdHandler(Ids())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            response = await handler(InitProducerIdRequest(transactional_id, 60_000), context(6))
            assert (ErrorCode(response.error_code), response.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1)
    assert [record.getMessage() for record in caplog.records] == [REFUSAL]


async def test_remembered_transactional_ids_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    handler = InitProducerIdHandler(Ids())
    with caplog.at_level(logging.WARNING):
        for number in (*range(MAX_REMEMBERED_REFUSALS + 1), 0):
            await handler(InitProducerIdRequest(f"id-{number}", 60_000), context(6))
    assert len(caplog.records) == MAX_REMEMBERED_REFUSALS + 2


async def test_missing_ids_make_the_client_retry() -> None:
    response = await ask(failure=KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert ErrorCode(response.error_code) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

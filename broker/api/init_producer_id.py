"""InitProducerId (key 22), versions 0-6: a producer id for an idempotent producer.

Transactions are not supported: a transactional id is refused with INVALID_REQUEST and logged once per id, because
librdkafka retries every half second.
"""

from typing import Final, Protocol

from broker.api.serving.context import RequestContext
from broker.logs import EventLog
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_ID: Final = -1
FIRST_EPOCH: Final = 0
MAX_REMEMBERED_REFUSALS: Final = 1000

_log: Final = EventLog("broker.api.init_producer_id")


class ProducerIdSource(Protocol):
    """Allocates producer ids."""

    async def next_id(self) -> int:
        """Return a producer id that was never allocated before. Raises KafkaError."""
        ...


class InitProducerIdHandler:
    """Answers InitProducerId."""

    def __init__(self, producer_ids: ProducerIdSource) -> None:
        self._producer_ids = producer_ids
        self._refused_ids: set[str] = set()

    async def __call__(self, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
        if request.transactional_id is not None:
            self._report(request.transactional_id, context)
            return _refused(ErrorCode.INVALID_REQUEST)
        if (request.producer_id == NO_ID) != (request.producer_epoch == NO_ID):
            return _refused(ErrorCode.INVALID_REQUEST)
        try:
            return InitProducerIdResponse(producer_id=await self._producer_ids.next_id(), producer_epoch=FIRST_EPOCH)
        except KafkaError as error:
            return _refused(error.code)

    def _report(self, transactional_id: str, context: RequestContext) -> None:
        if transactional_id in self._refused_ids:
            return
        if len(self._refused_ids) >= MAX_REMEMBERED_REFUSALS:
            self._refused_ids.clear()
        self._refused_ids.add(transactional_id)
        _log.warning(
            "transactional producer refused: transactions are not supported",
            transactional_id=transactional_id,
            client=context.client_id,
            host=context.peer_host,
        )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_ID, producer_epoch=NO_ID)

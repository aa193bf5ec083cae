"""Responses of handlers that return a future, a pending result or a coroutine."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker.api.pipeline import permission as needs
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.route import route
from broker.net.request import CloseConnection, ConnectionInfo, EncodedResponse, Request
from broker.runtime.loop.pending_result import PendingResult
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.errors import EncodeError, ErrorCode, KafkaError
from protocol.framing import SIZE_BYTES
from protocol.headers import RequestHeader, decode_response
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.broker.api.serving.test_controller_routes import Observer
from tests.support.fakes.clock import ManualClock

VERSION = 4
Way = Callable[[asyncio.Future[HeartbeatResponse]], object]


def refused(future: asyncio.Future[HeartbeatResponse]) -> HeartbeatResponse:
    """Return the result; answer any refusal with REBALANCE_IN_PROGRESS."""
    try:
        return future.result()
    except KafkaError:
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


async def coroutine(future: asyncio.Future[HeartbeatResponse]) -> HeartbeatResponse:
    return await future


async def awaited_result(future: asyncio.Future[HeartbeatResponse]) -> HeartbeatResponse:
    return await PendingResult(future, asyncio.Future.result)


def own_result(future: asyncio.Future[HeartbeatResponse]) -> PendingResult[HeartbeatResponse]:
    return PendingResult(future, asyncio.Future.result)


def same(future: asyncio.Future[HeartbeatResponse]) -> asyncio.Future[HeartbeatResponse]:
    return future


WAYS = pytest.mark.parametrize("way", [same, own_result, coroutine, awaited_result])
WITHOUT_TASK = pytest.mark.parametrize("way", [same, own_result])


class Served:
    """A request whose handler returns what `way` makes of `future`."""

    def __init__(self, way: Way) -> None:
        self.future: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()
        clock = ManualClock()
        rows = (route(ApiKey.HEARTBEAT, lambda _request, _context: way(self.future), needs.READ_GROUP),)
        body = memoryview(encode_bytes(HeartbeatRequest("g", 1, "m"), VERSION))
        header = RequestHeader(ApiKey.HEARTBEAT, VERSION, 7, "app")
        connection = ConnectionInfo("c", "CLIENTS", "10.0.0.1", 1)
        found: Any = Dispatcher(rows, clock, Observer())(Request(header, body, connection, 0))
        self.pending: Awaitable[EncodedResponse] = found
        self.response = asyncio.ensure_future(self.pending)

    async def error_code(self) -> int:
        frame = await self.response
        assert frame is not None
        answer: HeartbeatResponse = decode_response(HeartbeatResponse, VERSION, b"".join(frame)[SIZE_BYTES:])[1]
        return answer.error_code


@WAYS
async def test_result_is_encoded(way: Way) -> None:
    served = Served(way)
    served.future.set_result(HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert await served.error_code() == ErrorCode.ILLEGAL_GENERATION


@WAYS
async def test_refusal_becomes_the_error_response_of_the_api(way: Way) -> None:
    served = Served(way)
    served.future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert await served.error_code() == ErrorCode.NOT_COORDINATOR


@WAYS
async def test_unexpected_error_is_logged_and_answered(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    served = Served(way)
    served.future.set_exception(LookupError("a bug"))
    assert await served.error_code() == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "request failed with an unexpected error api=HEARTBEAT" in caplog.text
    assert "a bug" in caplog.text


@WAYS
async def test_request_to_close_reaches_the_connection(way: Way) -> None:
    served = Served(way)
    served.future.set_exception(CloseConnection("no more"))
    with pytest.raises(CloseConnection, match="no more"):
        await served.response


@WAYS
async def test_end_of_the_connection_cancels_the_handler(way: Way) -> None:
    served = Served(way)
    await asyncio.sleep(0)  # the task of a coroutine begins
    served.response.cancel()
    with pytest.raises(asyncio.CancelledError):
        await served.response
    assert served.future.cancelled()


@WITHOUT_TASK
async def test_cancelled_future_cancels_the_response(way: Way) -> None:
    served = Served(way)
    served.future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await served.response


@WITHOUT_TASK
async def test_future_costs_no_task(way: Way) -> None:
    tasks = asyncio.all_tasks()
    served = Served(way)
    assert asyncio.all_tasks() == tasks
    assert served.response is served.pending
    served.future.set_result(HeartbeatResponse())
    assert await served.error_code() == ErrorCode.NONE


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_own_answer_to_a_refusal_replaces_the_general_one(is_awaited: bool) -> None:
    async def awaited(future: asyncio.Future[HeartbeatResponse]) -> HeartbeatResponse:
        return await PendingResult(future, refused)

    served = Served(awaited if is_awaited else lambda future: PendingResult(future, refused))
    served.future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert await served.error_code() == ErrorCode.REBALANCE_IN_PROGRESS


async def test_failure_to_encode_reaches_the_connection() -> None:
    served = Served(same)
    served.future.set_result(HeartbeatResponse(throttle_time_ms=1 << 40))
    with pytest.raises(EncodeError):
        await served.response

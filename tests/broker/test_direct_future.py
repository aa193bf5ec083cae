"""Futures whose consumer runs inside `set_result`."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.direct_future import DirectFuture, direct_future, when_done

Futures = list[asyncio.Future[int]]


@pytest.fixture
async def future() -> DirectFuture[int]:
    return direct_future(asyncio.get_running_loop())


async def turn() -> None:
    await asyncio.sleep(0)


async def test_consumer_runs_inside_set_result(future: DirectFuture[int]) -> None:
    seen: list[int] = []
    future.when_done(lambda done: seen.append(done.result()))
    future.set_result(1)
    assert seen == [1]
    await turn()
    assert seen == [1]


@pytest.mark.parametrize("end", [lambda future: future.set_exception(ValueError()), lambda future: future.cancel()])
async def test_consumer_of_an_error_runs_in_the_next_turn(
    future: DirectFuture[int], end: Callable[[DirectFuture[int]], object]
) -> None:
    seen: Futures = []
    future.when_done(seen.append)
    end(future)
    assert seen == []
    await turn()
    assert seen == [future]
    assert future.cancelled() or isinstance(future.exception(), ValueError)


async def test_consumer_of_a_done_future_runs_in_the_next_turn(future: DirectFuture[int]) -> None:
    seen: Futures = []
    future.set_result(1)
    future.when_done(seen.append)
    assert seen == []
    await turn()
    assert seen == [future]


async def test_error_of_the_consumer_goes_to_the_loop(future: DirectFuture[int]) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    error = ValueError("a bug")

    def fail(_: asyncio.Future[int]) -> None:
        raise error

    future.when_done(fail)
    future.set_result(1)
    assert [context["exception"] for context in reported] == [error]
    assert future.result() == 1


async def test_cancellation_is_reported_once(future: DirectFuture[int]) -> None:
    seen: list[str] = []
    future.when_cancelled(lambda: seen.append("cancelled"))
    assert future.cancel()
    assert not future.cancel()
    await turn()
    assert seen == ["cancelled"]


async def test_result_is_no_cancellation(future: DirectFuture[int]) -> None:
    seen: list[str] = []
    future.when_cancelled(lambda: seen.append("cancelled"))
    future.set_result(1)
    assert not future.cancel()
    await turn()
    assert seen == []


async def test_await_works_as_with_any_future(future: DirectFuture[int]) -> None:
    asyncio.get_running_loop().call_soon(future.set_result, 1)
    assert await future == 1


async def test_plain_future_calls_in_the_next_turn() -> None:
    seen: Futures = []
    plain: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    when_done(plain, seen.append)
    plain.set_result(1)
    assert seen == []
    await turn()
    assert seen == [plain]

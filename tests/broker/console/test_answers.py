"""Answers that requests share."""

import asyncio

import pytest

from broker.console.answers import ENTRIES_MAX, SharedAnswers
from tests.support.fakes.clock import ManualClock


class Source:
    """Counts how often an answer is made; `gate` holds it back."""

    def __init__(self) -> None:
        self.made = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def make(self) -> int:
        self.made += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def shared(clock: ManualClock) -> SharedAnswers:
    return SharedAnswers(clock.monotonic_ms, 1_000)


async def test_answer_is_kept_for_its_lifetime(shared: SharedAnswers, clock: ManualClock) -> None:
    source = Source()
    assert [await shared.get("k", source.make) for _ in range(3)] == [1, 1, 1]
    clock.advance_ms(1_000)
    assert await shared.get("k", source.make) == 2


async def test_requests_wait_for_the_same_answer_and_survive_each_other(shared: SharedAnswers) -> None:
    source = Source()
    source.gate.clear()
    first, second = (asyncio.ensure_future(shared.get("k", source.make)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    source.gate.set()
    assert await second == 1


async def test_failure_is_not_kept(shared: SharedAnswers) -> None:
    source = Source()
    source.error = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        await shared.get("k", source.make)
    source.error = None
    assert await shared.get("k", source.make) == 2


async def test_answers_are_bounded(shared: SharedAnswers) -> None:
    source = Source()
    await shared.get("k", source.make)
    for number in range(ENTRIES_MAX):
        await shared.get(number, source.make)
    made = source.made
    await shared.get("k", source.make)
    assert source.made == made + 1


async def test_close_cancels_what_is_being_made(shared: SharedAnswers) -> None:
    source = Source()
    source.gate.clear()
    waiting = asyncio.ensure_future(shared.get("k", source.make))
    await asyncio.sleep(0)
    shared.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting

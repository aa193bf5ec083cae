"""Samples of all nodes: shared, only while somebody looks, with rates."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from broker.console.request import Json
from broker.console.sampling import LINGER_MS, ClusterSample, ClusterSampler
from protocol.messages.describe_node import DescribeNodeResponse
from tests.support.fakes.clock import ManualClock

QUORUM: Json = {"leader_epoch": 1}


class Nodes:
    """One node with counters; `asked` counts the questions."""

    def __init__(self) -> None:
        self.asked = 0
        self.node = DescribeNodeResponse(node_id=1, uptime_ms=10_000, bytes_in=100)
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self) -> tuple[Mapping[int, DescribeNodeResponse], Sequence[Json], Json]:
        self.asked += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return {1: self.node}, [], QUORUM


async def test_requests_share_a_sample() -> None:
    nodes = Nodes()
    nodes.gate.clear()
    sampler = ClusterSampler(nodes.ask, ManualClock())
    waiting = [asyncio.ensure_future(sampler.sample()) for _ in range(3)]
    await asyncio.sleep(0)
    nodes.gate.set()
    first, second, third = await asyncio.gather(*waiting)
    assert first is second is third is await sampler.sample()
    assert nodes.asked == 1
    sampler.close()


async def test_rates_are_those_between_two_samples() -> None:
    nodes, clock = Nodes(), ManualClock()
    sampler = ClusterSampler(nodes.ask, clock)
    assert (await sampler.sample()).rates == {}
    sampler._take(({1: DescribeNodeResponse(node_id=1, uptime_ms=12_000, bytes_in=500)}, [], QUORUM))
    sample = await sampler.sample()
    assert (sample.rates[1]["bytes_in"], sample.total("bytes_in"), sample.total("requests")) == (200.0, 200.0, 0.0)
    assert [each["bytes_in_per_s"] for each in sampler.history] == [200.0]
    sampler._take(({1: DescribeNodeResponse(node_id=1, uptime_ms=500, bytes_in=7)}, [], QUORUM))  # after a restart
    assert (await sampler.sample()).rates == {1: {}}
    sampler.close()


async def test_observers_get_every_sample_until_they_leave() -> None:
    nodes, seen = Nodes(), list[ClusterSample]()
    sampler = ClusterSampler(nodes.ask, ManualClock())
    sampler.observe(seen.append)
    await sampler.sample()
    assert len(seen) == 1
    sampler.forget(seen.append)
    sampler._take(({}, [], QUORUM))
    assert len(seen) <= 2
    sampler.close()


async def test_failure_reaches_those_who_wait_and_the_next_request_begins_anew() -> None:
    nodes = Nodes()
    nodes.error = ValueError("bug")
    sampler = ClusterSampler(nodes.ask, ManualClock())
    with pytest.raises(ValueError, match="bug"):
        await sampler.sample()
    nodes.error = None
    assert (await sampler.sample()).nodes == {1: nodes.node}
    sampler.close()


async def test_sampling_ends_when_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.console.sampling.PERIOD_S", 0.0)
    nodes, clock = Nodes(), ManualClock()
    sampler = ClusterSampler(nodes.ask, clock)
    await sampler.sample()
    clock.advance_ms(LINGER_MS)
    task = sampler._task
    assert task is not None
    await task
    asked = nodes.asked
    await asyncio.sleep(0)
    assert nodes.asked == asked
    await sampler.sample()
    assert nodes.asked > asked
    sampler.close()


async def test_close_cancels_those_who_wait() -> None:
    nodes = Nodes()
    nodes.gate.clear()
    sampler = ClusterSampler(nodes.ask, ManualClock())
    waiting = asyncio.ensure_future(sampler.sample())
    await asyncio.sleep(0)
    sampler.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting

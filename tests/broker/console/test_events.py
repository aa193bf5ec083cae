"""Streams of events: rights, bounds, and their end."""

import asyncio
import json
from collections.abc import Mapping, Sequence

import pytest

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, AclOperation, AclResourceType
from broker.console.events import LISTENERS_MAX, EventHub, OverviewEvents
from broker.console.overview import Overview
from broker.console.request import ConsoleError, Json
from broker.console.sampling import ClusterSample, ClusterSampler
from broker.console.topic_index import TopicIndex
from protocol.messages.describe_node import DescribeNodeResponse
from tests.broker.metadata.images import image_with
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.console_harness import ALICE, ConsoleHarness, asked

DESCRIBE = (ALICE, AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_RESOURCE_NAME)
QUORUM: Json = {"leader_id": 1, "leader_epoch": 3, "high_watermark": 9, "voters": [], "observers": []}


class Browser:
    """Takes the events of a stream."""

    def __init__(self, events: OverviewEvents) -> None:
        self.events = events
        self.received: list[bytes] = []
        self.ended = 0
        events.open(self.received.append, self._on_end)

    def _on_end(self) -> None:
        self.ended += 1

    @property
    def overviews(self) -> list[int]:
        texts = [each for each in self.received if each.startswith(b"event: overview")]
        return [json.loads(text.split(b"data: ")[1])["time_ms"] for text in texts]


class Hub:
    """A hub with samples of the test."""

    def __init__(self) -> None:
        self.authorizer = GrantedPermissions([DESCRIBE])
        harness = ConsoleHarness(image_with(topics={"a": 2}), self.authorizer)
        self.sampler = ClusterSampler(self._never, harness.clock)
        overview = Overview(harness.cluster, TopicIndex(harness.node.image, lambda image, topic: 1), self.sampler)
        self.hub = EventHub(overview, self.sampler)

    async def _never(self) -> tuple[Mapping[int, DescribeNodeResponse], Sequence[Json], Json]:
        await asyncio.Event().wait()
        return {}, [], QUORUM

    async def sample(self, time_ms: int) -> None:
        self.hub._on_sample(ClusterSample(time_ms, {}, {}, [], QUORUM))
        for _ in range(5):
            await asyncio.sleep(0)

    def browser(self) -> Browser:
        return Browser(self.hub.events(asked()))


@pytest.fixture
async def hub() -> Hub:
    return Hub()


async def test_all_browsers_get_the_same_overview(hub: Hub) -> None:
    first = hub.browser()
    await hub.sample(1)
    late = hub.browser()
    await hub.sample(2)
    assert (first.overviews, late.overviews) == ([1, 2], [1, 2])
    assert first.received[0] == b"retry: 3000\n\n"
    assert first.received[-1] == late.received[-1]
    hub.hub.close()


async def test_stream_needs_the_right_to_describe_the_cluster(hub: Hub) -> None:
    with pytest.raises(ConsoleError, match="not authorized to describe the cluster"):
        hub.hub.events(asked("User:mallory"))


async def test_stream_ends_when_the_right_is_withdrawn(hub: Hub) -> None:
    browser = hub.browser()
    await hub.sample(1)
    hub.authorizer.granted.clear()
    await hub.sample(2)
    assert (browser.overviews, browser.ended) == ([1], 1)
    assert browser.received[-1].startswith(b"event: bye")


async def test_streams_are_bounded(hub: Hub) -> None:
    browsers = [hub.browser() for _ in range(LISTENERS_MAX)]
    with pytest.raises(ConsoleError, match="another node"):
        hub.hub.events(asked())
    browsers[0].events.close()
    hub.browser()
    hub.hub.close()


async def test_close_ends_all_streams_and_admits_no_more(hub: Hub) -> None:
    browsers = [hub.browser() for _ in range(3)]
    hub.hub.close()
    assert [browser.ended for browser in browsers] == [1, 1, 1]
    assert all(browser.received[-1].startswith(b"event: bye") for browser in browsers)
    with pytest.raises(ConsoleError):
        hub.hub.events(asked())


async def test_browser_that_has_gone_gets_nothing(hub: Hub) -> None:
    browser = hub.browser()
    browser.events.close()
    await hub.sample(1)
    assert (browser.overviews, browser.ended) == ([], 0)
    hub.hub.close()
    assert browser.ended == 0

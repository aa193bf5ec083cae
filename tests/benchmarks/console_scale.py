"""`python -m tests.benchmarks.console_scale`: the console over 10,000 topics, 100,000 partitions and 5,000 groups.

The image is synthetic. The other nodes are fakes, whose answers are encoded and decoded as on the wire. Prints the
CPU time of each answer (first, repeated, after a change of metadata), the longest turn of the event loop in CPU time,
and the time until Chromium shows the page. Other processes distort the last one only.
"""

import asyncio
import gc
import os
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from broker.console.building import build_console
from broker.console.history import LogAccess
from broker.http.messages import HttpRequest
from broker.http.server import HttpServer
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import Provenance
from broker.net.peer import SocketAddress
from protocol.compiler import decode, encode_bytes
from protocol.messages import Message
from protocol.messages import consumer_group_describe as consumer
from protocol.messages.describe_node import DescribedPartition, DescribeNodeRequest, DescribeNodeResponse
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata_records import PartitionChangeRecord
from storage.local_log import LogSlice
from tests.broker.console.test_topic_index import big_image
from tests.broker.metadata.images import uuid
from tests.integration.console.browser import DESKTOP, open_browser
from tests.support.fakes.runtimes import make_runtime
from tests.support.harnesses.console_harness import ConsoleHarness

M = TypeVar("M", bound=Message)

TOPICS: Final = 10_000
PARTITIONS: Final = 10
GROUPS_PER_BROKER: Final = 500
REPEATS: Final = 9
PATHS: Final = {
    "overview": "overview",
    "topics": "topics",
    "topics, search": "topics?search=99&page=1",
    "topics, sorted": "topics?sort=-under_replicated",
    "topic": "topic?name=topic-00042",
    "partitions": "topic/partitions?name=topic-00042",
    "groups": "groups",
    "groups, search": "groups?search=group-7&sort=state",
}
PAGES: Final = {
    "overview": ("#/", "Brokers with load"),
    "topics": ("#/topics", "topics"),
    "groups": ("#/groups", "groups"),
}


class WireNodes:
    """Passes the answers of the harness through the codec, each step in a turn of its own."""

    def __init__(self, harness: ConsoleHarness) -> None:
        self._answers = harness.nodes.answers
        self._turn = asyncio.Lock()

    def request(
        self,
        endpoint: SocketAddress,
        request: Message,
        answer: type[M],
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> "asyncio.Future[M]":
        return asyncio.ensure_future(self._answer(endpoint.port - 9_000, request, answer, versions))

    async def _answer(self, node: int, request: Message, answer: type[M], versions: tuple[int, int] | None) -> M:
        version = answer.MAX_VERSION if versions is None else versions[1]
        async with self._turn:
            data = bytes(encode_bytes(self._answers[type(request)](node, request), version))
            await asyncio.sleep(0)
            message = decode(answer, data, version)[0]
            await asyncio.sleep(0)
            return message


def _describe_node(node: int, request: DescribeNodeRequest) -> DescribeNodeResponse:
    partitions = [
        DescribedPartition(topic.name, index, 0, 0, 1_000, 1_000, 1_000_000)
        for topic in request.topics
        for index in topic.partitions
    ]
    return DescribeNodeResponse(
        node_id=node, release="1.0", uptime_ms=int(time.monotonic() * 1000), partitions=partitions
    )


def _list_groups(node: int, request: ListGroupsRequest) -> ListGroupsResponse:
    names = (f"group-{number}-{node}" for number in range(GROUPS_PER_BROKER))
    return ListGroupsResponse(groups=[ListedGroup(name, "consumer", "Stable", "consumer") for name in names])


def _describe_groups(node: int, request: Any) -> consumer.ConsumerGroupDescribeResponse:
    groups = [consumer.DescribedGroup(0, None, id, "Stable") for id in request.group_ids]
    return consumer.ConsumerGroupDescribeResponse(groups=groups)


class EmptyLog:
    """A metadata log without records: the time line has a benchmark of its own, the replay of the log."""

    log_start_offset = 0

    def read(self, offset: int, max_bytes: int, upper: int) -> LogSlice:
        return LogSlice(b"", offset, False, 0, 0)


class Scale:
    """The console of one node over the synthetic cluster."""

    def __init__(self) -> None:
        self.harness = ConsoleHarness(big_image(TOPICS, PARTITIONS))
        answers = self.harness.nodes.answers
        answers[DescribeNodeRequest] = _describe_node
        answers[DescribeQuorumRequest] = lambda node, request: DescribeQuorumResponse()
        answers[ListGroupsRequest] = _list_groups
        answers[consumer.ConsumerGroupDescribeRequest] = _describe_groups
        nodes: Any = WireNodes(self.harness)
        object.__setattr__(self.harness.node, "brokers", nodes)
        log: Any = EmptyLog()
        self.console = build_console(
            self.harness.node,
            min_isr=lambda image, topic: 2,
            has_credentials=False,
            host_names=frozenset,
            actions_enabled=lambda: False,
            log=LogAccess(log, lambda: 0, lambda: False, list),
            runtime=make_runtime(asyncio.get_running_loop()),
        )
        self._changes = 0
        gc.collect()
        gc.freeze()  # as a node does once it has started

    def change(self) -> None:
        """Shrink and expand the in-sync set of a partition."""
        self._changes += 1
        isr = [self._changes % 10 + 1]
        record = PartitionChangeRecord(partition_id=0, topic_id=uuid(self._changes + 1), isr=isr, leader=isr[0])
        before = self.harness.image
        delta = MetadataDelta(before)
        delta.replay(record)
        self.harness.image = delta.apply(Provenance(before.offset + 1))
        self.console.on_metadata(delta, self.harness.image)

    async def get(self, path: str) -> float:
        """Return the milliseconds of CPU time that an answer takes on the loop."""
        path, _, query = path.partition("?")
        begun = time.thread_time()
        request = HttpRequest(f"/console/api/{path}", query, headers={"host": "localhost"})
        response = await self.console.service.get(request)
        assert response.status == 200, response.body
        return (time.thread_time() - begun) * 1000


class Turns:
    """Measures the CPU time of the event loop's turns."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_ms, before = max(self.longest_ms, (now - before) * 1000), now

    async def end(self) -> float:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        return self.longest_ms


async def measure(label: str, scale: Scale, path: str) -> None:
    """Print the figures of one path."""
    first = await scale.get(path)
    repeated = []
    for _ in range(REPEATS):
        scale.harness.clock.advance_ms(100)
        repeated.append(await scale.get(path))
    changed = []
    for _ in range(REPEATS):
        scale.harness.clock.advance_ms(2_000)  # kept answers of other nodes are too old
        scale.change()
        changed.append(await scale.get(path))
    turns, again = Turns(), Scale()
    await again.get(path)
    again.change()
    await again.get(path)
    longest = await turns.end()
    again.console.close()
    print(
        f"{label:16} first {first:7.1f} ms, again {statistics.median(repeated):6.1f} ms, "
        f"after a change {statistics.median(changed):6.1f} ms, longest turn {longest:5.1f} ms"
    )


async def serve(scale_of: Callable[[], Scale], ready: Callable[[str], None], is_over: threading.Event) -> None:
    """Serve the console for the browser until `is_over`."""
    scale = scale_of()
    routes = {"/": scale.console.service.get, "/console/*": scale.console.service.get}
    server = HttpServer(routes, "127.0.0.1", 0)
    server.open()
    await server.start()
    ready(server.url)
    while not is_over.is_set():
        scale.harness.clock.advance_ms(100)
        await asyncio.sleep(0.1)
    scale.console.close()
    server.close()


def measure_pages() -> None:
    """Print the time until Chromium shows a table of each page, with the server in a thread of this process."""
    urls: list[str] = []
    is_ready, is_over = threading.Event(), threading.Event()

    def ready(url: str) -> None:
        urls.append(url)
        is_ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(serve(Scale, ready, is_over)))
    thread.start()
    try:
        assert is_ready.wait(60)
        with open_browser() as browser:
            for label, (path, caption) in PAGES.items():
                times = []
                for _ in range(REPEATS):
                    page = browser.new_page(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
                    begun = time.perf_counter()
                    page.goto(f"{urls[0]}/{path}")
                    page.locator("caption", has_text=caption).first.wait_for()
                    times.append((time.perf_counter() - begun) * 1000)
                    page.close()
                print(f"{label:16} page: first {times[0]:6.0f} ms, then {statistics.median(times[1:]):6.0f} ms")
    finally:
        is_over.set()
        thread.join()


async def _measure_answers() -> None:
    for label, path in PATHS.items():
        scale = Scale()
        await measure(label, scale, path)
        scale.console.close()


def main() -> None:
    """Print all figures."""
    partitions, groups = TOPICS * PARTITIONS, GROUPS_PER_BROKER * 10
    print(f"{TOPICS:,} topics, {partitions:,} partitions, {groups:,} groups; load {os.getloadavg()[0]:.1f}")
    asyncio.run(_measure_answers())
    measure_pages()


if __name__ == "__main__":
    main()

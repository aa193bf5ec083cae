"""Slow requests and traces: the stages that a line names, and the requests that have none."""

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from broker.api.pipeline import permission as needs
from broker.api.pipeline.tracing import RequestTracing, TraceSettings
from broker.api.records.fetch import FetchHandler
from broker.api.records.produce import ProduceHandler
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.route import route
from broker.config.load import load_config
from broker.net.request import Request
from broker.net.request_trace import RequestTrace, Stage
from broker.node.tracing import trace_settings
from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.messages import Message
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.api.serving.test_controller_routes import Observer
from tests.broker.net.fakes import ConnectionHarness, Peer
from tests.support.harnesses.data_plane import BROKER_ID, DataPlane, batch

HEARTBEAT, LIST_GROUPS, JOIN = HeartbeatRequest(), ListGroupsRequest(), JoinGroupRequest()
VERSIONS: Mapping[type[Message], int] = {HeartbeatRequest: 3, ListGroupsRequest: 2, JoinGroupRequest: 5}
"""Versions with the first form of the request header."""


def frame(message: Message, number: int, client_id: str = "app") -> bytes:
    """Return a request with its size."""
    version, name = VERSIONS[type(message)], client_id.encode()
    content = struct.pack(">hhih", message.API_KEY, version, number, len(name)) + name + encode_bytes(message, version)
    return struct.pack(">i", len(content)) + content


class TracedServer:
    """A connection in front of handlers that take the time, or wait for the future, that a test sets."""

    def __init__(self, settings: TraceSettings) -> None:
        self.harness = ConnectionHarness(lambda request: self.dispatcher(request))
        clock = self.clock = self.harness.clock
        self.ended: list[tuple[int, str, float]] = []
        self.tracing = RequestTracing(clock, on_trace=self._on_trace)
        self.tracing.change(settings)
        self.busy_ms = 0
        self.mute_ms = 0.0
        self.answer: asyncio.Future[Any] | None = None
        self.groups = 0
        rows = (
            route(ApiKey.HEARTBEAT, self._answer(HeartbeatResponse), needs.READ_GROUP),
            route(ApiKey.JOIN_GROUP, self._answer(JoinGroupResponse), needs.READ_GROUP),
            route(ApiKey.LIST_GROUPS, self._answer(self._list), needs.DESCRIBE_GROUP),
        )
        self.dispatcher = Dispatcher(rows, clock, Observer(), tracing=self.tracing)
        self.peer: Peer = self.harness.connect()

    def _on_trace(self, request: Request, trace: RequestTrace, outcome: str) -> None:
        self.ended.append((request.header.correlation_id, outcome, trace.total_ms))

    def _answer(self, make: Callable[[], Message]) -> Callable[[Any, Any], Any]:
        def handle(_request: Any, context: Any) -> Any:
            self.clock.advance_ms(self.busy_ms)
            context.connection.mute_ms = self.mute_ms
            return make() if self.answer is None else self.answer

        return handle

    def _list(self) -> ListGroupsResponse:
        return ListGroupsResponse(groups=[ListedGroup("g" * 100)] * self.groups)

    def send(self, message: Message, number: int = 1, client_id: str = "app") -> None:
        self.peer.send(frame(message, number, client_id))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that returns the fields of the lines so far, with the event."""
    caplog.set_level(logging.INFO, "broker.requests")

    def read() -> list[dict[str, Any]]:
        found = [each for each in caplog.records if each.name == "broker.requests"]
        return [{"event": each.getMessage(), **each.__dict__["fields"]} for each in found]

    return read


Lines = Callable[[], list[dict[str, Any]]]
SLOW = TraceSettings(slow_ms=100)


def stages(line: Mapping[str, Any]) -> dict[str, float]:
    return {name.removesuffix("_ms"): ms for name, ms in line.items() if name.endswith("_ms") and name != "total_ms"}


def test_slow_handler_is_logged_with_the_request(lines: Lines) -> None:
    server = TracedServer(SLOW)
    server.busy_ms = 150
    server.send(HEARTBEAT, 7)
    (line,) = lines()
    assert stages(line) == {"local": 150}
    assert {name: line[name] for name in ("event", "api", "version", "client", "correlation_id", "total_ms")} == {
        "event": "slow request",
        "api": "Heartbeat",
        "version": 3,
        "client": "app",
        "correlation_id": 7,
        "total_ms": 150,
    }
    assert (line["principal"], line["peer"], line["outcome"]) == ("User:ANONYMOUS", "10.0.0.1:50000", "answered")
    assert line["bytes"] > 10


def test_fast_request_is_not_logged(lines: Lines) -> None:
    server = TracedServer(SLOW)
    server.busy_ms = 99
    server.send(HEARTBEAT)
    assert lines() == []


def test_request_has_no_trace_while_tracing_is_off(lines: Lines) -> None:
    server = TracedServer(TraceSettings())
    server.busy_ms = 5_000
    server.send(HEARTBEAT)
    assert not server.tracing.is_enabled
    assert lines() == []


async def test_wait_for_another_node_counts_as_other(lines: Lines) -> None:
    server = TracedServer(SLOW)
    server.answer = asyncio.get_running_loop().create_future()
    server.send(HEARTBEAT)
    await asyncio.sleep(0)
    server.clock.advance_ms(400)
    server.answer.set_result(HeartbeatResponse())
    for _ in range(3):
        await asyncio.sleep(0)
    assert [stages(line) for line in lines()] == [{"other": 400}]


async def test_wait_for_members_of_a_group_is_not_slow(lines: Lines) -> None:
    server = TracedServer(SLOW)
    server.answer = asyncio.get_running_loop().create_future()
    server.send(JOIN)
    await asyncio.sleep(0)
    server.clock.advance_ms(60_000)
    server.answer.set_result(JoinGroupResponse())
    for _ in range(3):
        await asyncio.sleep(0)
    assert lines() == []


async def test_request_behind_another_one_waits_in_the_queue(lines: Lines) -> None:
    server = TracedServer(SLOW)
    first = server.answer = asyncio.get_running_loop().create_future()
    server.send(JOIN, 1)
    server.send(HEARTBEAT, 2)
    await asyncio.sleep(0)
    server.clock.advance_ms(300)
    server.answer = None
    first.set_result(JoinGroupResponse())
    await asyncio.sleep(0)
    server.harness.timers.run_soon()
    assert [(line["correlation_id"], stages(line)) for line in lines()] == [(2, {"queue": 300})]


def test_time_in_which_the_connection_is_muted_is_throttle(lines: Lines) -> None:
    server = TracedServer(SLOW)
    server.mute_ms = 500.0
    server.peer.send(frame(HEARTBEAT, 1) + frame(HEARTBEAT, 2))
    server.mute_ms = 0.0
    server.clock.advance_ms(500)
    ((_, unmute),) = server.harness.timers.later
    unmute()
    assert [(line["correlation_id"], stages(line)) for line in lines()] == [(2, {"throttle": 500})]


def test_peer_that_reads_slowly_is_send(lines: Lines) -> None:
    server = TracedServer(SLOW)
    server.groups = 1_000
    server.peer.transport.is_stuck = True
    server.send(LIST_GROUPS)
    server.clock.advance_ms(700)
    assert lines() == []
    server.peer.transport.resume_peer()
    assert [stages(line) for line in lines()] == [{"send": 700}]


async def test_request_whose_client_gives_up_is_logged(lines: Lines) -> None:
    server = TracedServer(SLOW)
    server.answer = asyncio.get_running_loop().create_future()
    server.send(HEARTBEAT)
    await asyncio.sleep(0)
    server.clock.advance_ms(30_000)
    server.peer.vanish()
    for _ in range(3):
        await asyncio.sleep(0)
    assert [(line["outcome"], stages(line)) for line in lines()] == [("connection closed", {"other": 30_000})]


def test_lines_are_limited_and_the_next_one_counts_the_suppressed(lines: Lines) -> None:
    server = TracedServer(TraceSettings(slow_ms=1, lines_per_second=2))
    server.busy_ms = 1
    for number in range(10):
        server.send(HEARTBEAT, number)
    assert [line["correlation_id"] for line in lines()] == [0, 1]
    server.clock.advance_ms(1_000)
    server.send(HEARTBEAT, 10)
    assert (lines()[-1]["correlation_id"], lines()[-1]["suppressed"]) == (10, 8)


def test_callback_takes_requests_beyond_the_limit_of_lines(lines: Lines) -> None:
    server = TracedServer(TraceSettings(slow_ms=1, lines_per_second=2))
    server.busy_ms = 1
    for number in range(5):
        server.send(HEARTBEAT, number)
    assert len(lines()) == 2
    assert server.ended == [(number, "answered", 1.0) for number in range(5)]


def test_callback_takes_a_slow_and_traced_request_once(lines: Lines) -> None:
    server = TracedServer(TraceSettings(slow_ms=100, client_id="app"))
    server.busy_ms = 150
    server.send(HEARTBEAT, 7)
    assert [line["event"] for line in lines()] == ["slow request", "request trace"]
    assert server.ended == [(7, "answered", 150.0)]


def test_callback_takes_no_request_that_is_neither_slow_nor_traced() -> None:
    server = TracedServer(TraceSettings(slow_ms=100, client_id="other"))
    server.busy_ms = 99
    server.send(HEARTBEAT)
    assert server.ended == []


@pytest.mark.parametrize(
    ("settings", "traced"),
    [
        (TraceSettings(client_id="app"), [1, 2]),
        (TraceSettings(client_id="ap*"), [1, 2, 3]),
        (TraceSettings(client_id="other"), []),
        (TraceSettings(correlation_id=2), [2]),
        (TraceSettings(apis=frozenset({int(ApiKey.LIST_GROUPS)})), [2, 4]),
        (TraceSettings(client_id="app", apis=frozenset({int(ApiKey.LIST_GROUPS)})), [2]),
    ],
)
def test_filters_choose_the_traced_requests(settings: TraceSettings, traced: list[int], lines: Lines) -> None:
    server = TracedServer(settings)
    server.send(HEARTBEAT, 1)
    server.send(LIST_GROUPS, 2)
    server.send(HEARTBEAT, 3, client_id="apps")
    server.send(LIST_GROUPS, 4, client_id="")
    assert [line["correlation_id"] for line in lines()] == traced
    assert {line["event"] for line in lines()} <= {"request trace"}


def trace_of(plane: DataPlane) -> RequestTrace:
    return RequestTrace(0.0, plane.clock.monotonic_ms, lambda *_: None)


@pytest.mark.parametrize(("acks", "stage"), [(1, Stage.LOCAL), (-1, Stage.REPLICATION)])
def test_produce_waits_for_replication_only_with_acks_of_all(acks: int, stage: Stage) -> None:
    plane = DataPlane()
    plane.create_topic(replicas=(BROKER_ID, BROKER_ID + 1))
    context = plane.context(12)
    context.request.trace = trace_of(plane)
    request = ProduceRequest(
        None, acks, 1_000, [TopicProduceData(name="t", partition_data=[PartitionProduceData(0, batch())])]
    )
    ProduceHandler(plane.partitions, plane.runtime, plane.verifier)(request, context)
    assert context.request.trace.stage is stage
    assert Stage.LOG in context.request.trace.times_ms


@pytest.mark.parametrize(("records", "stage"), [(True, Stage.LOCAL), (False, Stage.WAIT)])
def test_fetch_without_records_only_waits(records: bool, stage: Stage) -> None:
    plane = DataPlane()
    plane.create_topic()
    if records:
        plane.produce(b"value")
    handler: FetchHandler = plane.fetch_handler()
    context = plane.context(12)
    context.request.trace = trace_of(plane)
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000_000)
    handler(FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic("t", partitions=[partition])]), context)
    assert context.request.trace.stage is stage
    assert Stage.LOG in context.request.trace.times_ms


def test_settings_are_off_by_default() -> None:
    config, _ = load_config(None, [], {})
    assert trace_settings(config) == TraceSettings()


def test_settings_follow_the_dynamic_configuration() -> None:
    config, _ = load_config(None, [], {})
    settings = {
        "ottla.slow.request.ms": "250",
        "ottla.trace.client.id": "app-*",
        "ottla.trace.apis": "produce, Fetch",
        "ottla.trace.max.lines.per.second": "3",
    }
    changed, _ = config.with_dynamic(cluster=settings, broker={})
    apis = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH)})
    assert trace_settings(changed) == TraceSettings(250, "app-*", -1, apis, 3)


def test_unknown_api_matches_no_request() -> None:
    config, _ = load_config(None, ["ottla.trace.apis=Produse"], {})
    assert trace_settings(config).apis == frozenset({-1})

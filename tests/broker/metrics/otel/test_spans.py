"""Spans of requests: their times and attributes, the buffer, and the export to a receiver."""

import logging
import random
from builtins import memoryview
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from broker.metrics.otel.points import Points
from broker.metrics.otel.request_spans import TEXT_CHARACTERS_MAX, SpanRecorder
from broker.metrics.otel.sender import OtlpSender
from broker.metrics.otel.settings import OtelSettings, SpanSettings
from broker.metrics.otel.span_buffer import RequestSpan, SpanBuffer
from broker.metrics.otel.span_export import BATCH_SPANS_MAX, ExportFailure, SpanExport
from broker.metrics.otel.span_sender import OtlpSpanSender
from broker.net.request import ConnectionInfo, Request
from broker.net.request_trace import RequestTrace, Stage
from protocol.api_keys import ApiKey
from protocol.headers import RequestHeader
from tests.broker.metrics.otel.test_export import Threads
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.otlp_receiver import OtlpReceiver

NS_PER_MS = 1_000_000


def settings(endpoint: str = "http://receiver/v1/traces", timeout_s: float = 5.0) -> SpanSettings:
    attributes = {"service.name": "ottla", "service.instance.id": "1"}
    return SpanSettings(endpoint, 5.0, timeout_s, attributes, {"x-token": "secret"})


def span(number: int) -> RequestSpan:
    return RequestSpan(1 << 64 | number, number, "Produce", 1_000, 2_000, {"kafka.correlation_id": number})


def buffer_of(numbers: Sequence[int], max_spans: int = 10_000) -> SpanBuffer:
    buffer = SpanBuffer(max_spans)
    for number in numbers:
        buffer.add(span(number))
    return buffer


def numbers_in(buffer: SpanBuffer) -> list[int]:
    return [each.span_id for each in buffer.take(len(buffer))]


def traced(
    clock: ManualClock, client_id: str | None = "app", principal: str = "User:app"
) -> tuple[Request, RequestTrace]:
    """Return a Produce request that has spent 2.5 ms in the queue and 40 ms in replication."""
    connection = ConnectionInfo("1-2", "CLIENTS", "10.0.0.7", 51234, principal=principal)
    header = RequestHeader(int(ApiKey.PRODUCE), 12, 4711, client_id)
    trace = RequestTrace(0.0, clock.monotonic_ms, lambda *_: None)
    trace.add(Stage.QUEUE, 2.5)
    trace.add(Stage.REPLICATION, 30.0)
    trace.add(Stage.REPLICATION, 10.0)
    return Request(header, memoryview(b""), connection, clock.now_ms(), size=16503, trace=trace), trace


def recorded(clock: ManualClock, seed: int = 1, **more: Any) -> RequestSpan:
    buffer = SpanBuffer(1)
    SpanRecorder(buffer, clock, random.Random(seed)).record(*traced(clock, **more), "answered")
    (found,) = buffer.take(1)
    return found


class FakeSpanSender:
    """Takes the next failure, None for success; runs `during` while a batch is on its way."""

    def __init__(self, *failures: ExportFailure | None) -> None:
        self.failures = list(failures)
        self.sent: list[int] = []
        self.during: Callable[[], None] = lambda: None

    async def send(self, spans: Sequence[RequestSpan]) -> ExportFailure | None:
        self.sent.append(len(spans))
        self.during()
        return self.failures.pop(0)


def values(export: SpanExport) -> dict[str, float]:
    return {family.name.removeprefix("ottla_otel_"): next(iter(family.read())).value for family in export.families()}


class TestRecorder:
    def test_span_ends_now_and_lasts_as_long_as_all_stages(self) -> None:
        clock = ManualClock(1_700_000_000_000)
        found = recorded(clock)
        assert found.name == "Produce"
        assert found.end_ns == 1_700_000_000_000 * NS_PER_MS
        assert found.end_ns - found.start_ns == 42_500_000

    def test_attributes_name_request_peer_and_stages(self) -> None:
        assert recorded(ManualClock()).attributes == {
            "messaging.system": "kafka",
            "messaging.client.id": "app",
            "kafka.api.name": "Produce",
            "kafka.api.version": 12,
            "kafka.correlation_id": 4711,
            "client.address": "10.0.0.7",
            "client.port": 51234,
            "enduser.id": "User:app",
            "ottla.listener": "CLIENTS",
            "ottla.request.size_bytes": 16503,
            "ottla.outcome": "answered",
            "ottla.stage.queue_ms": 2.5,
            "ottla.stage.replication_ms": 40.0,
        }

    def test_request_without_client_id_has_no_such_attribute(self) -> None:
        assert "messaging.client.id" not in recorded(ManualClock(), client_id=None).attributes

    def test_long_texts_of_clients_are_cut(self) -> None:
        found = recorded(ManualClock(), client_id="a" * 32_767, principal="b" * 32_767).attributes
        assert found["messaging.client.id"] == "a" * TEXT_CHARACTERS_MAX
        assert found["enduser.id"] == "b" * TEXT_CHARACTERS_MAX

    def test_ids_come_from_the_random_source(self) -> None:
        clock = ManualClock()
        first, again, other = recorded(clock, seed=1), recorded(clock, seed=1), recorded(clock, seed=2)
        assert (first.trace_id, first.span_id) == (again.trace_id, again.span_id)
        assert {first.trace_id, first.span_id}.isdisjoint({other.trace_id, other.span_id})
        assert first.trace_id.bit_length() > 64

    def test_ids_are_never_zero(self) -> None:
        buffer, clock = SpanBuffer(1), ManualClock()
        SpanRecorder(buffer, clock, SimpleNamespace(getrandbits=lambda _: 0)).record(*traced(clock), "answered")
        (found,) = buffer.take(1)
        assert (found.trace_id, found.span_id) == (1, 1)


class TestBuffer:
    def test_full_buffer_drops_the_oldest_span_and_counts_it(self) -> None:
        buffer = buffer_of(range(5), max_spans=3)
        assert buffer.dropped == 2
        assert numbers_in(buffer) == [2, 3, 4]

    def test_take_returns_the_oldest_spans(self) -> None:
        buffer = buffer_of(range(5))
        assert [each.span_id for each in buffer.take(2)] == [0, 1]
        assert numbers_in(buffer) == [2, 3, 4]

    @pytest.mark.parametrize(
        ("newer", "left", "dropped"), [([], [0, 1, 2], 0), ([3], [1, 2, 3], 1), ([3, 4, 5], [3, 4, 5], 3)]
    )
    def test_batch_that_comes_back_gives_way_to_newer_spans(
        self, newer: list[int], left: list[int], dropped: int
    ) -> None:
        buffer = buffer_of(range(3), max_spans=3)
        batch = buffer.take(3)
        for number in newer:
            buffer.add(span(number))
        buffer.put_back(batch)
        assert buffer.dropped == dropped
        assert numbers_in(buffer) == left


class TestSpanExport:
    async def test_spans_leave_in_batches(self) -> None:
        sender = FakeSpanSender(None, None, None)
        export = SpanExport(settings(), buffer_of(range(2 * BATCH_SPANS_MAX + 1)), sender)
        await export.export()
        assert sender.sent == [BATCH_SPANS_MAX, BATCH_SPANS_MAX, 1]
        assert values(export) == {
            "spans_exported_total": 2 * BATCH_SPANS_MAX + 1,
            "span_failures_total": 0,
            "refused_spans_total": 0,
            "dropped_spans_total": 0,
        }

    async def test_empty_buffer_is_not_exported(self) -> None:
        sender = FakeSpanSender()
        await SpanExport(settings(), SpanBuffer(10), sender).export()
        assert sender.sent == []

    async def test_spans_that_arrive_during_an_export_wait_for_the_next_one(self) -> None:
        buffer, sender = buffer_of([1]), FakeSpanSender(None)
        sender.during = lambda: buffer.add(span(2))
        await SpanExport(settings(), buffer, sender).export()
        assert sender.sent == [1]
        assert numbers_in(buffer) == [2]

    async def test_failure_ends_the_export_and_keeps_its_spans(self, caplog: pytest.LogCaptureFixture) -> None:
        no_route = ExportFailure("no route")
        buffer, sender = buffer_of(range(BATCH_SPANS_MAX + 1)), FakeSpanSender(no_route, no_route, None, None)
        export = SpanExport(settings(), buffer, sender)
        with caplog.at_level(logging.INFO, "ottla.otel"):
            for _ in range(3):
                await export.export()
        assert sender.sent == [BATCH_SPANS_MAX, BATCH_SPANS_MAX, BATCH_SPANS_MAX, 1]
        assert [(each.getMessage(), each.__dict__["fields"].get("next_attempt_in_s")) for each in caplog.records] == [
            ("Export of spans failed", 10),
            ("Export of spans failed", 20),
            ("Spans are exported again", None),
        ]
        assert values(export) == {
            "spans_exported_total": BATCH_SPANS_MAX + 1,
            "span_failures_total": 2,
            "refused_spans_total": 0,
            "dropped_spans_total": 0,
        }

    async def test_batch_that_is_refused_for_good_is_dropped_and_counted(self) -> None:
        sender = FakeSpanSender(ExportFailure("too large", is_final=True), None)
        export = SpanExport(settings(), buffer_of(range(BATCH_SPANS_MAX + 1)), sender)
        await export.export()
        await export.export()
        assert sender.sent == [BATCH_SPANS_MAX, 1]
        assert values(export) == {
            "spans_exported_total": 1,
            "span_failures_total": 1,
            "refused_spans_total": BATCH_SPANS_MAX,
            "dropped_spans_total": 0,
        }


class TestSender:
    async def test_receiver_gets_spans_of_the_node_as_those_of_a_server(self) -> None:
        clock = ManualClock()
        sent = recorded(clock)
        with OtlpReceiver() as receiver:
            sender = OtlpSpanSender(settings(f"{receiver.endpoint}/v1/traces"), Threads())
            assert await sender.send([sent, span(2)]) is None
            sender.close()
            ((first, second),) = receiver.batches()
            assert receiver.headers[0]["x-token"] == "secret"
        assert first.span.name == "Produce"
        assert first.span.kind == Span.SPAN_KIND_SERVER
        assert first.span.trace_id == sent.trace_id.to_bytes(16, "big")
        assert first.span.span_id == sent.span_id.to_bytes(8, "big")
        assert first.span.parent_span_id == b""
        assert (first.span.start_time_unix_nano, first.span.end_time_unix_nano) == (sent.start_ns, sent.end_ns)
        assert first.attributes == sent.attributes
        assert first.resource == second.resource == {"service.name": "ottla", "service.instance.id": "1"}
        assert second.attributes == {"kafka.correlation_id": 2}

    async def test_refused_spans_stay_in_the_buffer_until_the_receiver_returns(self) -> None:
        with OtlpReceiver() as receiver:
            sender = OtlpSpanSender(settings(f"{receiver.endpoint}/v1/traces", timeout_s=0.2), Threads())
            export = SpanExport(settings(), buffer_of([1, 2]), sender)
            receiver.refusal = 503
            await export.export()
            receiver.refusal = None
            await export.export()
            sender.close()
            assert [[each.span.span_id[-1] for each in batch] for batch in receiver.batches()] == [[1, 2]]
        assert values(export) == {
            "spans_exported_total": 2,
            "span_failures_total": 1,
            "refused_spans_total": 0,
            "dropped_spans_total": 0,
        }

    @pytest.mark.parametrize(
        ("status", "is_final"),
        [(400, True), (401, True), (413, True), (429, False), (500, True), (502, False), (503, False), (504, False)],
    )
    async def test_status_of_the_receiver_says_whether_a_failure_is_final(self, status: int, is_final: bool) -> None:
        with OtlpReceiver() as receiver:
            sender = OtlpSpanSender(settings(f"{receiver.endpoint}/v1/traces", timeout_s=0.2), Threads())
            receiver.refusal = status
            failure = await sender.send([span(1)])
            sender.close()
        assert failure is not None
        assert failure.is_final is is_final

    async def test_failure_without_a_response_is_not_final_after_a_refusal(self) -> None:
        with OtlpReceiver() as receiver:
            sender = OtlpSpanSender(settings(f"{receiver.endpoint}/v1/traces", timeout_s=0.2), Threads())
            receiver.refusal = 400
            refused = await sender.send([span(1)])
        absent = await sender.send([span(1)])
        sender.close()
        assert refused is not None
        assert absent is not None
        assert (refused.is_final, absent.is_final) == (True, False)

    async def test_batch_that_cannot_be_encoded_is_not_sent_again(self) -> None:
        with OtlpReceiver() as receiver:
            sender = OtlpSpanSender(settings(f"{receiver.endpoint}/v1/traces"), Threads())
            failure = await sender.send([span(1)._replace(trace_id=1 << 128)])
            sender.close()
        assert failure is not None
        assert failure.is_final

    async def test_absent_receiver_is_a_failure_with_the_reason_of_its_own_exporter(self) -> None:
        absent = "http://127.0.0.1:1/v1/"
        spans = OtlpSpanSender(settings(f"{absent}traces", timeout_s=0.2), Threads())
        metrics = OtlpSender(OtelSettings(f"{absent}metrics", 60.0, 0.2, 10, {}, {}), Threads())
        for_spans, for_metrics = await spans.send([span(1)]), await metrics.send(Points(0, 0, 10))
        spans.close()
        metrics.close()
        assert for_spans is not None
        assert for_metrics is not None
        assert "spans batch" in for_spans.reason
        assert "metrics batch" in for_metrics

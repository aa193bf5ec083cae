"""The OpenTelemetry export: its settings, what it sends, and what a failure does."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.load import load_config
from broker.metrics.exposition import Exposition
from broker.metrics.family import Family, Sample, counter, gauge
from broker.metrics.otel.attempts import BACK_OFF_MAX_S, pause_s
from broker.metrics.otel.export import OtelExport
from broker.metrics.otel.points import Points
from broker.metrics.otel.sender import OtlpSender
from broker.metrics.otel.settings import OtelSettings, metrics_url, parse_headers, resource_attributes, traces_url
from broker.node.monitoring.otel import OtelPart
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.otlp_receiver import OtlpReceiver, Series

T = TypeVar("T")

SUMMARY = Family(
    "s",
    "Times",
    "summary",
    lambda: [Sample(2, {"quantile": "0.5"}), Sample(3, suffix="_count"), Sample(7, suffix="_sum")],
)
FAMILIES = [counter("c_total", "Things", lambda: 5), gauge("g", "Level", lambda: 1.5), SUMMARY]


def settings(endpoint: str = "http://receiver/v1/metrics", max_series: int = 1000) -> OtelSettings:
    attributes = {"service.name": "ottla", "service.instance.id": "1"}
    return OtelSettings(endpoint, 60.0, 5.0, max_series, attributes, {"x-token": "secret"})


class Threads:
    """Runs work on the default executor."""

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(None, work)


class FakeSender:
    """Takes the next reason of a failure, None for success."""

    def __init__(self, *reasons: str | None) -> None:
        self.reasons = list(reasons)
        self.sent: list[Points] = []

    async def send(self, points: Points) -> str | None:
        self.sent.append(points)
        return self.reasons.pop(0)


async def read() -> AsyncIterator[tuple[Family, Sequence[Sample]]]:
    for family in FAMILIES:
        yield family, list(family.read())


def parse(tmp_path: Path, **values: str) -> BrokerConfig:
    file = tmp_path / "server.properties"
    node = {"process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "CONTROLLER"}
    node |= {"listeners": "PLAINTEXT://:0,CONTROLLER://:0", "controller.quorum.voters": "1@localhost:9093"}
    node |= {f"ottla.otel.{key.replace('_', '.')}": value for key, value in values.items()}
    file.write_text("".join(f"{key}={value}\n" for key, value in node.items()))
    config, _ = load_config(str(file), (), {})
    return config


class TestSettings:
    @pytest.mark.parametrize(
        ("endpoint", "url"),
        [
            ("http://collector:4318", "http://collector:4318/v1/metrics"),
            ("http://collector:4318/", "http://collector:4318/v1/metrics"),
            ("https://collector/otlp/v1/metrics", "https://collector/otlp/v1/metrics"),
        ],
    )
    def test_path_is_added_to_an_endpoint_without_one(self, endpoint: str, url: str) -> None:
        assert metrics_url(endpoint) == url

    @pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://collector:4317", "http://"])
    def test_endpoint_must_be_an_http_url(self, endpoint: str) -> None:
        with pytest.raises(ValueError, match="must be a URL"):
            metrics_url(endpoint)

    @pytest.mark.parametrize(
        ("metrics", "url"),
        [
            ("http://collector:4318/v1/metrics", "http://collector:4318/v1/traces"),
            ("https://collector/otlp/v1/metrics?tenant=a", "https://collector/otlp/v1/traces?tenant=a"),
        ],
    )
    def test_spans_go_to_the_path_beside_that_of_metrics(self, metrics: str, url: str) -> None:
        assert traces_url(metrics) == url

    @pytest.mark.parametrize(
        "metrics", ["http://collector/otlp", "http://collector/v1/metrics/", "http://c/xv1/metrics"]
    )
    def test_other_path_has_no_url_for_spans(self, metrics: str) -> None:
        with pytest.raises(ValueError, match="must end in /v1/metrics or have no path"):
            traces_url(metrics)

    def test_attributes_are_pairs(self) -> None:
        assert resource_attributes(["a=1", " b = x=y"]) == {"a": "1", "b": "x=y"}
        with pytest.raises(ValueError, match="NAME=VALUE, not 'a'"):
            resource_attributes(["a"])

    def test_malformed_header_is_named_by_its_line_and_not_shown(self) -> None:
        assert parse_headers(["Authorization: Bearer t", "", "X-Scope: a:b"]) == {
            "Authorization": "Bearer t",
            "X-Scope": "a:b",
        }
        with pytest.raises(ValueError, match="line 2") as caught:
            parse_headers(["a: b", "topsecret"])
        assert "topsecret" not in str(caught.value)


class TestPart:
    async def test_export_is_off_without_an_endpoint(self, tmp_path: Path) -> None:
        part = OtelPart(parse(tmp_path), ManualClock(), read)
        part.open()
        part.start(lambda work: pytest.fail(f"{work} is spawned"))
        assert part.families() == []
        assert part.on_trace is None
        await part.stop()

    async def test_missing_package_stops_the_start_with_one_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
        part = OtelPart(parse(tmp_path, endpoint="http://collector:4318"), ManualClock(), read)
        with pytest.raises(ConfigError) as caught:
            part.open()
        assert caught.value.sentence == (
            "ottla.otel.endpoint needs the OpenTelemetry packages; install them with: pip install 'ottla[otel]'."
        )

    @pytest.mark.parametrize(
        ("values", "key", "sentence"),
        [
            (
                {"traces_enable": "true"},
                "ottla.otel.traces.enable",
                "ottla.otel.traces.enable needs ottla.otel.endpoint, the URL of the receiver.",
            ),
            (
                {"traces_enable": "true", "endpoint": "http://collector/otlp"},
                "ottla.otel.endpoint",
                "ottla.otel.endpoint must end in /v1/metrics or have no path, because the URL for spans comes from it.",
            ),
        ],
    )
    async def test_spans_without_a_usable_endpoint_stop_the_start(
        self, tmp_path: Path, values: dict[str, str], key: str, sentence: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            OtelPart(parse(tmp_path, **values), ManualClock(), read).open()
        assert (caught.value.key, caught.value.sentence) == (key, sentence)

    async def test_metrics_go_to_any_path_while_spans_are_off(self, tmp_path: Path) -> None:
        part = OtelPart(parse(tmp_path, endpoint="http://collector/otlp"), ManualClock(), read)
        part.open()
        assert part.on_trace is None
        assert "ottla_otel_spans_exported_total" not in {family.name for family in part.families()}
        await part.stop()

    async def test_unusable_values_stop_the_start(self, tmp_path: Path) -> None:
        for values, key in (
            ({"endpoint": "collector"}, "ottla.otel.endpoint"),
            ({"endpoint": "http://c", "resource_attributes": "x"}, "ottla.otel.resource.attributes"),
            ({"endpoint": "http://c", "headers_location": "/nowhere/headers"}, "ottla.otel.headers.location"),
        ):
            with pytest.raises(ConfigError) as caught:
                OtelPart(parse(tmp_path, **values), ManualClock(), read).open()
            assert caught.value.key == key


class TestExport:
    async def test_receiver_gets_each_series_under_its_prometheus_name(self) -> None:
        with OtlpReceiver() as receiver:
            sender = OtlpSender(settings(f"{receiver.endpoint}/v1/metrics"), Threads())
            export = OtelExport(settings(), ManualClock(), read, sender)
            await export.export()
            sender.close()
            assert (export.exports, export.failures) == (1, 0)
            assert receiver.series("1") == {
                Series("c_total", frozenset()): 5,
                Series("g", frozenset()): 1.5,
                Series("s", frozenset({("quantile", "0.5")})): 2,
                Series("s_count", frozenset()): 3,
                Series("s_sum", frozenset()): 7,
            }
            assert receiver.headers[0]["x-token"] == "secret"

    async def test_process_metrics_are_exported_as_well(self) -> None:
        names = {family.name async for family, _ in Exposition(FAMILIES).read()}
        assert {"c_total", "process_cpu_seconds_total", "process_resident_memory_bytes"} <= names

    async def test_failure_is_counted_logged_and_followed_by_a_longer_pause(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        export = OtelExport(settings(), ManualClock(), read, FakeSender("no route", "no route", None))
        with caplog.at_level(logging.INFO, "ottla.otel"):
            for _ in range(3):
                await export.export()
        assert [record.getMessage().split(" ")[0] for record in caplog.records] == ["Export", "Export", "Metrics"]
        assert {family.name: next(iter(family.read())).value for family in export.families()} == {
            "ottla_otel_exports_total": 1,
            "ottla_otel_failures_total": 2,
            "ottla_otel_dropped_series_total": 0,
        }

    async def test_absent_receiver_is_a_failure_with_a_reason(self) -> None:
        absent = settings("http://127.0.0.1:1/v1/metrics")._replace(timeout_s=0.2)
        sender = OtlpSender(absent, Threads())
        reason = await sender.send(Points(0, 0, 10))
        sender.close()
        assert reason
        assert "no reason" not in reason

    async def test_refusal_of_the_receiver_is_a_failure_with_a_reason(self) -> None:
        with OtlpReceiver() as receiver:
            receiver.refusal = 503
            sender = OtlpSender(settings(f"{receiver.endpoint}/v1/metrics")._replace(timeout_s=0.2), Threads())
            reason = await sender.send(Points(0, 0, 10))
            sender.close()
            assert reason
            assert "no reason" not in reason

    async def test_series_above_the_limit_are_dropped_and_counted(self) -> None:
        sender = FakeSender(None)
        export = OtelExport(settings(max_series=2), ManualClock(), read, sender)
        await export.export()
        assert export.dropped_series == 3

    @pytest.mark.parametrize(("failures", "pause"), [(0, 60), (1, 120), (2, 240), (3, BACK_OFF_MAX_S)])
    def test_pause_doubles_with_each_failure_up_to_five_minutes(self, failures: int, pause: float) -> None:
        assert pause_s(60, failures) == pause

    def test_pause_is_never_shorter_than_the_interval(self) -> None:
        assert pause_s(900, 5) == 900

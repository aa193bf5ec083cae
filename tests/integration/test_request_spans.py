"""Spans of a running node: a receiver gets those of the requests that the node logs."""

import re
from pathlib import Path

import confluent_kafka
import pytest

from tests.support.fakes.otlp_receiver import OtlpReceiver
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.integration

LIMIT_S = 60.0
RECORDS = 3


def test_receiver_gets_a_span_of_each_traced_produce(tmp_path: Path) -> None:
    with OtlpReceiver() as receiver:
        settings = {
            "ottla.otel.endpoint": receiver.endpoint,
            "ottla.otel.traces.enable": "true",
            "ottla.otel.traces.interval.ms": "100",
            "ottla.slow.request.ms": "60000",
            "ottla.trace.apis": "Produce",
        }
        with OttlaNode(tmp_path, settings) as node:
            producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap, "client.id": "spanned"})
            for number in range(RECORDS):
                producer.produce("t", b"%d" % number)
                assert producer.flush(LIMIT_S) == 0
            spans = receiver.wait_for_spans(RECORDS, LIMIT_S)
            logged = re.findall(r"request trace api=Produce .* correlation_id=(\d+)", node.log_text)
            status, page = node.http("/metrics")
    assert len(logged) >= RECORDS
    assert [str(each.attributes["kafka.correlation_id"]) for each in spans] == logged[: len(spans)]
    assert {each.span.name for each in spans} == {"Produce"}
    assert {each.attributes["messaging.client.id"] for each in spans} == {"spanned"}
    assert {each.resource["service.instance.id"] for each in spans} == {"1"}
    assert all("ottla.stage.log_ms" in each.attributes for each in spans)
    assert status == 200
    assert "ottla_otel_dropped_spans_total 0.0" in page

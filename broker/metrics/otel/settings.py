"""Settings of the OpenTelemetry export, and the rules of their texts. Knows neither files nor OpenTelemetry."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

METRICS_PATH: Final = "/v1/metrics"
"""Path of OTLP/HTTP for metrics, used where an endpoint has none."""
TRACES_PATH: Final = "/v1/traces"
"""Path of OTLP/HTTP for spans, in place of that for metrics."""


class OtelSettings(NamedTuple):
    """Settings of the export of metrics. Times in seconds. `max_series` limits the series of one export."""

    endpoint: str
    interval_s: float
    timeout_s: float
    max_series: int
    attributes: Mapping[str, str]
    headers: Mapping[str, str]


class SpanSettings(NamedTuple):
    """Settings of the export of spans. Times in seconds."""

    endpoint: str
    interval_s: float
    timeout_s: float
    attributes: Mapping[str, str]
    headers: Mapping[str, str]


def metrics_url(endpoint: str) -> str:
    """Return the URL for metrics. Raise ValueError, with the end of a sentence, for a text that is no HTTP URL."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL like http://collector:4318")
    return urlunsplit(parts._replace(path=METRICS_PATH)) if parts.path in ("", "/") else endpoint


def traces_url(metrics: str) -> str:
    """Return the URL for spans that belongs to a URL for metrics. Raise ValueError, with the end of a sentence."""
    parts = urlsplit(metrics)
    if not parts.path.endswith(METRICS_PATH):
        raise ValueError(f"must end in {METRICS_PATH} or have no path, because the URL for spans comes from it")
    return urlunsplit(parts._replace(path=parts.path.removesuffix(METRICS_PATH) + TRACES_PATH))


def resource_attributes(items: Sequence[str]) -> dict[str, str]:
    """Return the attributes of `NAME=VALUE` items. Raise ValueError, with the end of a sentence."""
    attributes = {}
    for item in items:
        name, separator, value = item.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"must be a list of NAME=VALUE, not {item!r}")
        attributes[name.strip()] = value.strip()
    return attributes


def parse_headers(lines: Sequence[str]) -> dict[str, str]:
    """Return the headers of `NAME: VALUE` lines. Raise ValueError, with the end of a sentence that shows no value."""
    headers = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, separator, value = line.partition(":")
        if not separator or not name.strip() or not value.strip():
            raise ValueError(f"has no NAME: VALUE in line {number}")
        headers[name.strip()] = value.strip()
    return headers

"""Latencies and throughput of a producer, in the lines and by the formulas of Kafka's kafka-producer-perf-test."""

import array

MAX_SAMPLES = 500_000
BYTES_PER_MB = 1024 * 1024
PERCENTILES = (0.5, 0.95, 0.99, 0.999)


class LatencyStats:
    """Statistics since the start and of the present window. Times are ms; `records` is the expected number."""

    def __init__(self, records: int, interval_ms: int, now_ms: int, *, is_steady: bool = False) -> None:
        self._interval_ms = interval_ms
        self._label = " steady state" if is_steady else ""
        self._start_ms = now_ms
        self._sampling = max(1, records // min(records, MAX_SAMPLES))
        self._samples = array.array("q")
        self._count = self._bytes = self._latency_ms = self._max_ms = 0
        self._begin_window(now_ms)

    def _begin_window(self, now_ms: int) -> None:
        self._window_start_ms = now_ms
        self._window_count = self._window_bytes = self._window_latency_ms = self._window_max_ms = 0

    def record(self, latency_ms: int, size: int, now_ms: int) -> str | None:
        """Count an acknowledged record; return the line of a window that it ends."""
        if self._count % self._sampling == 0:
            self._samples.append(latency_ms)
        self._count += 1
        self._bytes += size
        self._latency_ms += latency_ms
        self._max_ms = max(self._max_ms, latency_ms)
        self._window_count += 1
        self._window_bytes += size
        self._window_latency_ms += latency_ms
        self._window_max_ms = max(self._window_max_ms, latency_ms)
        if now_ms - self._window_start_ms < self._interval_ms:
            return None
        line = self._window(now_ms)
        self._begin_window(now_ms)
        return line

    def _window(self, now_ms: int) -> str:
        per_s = 1000 / max(1, now_ms - self._window_start_ms)
        return (
            f"{self._window_count} records sent, {per_s * self._window_count:.1f} records/sec"
            f" ({per_s * self._window_bytes / BYTES_PER_MB:.2f} MB/sec),"
            f" {self._window_latency_ms / self._window_count:.1f} ms avg latency,"
            f" {self._window_max_ms:.1f} ms max latency."
        )

    def total(self, now_ms: int) -> str:
        """Return the line of everything so far."""
        per_s = 1000 / max(1, now_ms - self._start_ms)
        ordered = sorted(self._samples)
        found = [ordered[int(share * len(ordered))] if ordered else 0 for share in PERCENTILES]
        return (
            f"{self._count}{self._label} records sent, {per_s * self._count:f} records/sec"
            f" ({per_s * self._bytes / BYTES_PER_MB:.2f} MB/sec),"
            f" {self._latency_ms / max(1, self._count):.2f} ms avg latency, {self._max_ms:.2f} ms max latency,"
            f" {found[0]} ms 50th, {found[1]} ms 95th, {found[2]} ms 99th, {found[3]} ms 99.9th."
        )

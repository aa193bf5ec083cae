"""Creation of 10,000 partitions on one node, and its restart after SIGKILL with all of them."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.report.rows import Row, of_runs
from tests.benchmarks.sides import Maker
from tests.benchmarks.wire import first_acknowledged_produce
from tests.benchmarks.workloads import LOWER

TOPICS, PARTITIONS, TOPICS_PER_REQUEST = 1_000, 10, 100
TIME_LIMIT_S = 300.0
LABEL = f"{TOPICS * PARTITIONS:,} partitions"
FIGURES = {
    f"{LABEL} created": ("s", LOWER),
    f"restart after a kill with {LABEL}": ("s", LOWER),
    f"anonymous memory with {LABEL}": ("MB", LOWER),
}


def measure(only: str, runs: int, makers: Sequence[Maker]) -> list[Row]:
    """Return the rows with `only` in their names: seconds to create, seconds from the start of the killed node's next
    process to an acknowledged produce on the last topic, and memory then.
    """
    if not any(only in name for name in FIGURES):
        return []
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(runs):
        for make in makers:
            with tempfile.TemporaryDirectory() as directory:
                results.setdefault(make.__name__, []).append(_run(make, Path(directory)))
    return of_runs(FIGURES, results)


def _run(make: Maker, directory: Path) -> dict[str, float]:
    with make(directory) as side:
        first_acknowledged_produce(side.bootstrap)
        created_s = _create(side.bootstrap)
        side.process.kill()
        side.process.wait()
    with make(directory) as side:
        first_acknowledged_produce(side.bootstrap, _name(TOPICS - 1), TIME_LIMIT_S)
        return dict(zip(FIGURES, (created_s, side.age_s(), side.rss_anon_mb()), strict=True))


def _create(bootstrap: str) -> float:
    """Create all topics, a hundred per request; return the seconds until the last takes a record."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    started = time.monotonic()
    for start in range(0, TOPICS, TOPICS_PER_REQUEST):
        new = [NewTopic(_name(number), PARTITIONS, 1) for number in range(start, start + TOPICS_PER_REQUEST)]
        for future in admin.create_topics(new, request_timeout=TIME_LIMIT_S).values():
            future.result(TIME_LIMIT_S)
    first_acknowledged_produce(bootstrap, _name(TOPICS - 1), TIME_LIMIT_S)
    return time.monotonic() - started


def _name(number: int) -> str:
    return f"many-{number}"

"""Time limits of snapshot imports. The quorum's transcripts cover all other behaviour."""

import pytest

from broker.quorum.snapshots import imports
from tests.scenarios.quorum.scenario import QuorumScenario

TIMEOUT_MS = 300
BEFORE = (
    f"limits trim-interval-ms=100 retention-bytes=0 import-timeout-ms={TIMEOUT_MS}",
    "quorum 1 2 3",
    "start 1 2 3",
    "advance 1200",
    "append a b",
    "advance 50",
    "append c",
    "advance 50",
    "snapshot 1 at=5",
    "advance 200",
    "offer 5-1",
    "node 4",
)


@pytest.fixture
def stage() -> QuorumScenario:
    made = QuorumScenario()
    for command in BEFORE:
        made.run(command)
    return made


def started(stage: QuorumScenario, store_ms: int) -> list[str]:
    """Start node 4 with an empty disk and a store with this response time; return the events."""
    stage.run(f"store {store_ms}")
    stage.run("start 4")
    stage.begin_block()
    stage.run("advance 2000")
    return [line.strip().partition(" ")[2] for line in stage.output]


def test_import_after_its_time_limit_falls_back_to_the_leader(stage: QuorumScenario) -> None:
    assert "4 ends its import at the time limit" in started(stage, 200)


def test_large_import_has_a_longer_time_limit(stage: QuorumScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot has 256 bytes; the time limit applies per started 200 bytes."""
    monkeypatch.setattr(imports, "TIMED_BYTES", 200)
    events = started(stage, 200)
    assert "4 starts its log at snapshot 5-1" in events
    assert "4 ends its import at the time limit" not in events


def test_import_search_has_the_plain_time_limit(stage: QuorumScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "TIMED_BYTES", 200)
    assert "4 ends its import at the time limit" in started(stage, TIMEOUT_MS + 100)

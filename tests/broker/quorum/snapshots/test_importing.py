"""How long a store may take for a snapshot; the rest of what an import does is in the transcripts of the quorum."""

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
    """What node 4 does, which has nothing yet, where the store takes so long for each of two steps."""
    stage.run(f"store {store_ms}")
    stage.run("start 4")
    stage.begin_block()
    stage.run("advance 2000")
    return [line.strip().partition(" ")[2] for line in stage.output]


def test_import_after_its_time_limit_falls_back_to_the_leader(stage: QuorumScenario) -> None:
    assert "4 leaves the store alone, which is too slow" in started(stage, 200)


def test_large_import_has_a_longer_time_limit(stage: QuorumScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has 256 bytes, and there is the timeout for each 200 that are begun."""
    monkeypatch.setattr(imports, "TIMED_BYTES", 200)
    told = started(stage, 200)
    assert "4 starts its log at snapshot 5-1" in told
    assert "4 leaves the store alone, which is too slow" not in told


def test_import_search_has_the_plain_time_limit(stage: QuorumScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "TIMED_BYTES", 200)
    assert "4 leaves the store alone, which is too slow" in started(stage, TIMEOUT_MS + 100)

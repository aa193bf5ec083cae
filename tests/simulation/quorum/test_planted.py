"""The checker detects planted bugs, known from other systems, within a few seeds."""

import pytest

from tests.simulation.__main__ import _sum_up
from tests.simulation.quorum.campaign import run_seed
from tests.simulation.quorum.planted import PLANTED

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_found(bug: str) -> None:
    planted = PLANTED[bug]
    noticed = []
    for seed in range(planted.first, planted.first + planted.seeds):
        found = run_seed(seed, 2_000, planted.parts).found
        if found is not None and found.invariant in planted.catchers:
            return
        noticed.append(found)
    pytest.fail(f"not noticed in {planted.seeds} seeds; instead: {[each for each in noticed if each is not None]}")


def test_report_names_invariant_event_and_history(capsys: pytest.CaptureFixture[str]) -> None:
    planted = PLANTED["voting without persisting"]
    result = next(
        result
        for seed in range(planted.first, planted.first + planted.seeds)
        if (result := run_seed(seed, 2_000, planted.parts)).found
    )
    assert _sum_up("quorum", [result], must_see_all=False) == 1
    output = capsys.readouterr().out
    assert f"seed {result.seed}: OneVotePerEpoch at event {result.events}" in output
    assert f"make sim PLANE=quorum SEED={result.seed}" in output
    assert output.splitlines()[-1] == f"1 seeds, {result.events} events, 1 violations"


def test_campaign_without_an_incident_fails(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_seed(1, 50)
    result.counts.by_name["truncations"] = 0
    assert _sum_up("quorum", [result], must_see_all=True) == 1
    assert "never occurred: " in capsys.readouterr().out

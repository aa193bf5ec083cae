"""Our controller decides as Apache Kafka's does: the same answers, and the same records in the log."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.quorum.controllers import Plain, Twins, twins
from tests.interop.quorum.random_requests import Walk
from tests.interop.wire.harness import differences
from tests.support.kafka.apache_kafka import unavailable_reason

pytestmark = pytest.mark.interop

STEPS = 400


@pytest.fixture(params=[False, True], ids=["in-sync only", "eligible leaders"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Twins]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with twins(tmp_path, elr=request.param) as started:
        yield started


def told(value: Plain) -> Plain:
    """Without what is known to differ.

    The words of errors; topics without a partition among elections; the clearing of eligible leaders of a topic that is
    just being created.
    """
    if isinstance(value, dict):
        return {name: told(each) for name, each in value.items() if not name.endswith("error_message")}
    if isinstance(value, list):
        return [told(each) for each in value if not _is_idle(each)]
    return value


def _is_idle(value: Plain) -> bool:
    if isinstance(value, dict):
        return value.get("partition_result") == []
    return isinstance(value, list) and value[:1] == ["ClearElrRecord"]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_walk_ends_where_apache_kafkas_ends(both: Twins, seed: int) -> None:
    history: list[str] = []
    for name, ask, version in Walk(both, seed).steps(STEPS):
        history.append(name)
        theirs, ours = both.ask(ask, version)
        found = list(differences(told(theirs), told(ours)))
        assert not found, json.dumps({"found": found, "theirs": theirs, "ours": ours, "before": history[-8:]}, indent=1)
    assert len(history) > STEPS / 2

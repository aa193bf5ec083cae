"""Ottla's controller answers requests as Apache Kafka's does and writes the same records."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.quorum.controllers import ControllerPair, Plain, controller_pair
from tests.interop.quorum.random_requests import RandomRequests
from tests.interop.wire.harness import differences
from tests.support.kafka.apache_kafka import unavailable_reason

pytestmark = pytest.mark.interop

STEPS = 400


@pytest.fixture
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControllerPair]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with controller_pair(tmp_path, elr=request.param) as started:
        yield started


def told(value: Plain) -> Plain:
    """Return the value without known differences.

    These are error messages, topics without partitions in election responses, and the clearing of eligible leaders of a
    topic in creation.
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


@pytest.mark.parametrize(
    ("both", "seed"), [(False, 1), (True, 2)], indirect=["both"], ids=["in-sync only", "eligible leaders"]
)
def test_controllers_decide_alike_on_random_requests(both: ControllerPair, seed: int) -> None:
    history: list[str] = []
    for name, ask, version in RandomRequests(both, seed).steps(STEPS):
        history.append(name)
        theirs, ours = both.ask(ask, version)
        found = list(differences(told(theirs), told(ours)))
        assert not found, json.dumps({"found": found, "theirs": theirs, "ours": ours, "before": history[-8:]}, indent=1)
    assert len(history) > STEPS / 2

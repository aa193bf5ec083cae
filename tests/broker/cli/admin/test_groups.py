"""The command groups, against a broker with a group of each type."""

import json

import pytest

from protocol.api_keys import ApiKey
from protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker

HEADING = "GROUP                TYPE                 PROTOCOL            "


@pytest.fixture(autouse=True)
def _listed(broker: FakeBroker) -> None:
    groups = [
        ListedGroup("modern", "consumer", "Stable", "consumer"),
        ListedGroup("connect", "connect", "Stable", "classic"),
        ListedGroup("readers", "consumer", "Stable", "classic"),
        ListedGroup("simple", "", "Empty", "classic"),
        ListedGroup("workers", "share", "Empty", "share"),
        ListedGroup("wordcount", "streams", "Stable", "streams"),
    ]
    broker.answer(ApiKey.LIST_GROUPS, lambda _: ListGroupsResponse(groups=groups))


def names(outcome_lines: list[str]) -> list[str]:
    return [line.split()[0] for line in outcome_lines[1:]]


def test_groups_have_type_and_protocol(ottla: Ottla) -> None:
    lines = ottla("groups", "--list").lines
    assert lines[0] == HEADING
    assert lines[1] == f"{'connect':<20} {'Classic':<20} {'connect':<20}"
    assert names(lines) == ["connect", "modern", "readers", "simple", "wordcount", "workers"]


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        (("--consumer",), ["modern", "readers", "simple"]),
        (("--share",), ["workers"]),
        (("--streams",), ["wordcount"]),
        (("--group-type", "Classic"), ["connect", "readers", "simple"]),
        (("--protocol", "consumer"), ["modern", "readers"]),
        (("--protocol", "consumer", "--group-type", "classic"), ["readers"]),
    ],
)
def test_filters(ottla: Ottla, options: tuple[str, ...], listed: list[str]) -> None:
    assert names(ottla("groups", "--list", *options).lines) == listed


def test_json(ottla: Ottla) -> None:
    (group,) = json.loads(ottla("groups", "--list", "--share", "--json").out)
    assert group == {"group": "workers", "type": "share", "protocol": "share"}


@pytest.mark.parametrize(
    "options",
    [(), ("--list", "--share", "--streams"), ("--list", "--share", "--protocol", "x"), ("--list", "--group-type", "x")],
)
def test_bad_options_are_refused(ottla: Ottla, options: tuple[str, ...]) -> None:
    assert ottla("groups", *options).code == 2

"""The command configs."""

import json
from pathlib import Path

import pytest

from broker.cli.shared.config_text import parse_additions
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_config_resources import ConfigResource, ListConfigResourcesResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker

Config = DescribeConfigsResourceResult


@pytest.fixture
def entities(broker: FakeBroker) -> dict[tuple[int, str], list[Config]]:
    """Configs by (resource type, name) that the broker describes and alters."""
    known: dict[tuple[int, str], list[Config]] = {}

    def describe(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        results = []
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            code = ErrorCode.NONE if key in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(DescribeConfigsResult(code, None, *key, configs=known.get(key, [])))
        return DescribeConfigsResponse(results=results)

    def alter(request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        answers = [
            AlterConfigsResourceResponse(0, None, resource.resource_type, resource.resource_name)
            for resource in request.resources
        ]
        return IncrementalAlterConfigsResponse(responses=answers)

    broker.answer(ApiKey.DESCRIBE_CONFIGS, describe)
    broker.answer(ApiKey.INCREMENTAL_ALTER_CONFIGS, alter)
    return known


def _changes(broker: FakeBroker) -> list[tuple[int, str, list[tuple[str, int, str | None]]]]:
    (request,) = broker.received(IncrementalAlterConfigsRequest)
    return [
        (r.resource_type, r.resource_name, [(c.name, c.config_operation, c.value) for c in r.configs])
        for r in request.resources
    ]


RETENTION = Config("retention.ms", "5", config_source=1, synonyms=[DescribeConfigsSynonym("retention.ms", "5", 1)])
POLICY = Config("cleanup.policy", "delete", config_source=5)
SECRET = Config("a.password", None, config_source=1, is_sensitive=True)


def test_describe_a_topic(entities: dict[tuple[int, str], list[Config]], ottla: Ottla) -> None:
    entities[2, "t"] = [RETENTION, POLICY, SECRET]
    assert ottla("configs", "--describe", "--topic", "t").lines == [
        "Dynamic configs for topic t are:",
        "  a.password=null sensitive=true synonyms={}",
        "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5}",
    ]
    assert ottla("configs", "--describe", "--entity-type", "topics", "--entity-name", "t", "--all").lines[:3] == [
        "All configs for topic t are:",
        "  a.password=null sensitive=true synonyms={}",
        "  cleanup.policy=delete sensitive=false synonyms={}",
    ]


def test_describe_as_json(entities: dict[tuple[int, str], list[Config]], ottla: Ottla) -> None:
    entities[2, "t"] = [RETENTION, POLICY]
    (document,) = json.loads(ottla("configs", "--describe", "--topic", "t", "--json").out)
    assert (document["entityType"], document["entityName"]) == ("topics", "t")
    assert [(c["name"], c["value"], c["source"]) for c in document["configs"]] == [
        ("retention.ms", "5", "DYNAMIC_TOPIC_CONFIG")
    ]


def test_describe_all_topics(broker: FakeBroker, entities: dict[tuple[int, str], list[Config]], ottla: Ottla) -> None:
    broker.topics = {"b": 1, "a": 1}
    entities |= {(2, "a"): [], (2, "b"): []}
    assert ottla("configs", "--describe", "--entity-type", "topics").lines == [
        "Dynamic configs for topic a are:",
        "Dynamic configs for topic b are:",
    ]


@pytest.mark.usefixtures("entities")
def test_describe_of_a_missing_topic_fails(ottla: Ottla) -> None:
    outcome = ottla("configs", "--describe", "--topic", "nosuch")
    text = "The topic 'nosuch' doesn't exist and doesn't have dynamic config. `ottla topics --list` shows the topics."
    assert outcome == (1, "", f"Error: {text}\n")


def test_describe_brokers_and_their_default(entities: dict[tuple[int, str], list[Config]], ottla: Ottla) -> None:
    entities[4, "1"] = [Config("x", "1", config_source=2), Config("y", "2", config_source=3)]
    entities[4, ""] = [Config("y", "2", config_source=3)]
    assert ottla("configs", "--describe", "--entity-type", "brokers").lines == [
        "Dynamic configs for broker 1 are:",
        "  x=1 sensitive=false synonyms={}",
        "Default configs for brokers in the cluster are:",
        "  y=2 sensitive=false synonyms={}",
    ]


def test_describe_groups_that_exist_or_have_configs(
    broker: FakeBroker, entities: dict[tuple[int, str], list[Config]], ottla: Ottla
) -> None:
    entities |= {(32, "g"): [Config("s", "1", config_source=8)], (32, "h"): []}
    broker.answer(
        ApiKey.LIST_CONFIG_RESOURCES,
        lambda _: ListConfigResourcesResponse(config_resources=[ConfigResource("g", 32)]),
    )
    broker.answer(ApiKey.LIST_GROUPS, lambda _: ListGroupsResponse(groups=[ListedGroup("h", "consumer", "Empty")]))
    assert ottla("configs", "--describe", "--entity-type", "groups").lines == [
        "Dynamic configs for group g are:",
        "  s=1 sensitive=false synonyms={}",
    ]


def test_alter(broker: FakeBroker, entities: dict[tuple[int, str], list[Config]], ottla: Ottla) -> None:
    entities[2, "t"] = [RETENTION]
    arguments = ["--add-config", "a=[x,y],b=1", "--delete-config", "retention.ms"]
    outcome = ottla("configs", "--alter", "--topic", "t", *arguments)
    assert outcome == (0, "Completed updating config for topic t.\n", "")
    assert _changes(broker) == [(2, "t", [("a", 0, "x,y"), ("b", 0, "1"), ("retention.ms", 1, None)])]


def test_alter_from_a_file(
    broker: FakeBroker, entities: dict[tuple[int, str], list[Config]], ottla: Ottla, tmp_path: Path
) -> None:
    entities[4, ""] = []
    (tmp_path / "c.properties").write_text("a = 1\nb=2,3\n")
    outcome = ottla("configs", "--alter", "--broker-defaults", "--add-config-file", str(tmp_path / "c.properties"))
    assert outcome == (0, "Completed updating default config for brokers in the cluster.\n", "")
    assert _changes(broker) == [(4, "", [("a", 0, "1"), ("b", 0, "2,3")])]


def test_deletion_of_an_unset_config_is_refused(
    broker: FakeBroker, entities: dict[tuple[int, str], list[Config]], ottla: Ottla
) -> None:
    entities[2, "t"] = [POLICY]
    outcome = ottla("configs", "--alter", "--topic", "t", "--delete-config", "cleanup.policy,x")
    assert outcome == (1, "", "Error: Invalid config(s): cleanup.policy,x\n")
    assert broker.received(IncrementalAlterConfigsRequest) == []


def test_refused_alteration_prints_the_brokers_message(
    broker: FakeBroker, entities: dict[tuple[int, str], list[Config]], ottla: Ottla
) -> None:
    entities[2, "t"] = []
    answer = AlterConfigsResourceResponse(ErrorCode.INVALID_CONFIG, "No such thing.", 2, "t")
    broker.answer(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda _: IncrementalAlterConfigsResponse(responses=[answer]))
    assert ottla("configs", "--alter", "--topic", "t", "--add-config", "x=1").err == "Error: No such thing.\n"


def test_unimplemented_entity_type_is_refused(ottla: Ottla) -> None:
    outcome = ottla("configs", "--describe", "--entity-type", "broker-loggers")
    assert outcome.code == 1
    assert "not implemented" in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--describe"],
        ["--topic", "t"],
        ["--describe", "--alter", "--topic", "t"],
        ["--describe", "--topic", "t", "--broker", "1"],
        ["--describe", "--topic", "t", "--add-config", "a=b"],
        ["--alter", "--topic", "t"],
        ["--alter", "--topic", "t", "--add-config", "a"],
        ["--alter", "--entity-type", "topics", "--add-config", "a=b"],
        ["--describe", "--entity-type", "nosuch"],
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], ottla: Ottla) -> None:
    assert ottla("configs", *arguments).code == 2


def test_broker_id_must_be_a_number(ottla: Ottla) -> None:
    outcome = ottla("configs", "--describe", "--broker", "x")
    assert outcome.code == 1
    assert "must be a valid integer broker id, found: x" in outcome.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=", {"a": "1", "b": ""}),
        ("a=[1,2],b=[3]", {"a": "1,2", "b": "3"}),
        ("a=x=y", {"a": "x=y"}),
        (" a = 1 , b=2", {"a": "1", "b": "2"}),
    ],
)
def test_additions_are_parsed(text: str, expected: dict[str, str]) -> None:
    assert parse_additions(text) == expected


@pytest.mark.parametrize("text", ["", "a", "a=1,", "=1"])
def test_invalid_additions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAME=VALUE"):
        parse_additions(text)

"""The command client-metrics, against a broker with the subscription `slow`."""

import json

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_config_resources import ConfigResource, ListConfigResourcesResponse
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker


class Subscriptions:
    """The broker's subscriptions; `refusal` is the error of the next change."""

    def __init__(self, broker: FakeBroker) -> None:
        self.refusal = ErrorCode.NONE
        broker.answer(ApiKey.LIST_CONFIG_RESOURCES, self.list)
        broker.answer(ApiKey.DESCRIBE_CONFIGS, self.describe)
        broker.answer(ApiKey.INCREMENTAL_ALTER_CONFIGS, self.alter)

    def list(self, _: object) -> ListConfigResourcesResponse:
        return ListConfigResourcesResponse(config_resources=[ConfigResource("slow", 16)])

    def describe(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        configs = [
            DescribeConfigsResourceResult("metrics", "org.apache.kafka."),
            DescribeConfigsResourceResult("interval.ms", "5000"),
        ]
        (asked,) = request.resources
        return DescribeConfigsResponse(
            results=[DescribeConfigsResult(0, None, asked.resource_type, asked.resource_name, configs)]
        )

    def alter(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        (asked,) = request.resources
        answer = AlterConfigsResourceResponse(self.refusal, None, asked.resource_type, asked.resource_name)
        return IncrementalAlterConfigsResponse(responses=[answer])


@pytest.fixture(autouse=True)
def subscriptions(broker: FakeBroker) -> Subscriptions:
    return Subscriptions(broker)


def sent(broker: FakeBroker) -> dict[str, tuple[int, str | None]]:
    (resource,) = broker.received(IncrementalAlterConfigsRequest)[-1].resources
    assert resource.resource_type == 16
    return {config.name: (config.config_operation, config.value) for config in resource.configs}


def test_list_and_describe(ottla: Ottla) -> None:
    assert ottla("client-metrics", "--list").lines == ["slow"]
    described = ["Client metrics configs for slow are:", "  interval.ms=5000", "  metrics=org.apache.kafka."]
    assert ottla("client-metrics", "--describe").lines == described
    assert ottla("client-metrics", "--describe", "--name", "slow").lines == described
    assert json.loads(ottla("client-metrics", "--describe", "--json").out) == {
        "slow": {"interval.ms": "5000", "metrics": "org.apache.kafka."}
    }


def test_unknown_subscription_has_no_configs(ottla: Ottla) -> None:
    assert ottla("client-metrics", "--describe", "--name", "x").lines == [
        "The client metric resource x doesn't exist and doesn't have dynamic config."
    ]


def test_alter_sets_and_resets(ottla: Ottla, broker: FakeBroker) -> None:
    outcome = ottla("client-metrics", "--alter", "--name", "slow", "--metrics", "a.,b.", "--interval", "")
    assert outcome.lines == ["Altered client metrics config for slow."]
    assert sent(broker) == {"metrics": (0, "a.,b."), "interval.ms": (1, None)}


def test_generated_names_differ(ottla: Ottla) -> None:
    printed = [ottla("client-metrics", "--alter", "--generate-name", "--match", "client_id=a").out for _ in range(2)]
    assert printed[0] != printed[1]


def test_delete_resets_every_config(ottla: Ottla, broker: FakeBroker) -> None:
    assert ottla("client-metrics", "--delete", "--name", "slow").lines == ["Deleted client metrics config for slow."]
    assert sent(broker) == {"interval.ms": (1, None), "metrics": (1, None)}


def test_refusal_names_the_subscription(ottla: Ottla, subscriptions: Subscriptions) -> None:
    subscriptions.refusal = ErrorCode.INVALID_CONFIG
    outcome = ottla("client-metrics", "--alter", "--name", "slow", "--match", "bad=1")
    assert outcome.code == 1
    assert "client metrics subscription 'slow'" in outcome.err


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--alter", "--delete"),
        ("--alter",),
        ("--alter", "--name", "x", "--generate-name"),
        ("--alter", "--name", "x", "--interval", "soon"),
        ("--delete",),
        ("--delete", "--name", "x", "--interval", ""),
        ("--list", "--name", "x"),
        ("--describe", "--generate-name"),
    ],
)
def test_bad_options_are_refused(ottla: Ottla, options: tuple[str, ...]) -> None:
    assert ottla("client-metrics", *options).code == 2

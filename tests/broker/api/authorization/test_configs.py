"""Permissions on configs: topics and groups have their own, all other resources those of the cluster."""

import pytest

from broker.api.configs.alter_configs import StoreConfigsHandler
from broker.api.configs.describe_configs import DescribeConfigsHandler
from broker.api.configs.incremental_alter_configs import IncrementalAlterConfigsHandler, StoreConfigChangesHandler
from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.api.serving.config_changes import BrokerConfigCheck
from broker.api.serving.context import RequestContext
from broker.metadata.image.config_image import ResourceType
from protocol.errors import ErrorCode
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.api.configs.test_config_admin import STATIC, Loggers
from tests.broker.api.metadata_harness import LiveCluster
from tests.broker.api.metadata_harness import context as any_context
from tests.support.fakes.fake_authorizer import Grant, GrantedPermissions

RESOURCES = [
    (ResourceType.TOPIC, "t", AclResourceType.TOPIC, "t", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    (ResourceType.GROUP, "g", AclResourceType.GROUP, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (ResourceType.BROKER, "1", AclResourceType.CLUSTER, "kafka-cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    (ResourceType.BROKER_LOGGER, "1", AclResourceType.CLUSTER, "kafka-cluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    (
        ResourceType.CLIENT_METRICS,
        "m",
        AclResourceType.CLUSTER,
        "kafka-cluster",
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ),
]
CHANGES = {
    ResourceType.TOPIC: ("retention.ms", "1000"),
    ResourceType.GROUP: ("consumer.session.timeout.ms", "45000"),
    ResourceType.BROKER: ("log.retention.ms", "1000"),
    ResourceType.CLIENT_METRICS: ("interval.ms", "1000"),
    ResourceType.BROKER_LOGGER: ("root", "INFO"),
}
NAMES = {kind: name for kind, name, *_ in RESOURCES}


def context(granted: list[Grant]) -> RequestContext:
    context = any_context(1)
    context.authorizer = GrantedPermissions(granted)
    return context


@pytest.fixture
def cluster() -> LiveCluster:
    cluster = LiveCluster()
    cluster.start_brokers(1)
    cluster.create_topic("t", [[1]])
    return cluster


def describe(cluster: LiveCluster, granted: list[Grant]) -> dict[int, int]:
    handler = DescribeConfigsHandler(cluster, node_id=1, config=lambda: STATIC, loggers=Loggers())
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name) for kind, name in NAMES.items()])
    response = handler(request, context(granted))
    assert all(bool(each.configs) <= (each.error_code == 0) for each in response.results)
    return {each.resource_type: each.error_code for each in response.results}


async def alter(cluster: LiveCluster, granted: list[Grant]) -> dict[int, int]:
    request = alter_configs.AlterConfigsRequest(
        [
            alter_configs.AlterConfigsResource(kind, NAMES[kind], [alter_configs.AlterableConfig(*change)])
            for kind, change in CHANGES.items()
            if kind is not ResourceType.BROKER_LOGGER
        ]
    )
    response = await StoreConfigsHandler(cluster)(request, context(granted))
    return {each.resource_type: each.error_code for each in response.responses}


async def alter_incrementally(cluster: LiveCluster, granted: list[Grant], *, on_broker: bool) -> dict[int, int]:
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [
            incremental_alter_configs.AlterConfigsResource(
                kind, NAMES[kind], [incremental_alter_configs.AlterableConfig(key, 0, value)]
            )
            for kind, (key, value) in CHANGES.items()
        ]
    )
    loggers = Loggers()
    store = StoreConfigChangesHandler(cluster, loggers, node_id=1)
    check = BrokerConfigCheck(1, lambda: STATIC)
    handler = IncrementalAlterConfigsHandler(store, cluster, check, loggers) if on_broker else store
    response = await handler(request, context(granted))
    codes = {each.resource_type: each.error_code for each in response.responses}
    assert bool(loggers.altered) is (codes[ResourceType.BROKER_LOGGER] == 0)
    return codes


REFUSED = {kind: int(code) for kind, _, _, _, code in RESOURCES}


@pytest.mark.parametrize(("type_", "name"), dict.fromkeys((each[2], each[3]) for each in RESOURCES))
class TestEachResource:
    def test_described(self, cluster: LiveCluster, type_: AclResourceType, name: str) -> None:
        granted: list[Grant] = [("User:ANONYMOUS", AclOperation.DESCRIBE_CONFIGS, type_, name)]
        answered = describe(cluster, granted)
        allowed = {each for each, _, own, *_ in RESOURCES if own is type_}
        assert answered == {each: 0 if each in allowed else REFUSED[each] for each in REFUSED}

    async def test_altered(self, cluster: LiveCluster, type_: AclResourceType, name: str) -> None:
        granted: list[Grant] = [("User:ANONYMOUS", AclOperation.ALTER_CONFIGS, type_, name)]
        allowed = {each for each, _, own, *_ in RESOURCES if own is type_}
        expected = {each: 0 if each in allowed else REFUSED[each] for each in REFUSED}
        assert await alter_incrementally(cluster, granted, on_broker=True) == expected
        without_loggers = {each: code for each, code in expected.items() if each is not ResourceType.BROKER_LOGGER}
        assert await alter(cluster, granted) == without_loggers


async def test_principal_without_permission_neither_describes_nor_alters(cluster: LiveCluster) -> None:
    before = cluster.image.configs
    assert describe(cluster, []) == REFUSED
    assert await alter_incrementally(cluster, [], on_broker=True) == REFUSED
    assert await alter_incrementally(cluster, [], on_broker=False) == REFUSED
    assert cluster.image.configs == before


async def test_loggers_of_a_controller_need_cluster_action(cluster: LiveCluster) -> None:
    granted: list[Grant] = [
        ("User:ANONYMOUS", AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, "kafka-cluster"),
    ]
    answered = await alter_incrementally(cluster, granted, on_broker=False)
    assert answered == REFUSED | {ResourceType.BROKER_LOGGER: 0}

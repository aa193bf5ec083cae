"""DescribeConfigs, IncrementalAlterConfigs, AlterConfigs and ListConfigResources on a broker."""

from collections.abc import Mapping, Sequence

import pytest

from broker.api.configs.alter_configs import AlterConfigsHandler, StoreConfigsHandler
from broker.api.configs.describe_configs import DescribeConfigsHandler
from broker.api.configs.incremental_alter_configs import IncrementalAlterConfigsHandler, StoreConfigChangesHandler
from broker.api.configs.list_config_resources import ListConfigResourcesHandler
from broker.api.serving.config_changes import BrokerConfigCheck
from broker.config.broker_config import BrokerConfig
from broker.config.load import load_config
from broker.metadata.controller.configs import AlterOperation, ConfigOperation
from broker.metadata.image.config_image import ConfigResource, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.api.metadata_harness import LiveCluster, context

STATIC = load_config(None, (), {})[0]
SET, DELETE, APPEND, _ = AlterOperation
TOPIC = ConfigResource(ResourceType.TOPIC, "t")
BROKER = ConfigResource(ResourceType.BROKER, "1")
EVERYWHERE = ConfigResource(ResourceType.BROKER, "")
LOGGER = ConfigResource(ResourceType.BROKER_LOGGER, "1")


class Loggers:
    """Two loggers."""

    def __init__(self) -> None:
        self.altered: list[ConfigOperation] = []

    def levels(self) -> Mapping[str, str]:
        return {"root": "INFO", "broker": "DEBUG"}

    def alter(self, operations: Sequence[ConfigOperation], *, validate_only: bool) -> None:
        if not validate_only:
            self.altered += operations


class Admin:
    """The four handlers on a cluster with a broker and a topic."""

    def __init__(self) -> None:
        self.cluster = LiveCluster()
        self.cluster.start_brokers(1)
        self.cluster.create_topic("t", [[1]])
        self.loggers = Loggers()
        own = BrokerConfigCheck(1, self.config)
        self._incremental = IncrementalAlterConfigsHandler(
            StoreConfigChangesHandler(self.cluster, self.loggers, node_id=1), self.cluster, own, self.loggers
        )
        self._legacy = AlterConfigsHandler(StoreConfigsHandler(self.cluster), self.cluster, own)
        self._describe = DescribeConfigsHandler(self.cluster, node_id=1, config=self.config, loggers=self.loggers)
        self._list = ListConfigResourcesHandler(self.cluster)

    def config(self) -> BrokerConfig:
        configs = self.cluster.image.configs
        return STATIC.with_dynamic(cluster=configs.cluster_default(), broker=configs.broker(1))[0]

    async def alter(
        self,
        resource: ConfigResource,
        *operations: tuple[str, int, str | None],
        validate_only: bool = False,
    ) -> ErrorCode:
        (code,) = await self.alter_each(resource, *operations, validate_only=validate_only)
        return code

    async def alter_each(
        self,
        resource: ConfigResource,
        *operations: tuple[str, int, str | None],
        validate_only: bool = False,
        times: int = 1,
    ) -> list[ErrorCode]:
        """Return the responses to a request that repeats the resource."""
        configs = [incremental_alter_configs.AlterableConfig(*each) for each in operations]
        resource_changes = incremental_alter_configs.AlterConfigsResource(*resource, configs)
        request = IncrementalAlterConfigsRequest([resource_changes] * times, validate_only)
        answers = (await self._incremental(request, context(1))).responses
        assert len(answers) == times
        for answer in answers:
            assert (answer.resource_type, answer.resource_name) == resource
            assert (answer.error_message is None) is (answer.error_code == ErrorCode.NONE)
        return [ErrorCode(answer.error_code) for answer in answers]

    async def replace(self, resource: ConfigResource, **values: str | None) -> ErrorCode:
        configs = [alter_configs.AlterableConfig(key.replace("_", "."), value) for key, value in values.items()]
        request = AlterConfigsRequest([alter_configs.AlterConfigsResource(*resource, configs)])
        (answer,) = (await self._legacy(request, context(2))).responses
        return ErrorCode(answer.error_code)

    def describe(
        self, resource: ConfigResource, *, keys: list[str] | None = None, everything: bool = False
    ) -> DescribeConfigsResult:
        requested = DescribeConfigsResource(*resource, keys)
        request = DescribeConfigsRequest([requested], include_synonyms=everything, include_documentation=everything)
        return self._describe(request, context(4)).results[0]

    def list(self, *types: int, version: int = 1) -> list[tuple[int, str]] | ErrorCode:
        response = self._list(ListConfigResourcesRequest(list(types)), context(version))
        if response.error_code:
            return ErrorCode(response.error_code)
        return [(each.resource_type, each.resource_name) for each in response.config_resources]


@pytest.fixture
def admin() -> Admin:
    return Admin()


class TestDescribe:
    async def test_topic_override_is_described(self, admin: Admin) -> None:
        await admin.alter(TOPIC, ("retention.ms", SET, "5"))
        result = admin.describe(TOPIC)
        by_name = {entry.name: entry for entry in result.configs}
        assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("5", 1)
        assert by_name["segment.ms"].config_source == 5
        assert by_name["retention.ms"].synonyms == []
        assert by_name["retention.ms"].documentation is None
        assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")

    def test_synonyms_types_and_documentation_are_optional(self, admin: Admin) -> None:
        (entry,) = admin.describe(TOPIC, keys=["max.message.bytes"], everything=True).configs
        assert [(each.name, each.source) for each in entry.synonyms] == [("message.max.bytes", 5)]
        assert entry.config_type == 3
        assert entry.documentation

    @pytest.mark.parametrize("keys", [None, []])
    def test_missing_keys_mean_all(self, admin: Admin, keys: list[str] | None) -> None:
        assert len(admin.describe(TOPIC, keys=keys).configs) > 30

    async def test_broker_and_cluster_defaults_are_described(self, admin: Admin) -> None:
        await admin.alter(EVERYWHERE, ("message.max.bytes", SET, "2000000"))
        (own,) = admin.describe(BROKER, keys=["message.max.bytes"]).configs
        assert (own.value, own.config_source) == ("2000000", 3)
        assert [entry.name for entry in admin.describe(EVERYWHERE).configs] == ["message.max.bytes"]

    def test_loggers_are_described(self, admin: Admin) -> None:
        assert {entry.name: entry.value for entry in admin.describe(LOGGER).configs} == admin.loggers.levels()

    def test_groups_and_client_metrics_need_not_exist(self, admin: Admin) -> None:
        assert admin.describe(ConfigResource(ResourceType.GROUP, "g")).configs
        assert admin.describe(ConfigResource(ResourceType.CLIENT_METRICS, "m")).configs

    @pytest.mark.parametrize(
        ("resource", "code"),
        [
            (ConfigResource(ResourceType.TOPIC, "nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (ConfigResource(ResourceType.TOPIC, "bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (ConfigResource(ResourceType.BROKER, "2"), ErrorCode.INVALID_REQUEST),
            (ConfigResource(ResourceType.BROKER, "x"), ErrorCode.INVALID_REQUEST),
            (ConfigResource(ResourceType.BROKER_LOGGER, ""), ErrorCode.INVALID_REQUEST),
            (ConfigResource(ResourceType.GROUP, ""), ErrorCode.INVALID_REQUEST),
            (ConfigResource(ResourceType.CLIENT_METRICS, ""), ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_undescribable_resource_is_refused(self, admin: Admin, resource: ConfigResource, code: ErrorCode) -> None:
        result = admin.describe(resource)
        assert ErrorCode(result.error_code) is code
        assert result.error_message
        assert result.configs == []

    def test_unknown_type_fails_the_request(self, admin: Admin) -> None:
        with pytest.raises(KafkaError) as caught:
            admin.describe(ConfigResource(3, "x"))
        assert caught.value.code is ErrorCode.INVALID_REQUEST


class TestIncrementalAlter:
    async def test_change_reaches_the_controller(self, admin: Admin) -> None:
        assert await admin.alter(TOPIC, ("cleanup.policy", APPEND, "compact")) is ErrorCode.NONE
        assert admin.cluster.image.configs.topic("t")["cleanup.policy"] == "delete,compact"

    @pytest.mark.parametrize(
        ("resource", "operation", "code"),
        [
            (TOPIC, ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
            (
                ConfigResource(ResourceType.TOPIC, "nope"),
                ("retention.ms", SET, "1"),
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ),
            (ConfigResource(3, "x"), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
            (ConfigResource(ResourceType.BROKER, "2"), ("log.cleaner.threads", SET, "2"), ErrorCode.INVALID_REQUEST),
            (ConfigResource(ResourceType.BROKER_LOGGER, "2"), ("root", SET, "INFO"), ErrorCode.INVALID_REQUEST),
            (BROKER, ("log.cleaner.threads", SET, "2"), ErrorCode.NONE),
            (BROKER, ("log.cleaner.threads", SET, "x"), ErrorCode.INVALID_REQUEST),
            (BROKER, ("log.cleaner.threads", APPEND, "1"), ErrorCode.INVALID_CONFIG),
            (BROKER, ("log.cleanup.policy", APPEND, "nonsense"), ErrorCode.INVALID_REQUEST),
            (BROKER, ("log.cleaner.threads", SET, "50"), ErrorCode.INVALID_REQUEST),
            (BROKER, ("log.local.retention.ms", SET, "604800001"), ErrorCode.INVALID_REQUEST),
            (BROKER, ("log.local.retention.ms", SET, "604800000"), ErrorCode.NONE),
            (BROKER, ("process.roles", SET, "broker"), ErrorCode.INVALID_REQUEST),
            (EVERYWHERE, ("ssl.keystore.location", SET, "x"), ErrorCode.INVALID_REQUEST),
            (EVERYWHERE, ("log.retention.ms", SET, "5000"), ErrorCode.NONE),
            (LOGGER, ("root", SET, "INFO"), ErrorCode.NONE),
        ],
    )
    async def test_invalid_change_is_refused(
        self, admin: Admin, resource: ConfigResource, operation: tuple[str, int, str | None], code: ErrorCode
    ) -> None:
        assert await admin.alter(resource, operation) is code

    async def test_repeated_keys_and_resources_are_refused(self, admin: Admin) -> None:
        twice = ("retention.ms", SET, "1"), ("retention.ms", SET, "2")
        assert await admin.alter(TOPIC, *twice) is ErrorCode.INVALID_REQUEST
        for answer in await admin.alter_each(TOPIC, twice[0], times=2):
            assert answer is ErrorCode.INVALID_REQUEST
        assert dict(admin.cluster.image.configs.topic("t")) == {}

    async def test_logger_levels_are_changed_on_this_broker(self, admin: Admin) -> None:
        await admin.alter(LOGGER, ("root", SET, "DEBUG"), validate_only=True)
        assert admin.loggers.altered == []
        await admin.alter(LOGGER, ("root", SET, "DEBUG"))
        assert admin.loggers.altered == [ConfigOperation("root", SET, "DEBUG")]

    async def test_validate_only_changes_nothing(self, admin: Admin) -> None:
        assert await admin.alter(TOPIC, ("retention.ms", SET, "1"), validate_only=True) is ErrorCode.NONE
        assert dict(admin.cluster.image.configs.topic("t")) == {}

    async def test_deleted_key_is_removed(self, admin: Admin) -> None:
        await admin.alter(BROKER, ("log.cleaner.threads", SET, "2"))
        assert await admin.alter(BROKER, ("log.cleaner.threads", DELETE, None)) is ErrorCode.NONE
        assert dict(admin.cluster.image.configs.broker(1)) == {}


class TestReplaceAll:
    async def test_unnamed_keys_are_removed(self, admin: Admin) -> None:
        await admin.alter(TOPIC, ("retention.ms", SET, "1"))
        assert await admin.replace(TOPIC, segment_ms="2") is ErrorCode.NONE
        assert dict(admin.cluster.image.configs.topic("t")) == {"segment.ms": "2"}

    async def test_invalid_replacement_is_refused(self, admin: Admin) -> None:
        assert await admin.replace(TOPIC, retention_ms=None) is ErrorCode.INVALID_REQUEST
        assert await admin.replace(LOGGER, root="INFO") is ErrorCode.INVALID_REQUEST
        assert await admin.replace(ConfigResource(3, "x")) is ErrorCode.INVALID_REQUEST
        assert await admin.replace(BROKER, process_roles="broker") is ErrorCode.INVALID_REQUEST
        assert await admin.replace(BROKER, log_cleaner_threads="2") is ErrorCode.NONE


class TestList:
    async def test_version_0_lists_client_metrics_alone(self, admin: Admin) -> None:
        await admin.alter(ConfigResource(ResourceType.CLIENT_METRICS, "m"), ("interval.ms", SET, "1000"))
        assert admin.list(version=0) == [(16, "m")]

    async def test_missing_types_mean_all(self, admin: Admin) -> None:
        await admin.alter(ConfigResource(ResourceType.GROUP, "g"), ("consumer.session.timeout.ms", SET, "45000"))
        assert admin.list() == [(2, "t"), (4, "1"), (8, "1"), (32, "g")]

    def test_requested_types_are_listed(self, admin: Admin) -> None:
        assert admin.list(ResourceType.TOPIC, ResourceType.TOPIC) == [(2, "t")]

    def test_unknown_type_is_refused(self, admin: Admin) -> None:
        assert admin.list(3) is ErrorCode.UNSUPPORTED_VERSION

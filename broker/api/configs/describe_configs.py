"""DescribeConfigs (key 32), versions 1-4: settings with their sources; 1+ synonyms, 3+ types and documentation.

A broker describes its own settings only; a broker resource without name stands for the cluster's dynamic defaults.
Every broker describes all other resources from its image.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.api.pipeline.permission import AclOperation
from broker.api.serving.config_changes import check_permission
from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import MetadataSource
from broker.config.broker_config import BrokerConfig
from broker.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_metadata_topic,
    describe_topic,
)
from broker.metadata.image.config_image import CLUSTER_DEFAULT, ConfigResource, ResourceType
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC, invalid_name_reason
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_KNOWN_TYPES: Final = frozenset(ResourceType) - {ResourceType.UNKNOWN}


class LoggerLevelReader(Protocol):
    """Reads the levels of this process's loggers."""

    def levels(self) -> Mapping[str, str]: ...


class DescribeConfigsHandler:
    """Answers DescribeConfigs. `config` returns this broker's current configuration with its dynamic layers.

    `metadata_is_readable`: clients may read the topic `__cluster_metadata`.
    """

    def __init__(
        self,
        metadata: MetadataSource,
        *,
        node_id: int,
        config: Callable[[], BrokerConfig],
        loggers: LoggerLevelReader,
        metadata_is_readable: bool = False,
    ) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._config = config
        self._loggers = loggers
        self._metadata_is_readable = metadata_is_readable

    def __call__(self, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
        for resource in request.resources:
            if resource.resource_type not in _KNOWN_TYPES:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} does not exist")
        return DescribeConfigsResponse(
            results=[self._result(resource, request, context) for resource in request.resources]
        )

    def _result(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
    ) -> DescribeConfigsResult:
        result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            kind = ResourceType(resource.resource_type)
            check_permission(AclOperation.DESCRIBE_CONFIGS, ConfigResource(kind, resource.resource_name), context)
            entries = self._entries(kind, resource.resource_name)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            return result
        wanted = resource.configuration_keys or None
        result.configs = [
            _described(entry, synonyms=request.include_synonyms, documentation=request.include_documentation)
            for entry in entries
            if wanted is None or entry.name in wanted
        ]
        return result

    def _entries(self, kind: ResourceType, name: str) -> list[ConfigEntry]:
        """Return the resource's settings. Raises KafkaError if it does not exist or belongs to another broker."""
        match kind:
            case ResourceType.TOPIC:
                return self._topic(name)
            case ResourceType.BROKER if name == CLUSTER_DEFAULT:
                return describe_cluster_default(self._config())
            case ResourceType.BROKER:
                self._check_own_id(name)
                return describe_broker(self._config())
            case ResourceType.BROKER_LOGGER:
                self._check_own_id(name)
                return describe_loggers(self._loggers.levels())
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource has no name")
        overrides = self._metadata.image.configs.of(kind, name)
        if kind is ResourceType.GROUP:
            return describe_group(overrides, self._config())
        return describe_client_metrics(overrides)

    def _topic(self, name: str) -> list[ConfigEntry]:
        fault = invalid_name_reason(name)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if name == CLUSTER_METADATA_TOPIC and self._metadata_is_readable:
            return describe_metadata_topic()
        image = self._metadata.image
        if image.topics.by_name(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(image.configs.topic(name), self._config())

    def _check_own_id(self, name: str) -> None:
        if name != str(self._node_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {self._node_id} describes itself only, not '{name}'")


def _described(entry: ConfigEntry, *, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[DescribeConfigsSynonym(each.name, each.value, each.source) for each in entry.synonyms]
        if synonyms
        else [],
        config_type=entry.kind,
        documentation=entry.documentation if documentation else None,
    )

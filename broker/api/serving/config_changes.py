"""Checks of AlterConfigs and IncrementalAlterConfigs that a broker makes before the controller stores a change.

The controller knows topics, groups and subscriptions. It checks only the name of a broker's configuration; the broker
itself checks the values (Kafka's ConfigAdminManager).
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.api.pipeline.permission import (
    CLUSTER_RESOURCE_NAME,
    AclOperation,
    AclResourceType,
    Permission,
    Requirement,
)
from broker.api.serving.context import RequestContext
from broker.config.broker_config import BrokerConfig
from broker.config.cross_checks import check_local_retention
from broker.config.dynamic import check_thread_counts, validate_dynamic_change
from broker.config.errors import ConfigError
from broker.metadata.controller.configs import AlterOutcome
from broker.metadata.image.config_image import CLUSTER_DEFAULT, ConfigResource, ConfigsImage, ResourceType
from protocol.errors import ErrorCode, KafkaError

_TLS: Final = ".ssl."
_ALTERABLE: Final = frozenset(ResourceType) - {ResourceType.UNKNOWN}


def refusal(resource: ConfigResource, error: KafkaError) -> AlterOutcome:
    return AlterOutcome(resource, error.code, error.message)


def check_resource(resource: ConfigResource, keys: list[str], *, occurrences: int) -> None:
    """Raise KafkaError INVALID_REQUEST for a malformed resource."""
    if occurrences > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource is named more than once in the request")
    if resource.type not in _ALTERABLE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource.type} does not exist")
    if len(set(keys)) != len(keys):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a config key is named more than once")


def check_permission(operation: AclOperation, resource: ConfigResource, context: RequestContext) -> None:
    """Raise KafkaError if the principal lacks `operation`: topics and groups have their own, the rest the cluster's."""
    kind, name, code = AclResourceType.CLUSTER, CLUSTER_RESOURCE_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if resource.type == ResourceType.TOPIC:
        kind, name, code = AclResourceType.TOPIC, resource.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif resource.type == ResourceType.GROUP:
        kind, name, code = AclResourceType.GROUP, resource.name, ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not context.allows(Requirement(((Permission(operation, kind),),)), name):
        raise KafkaError(code, code.message)


class TlsCheck(Protocol):
    """Tries the TLS settings of a configuration."""

    async def check(self, proposed: BrokerConfig) -> None:
        """Load key stores and trust stores without using them. Raise ConfigError."""
        ...


class BrokerConfigCheck:
    """Checks changes of broker configs. `config` returns the current configuration with its dynamic layers."""

    def __init__(self, node_id: int, config: Callable[[], BrokerConfig], tls: TlsCheck | None = None) -> None:
        self._node_id = node_id
        self._config = config
        self._tls = tls

    def check_name(self, name: str) -> None:
        """Raise KafkaError INVALID_REQUEST unless the resource is this broker."""
        if name != str(self._node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"broker {self._node_id} can alter its own configs only, not '{name}'"
            )

    async def check(self, resource: ConfigResource, changed: Mapping[str, str | None], stored: ConfigsImage) -> None:
        """Check the configuration that results from a change; None removes a key. Raises KafkaError."""
        per_broker = resource.name != CLUSTER_DEFAULT
        if per_broker:
            self.check_name(resource.name)
        before = stored.of(ResourceType.BROKER, resource.name)
        after = {key: value for key, value in {**before, **changed}.items() if value is not None}
        present = self._config()
        try:
            validate_dynamic_change({key: after[key] for key in changed if key in after}, per_broker=per_broker)
            layers = {"cluster": stored.cluster_default(), "broker": stored.broker(self._node_id)}
            layers["broker" if per_broker else "cluster"] = after
            proposed, _ = present.with_dynamic(cluster=layers["cluster"], broker=layers["broker"])
            check_thread_counts(present, proposed)
            if any("retention" in key for key in changed):
                check_local_retention(proposed)
            if self._tls is not None and any(_TLS in key for key in changed):
                await self._tls.check(proposed)
        except ConfigError as error:  # Kafka's code for brokers; a topic's invalid value is INVALID_CONFIG
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.sentence) from None

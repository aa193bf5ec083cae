"""The controller's view of configuration: validation and effective values from the tables of `broker.config`.

The controller stores values and elects leaders by two of them. The dynamic layers come from the controller's own image,
so that every node that replays the same log derives the same values.
"""

from collections.abc import Mapping

from broker.config.broker_config import BrokerConfig
from broker.config.client_metrics_config import UnknownSubscriptionSetting, validate_client_metrics_configs
from broker.config.definitions import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS
from broker.config.describe import describe_topic
from broker.config.errors import ConfigError
from broker.config.group_config import validate_group_configs
from broker.config.key import ConfigKey
from broker.config.topic_config import REMOTE, log_config, topic_values, validate_topic_configs
from broker.config.values import ConfigType, render_value
from broker.metadata.controller.state import ConfigLayers, EffectiveConfig
from broker.metadata.image.config_image import ConfigResource, ResourceType
from broker.metadata.image.topic_names import invalid_name_reason
from protocol.errors import ErrorCode, KafkaError
from storage.local_log import NEVER_TIERED

_TABLES: Mapping[int, Mapping[str, ConfigKey]] = {
    ResourceType.TOPIC: TOPIC_KEYS,
    ResourceType.BROKER: BROKER_KEYS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
    ResourceType.GROUP: GROUP_KEYS,
}
_PUSH_INTERVAL = "interval.ms"
_KINDS_OF_NAMES: Mapping[int, str] = {
    ResourceType.TOPIC: "topic",
    ResourceType.CLIENT_METRICS: "client metrics",
    ResourceType.GROUP: "group",
}


class KafkaConfigSchema:
    """Kafka's configuration keys over this node's static configuration. Implements the controller's `ConfigSchema`."""

    def __init__(self, static: BrokerConfig) -> None:
        self._static = static
        self._node: Mapping[str, str] = {}
        self._cluster: Mapping[str, str] = {}
        self._broker = static
        self._topic_defaults = self._rendered_defaults()

    def validate(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        existing: Mapping[str, str] | None,
        layers: ConfigLayers,
    ) -> None:
        """Implements `ConfigSchema.validate`. The broker concerned has already validated broker resources."""
        self._check_name(resource)
        self._enter(layers)
        try:
            match resource.type:
                case ResourceType.TOPIC:
                    had = None if resource.name in NEVER_TIERED else existing
                    validate_topic_configs(configs, self._broker, existing=had)
                case ResourceType.GROUP:
                    validate_group_configs(configs, self._broker)
                case ResourceType.CLIENT_METRICS:
                    validate_client_metrics_configs(configs)
        except UnknownSubscriptionSetting as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.sentence) from None
        except ConfigError as error:
            raise KafkaError(_code_of(resource, configs, error), error.sentence) from None

    def is_list(self, resource_type: int, key: str) -> bool:
        found = _TABLES[resource_type].get(key)
        return found is not None and found.kind is ConfigType.LIST

    def default_of(self, resource_type: int, key: str) -> str | None:
        found = _TABLES[resource_type].get(key)
        return None if found is None else found.default

    def topic_value(self, key: str, layers: ConfigLayers) -> str:
        override = layers.topic.get(key)
        if override is not None:
            return render_value(TOPIC_KEYS[key].parse(override)) or ""
        self._enter(layers)
        return self._topic_defaults[key]

    def configs_stored_at_creation(
        self, topic: str, configs: Mapping[str, str], layers: ConfigLayers
    ) -> Mapping[str, str]:
        """Pin remote.storage.enable if its default is true: a broker with another default would lose remote data."""
        self._enter(layers)
        if not self._broker.ottla_log_remote_storage_enable or REMOTE in configs or topic in NEVER_TIERED:
            return {}
        return {REMOTE: "true"} if log_config(configs, self._broker).remote_storage_enable else {}

    def effective_topic_configs(self, layers: ConfigLayers) -> list[EffectiveConfig]:
        self._enter(layers)
        return [
            EffectiveConfig(entry.name, entry.value, entry.source, entry.read_only, entry.sensitive)
            for entry in describe_topic(layers.topic, self._broker)
        ]

    def _check_name(self, resource: ConfigResource) -> None:
        kind = _KINDS_OF_NAMES.get(resource.type)
        if kind is not None and not resource.name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the {kind} resource has an empty name; name the {kind}")
        fault = invalid_name_reason(resource.name) if resource.type == ResourceType.TOPIC else None
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)

    def _enter(self, layers: ConfigLayers) -> None:
        """Apply the dynamic layers to the node's configuration. Images share unchanged layers."""
        if layers.node is self._node and layers.cluster is self._cluster:
            return
        if layers.node != self._node or layers.cluster != self._cluster:
            self._broker, _ = self._static.with_dynamic(cluster=layers.cluster, broker=layers.node)
            self._topic_defaults = self._rendered_defaults()
        self._node, self._cluster = layers.node, layers.cluster

    def _rendered_defaults(self) -> dict[str, str]:
        return {name: render_value(value) or "" for name, value in topic_values({}, self._broker).items()}


def _code_of(resource: ConfigResource, configs: Mapping[str, str], error: ConfigError) -> ErrorCode:
    """Return Kafka's error code: INVALID_REQUEST for a push interval out of bounds, else INVALID_CONFIG."""
    is_interval = resource.type == ResourceType.CLIENT_METRICS and error.key == _PUSH_INTERVAL
    is_number = is_interval and configs[_PUSH_INTERVAL].strip().lstrip("+-").isdigit()
    return ErrorCode.INVALID_REQUEST if is_number else ErrorCode.INVALID_CONFIG

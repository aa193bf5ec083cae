"""Altering stored configuration, one resource at a time: IncrementalAlterConfigs and the older AlterConfigs."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

from broker.metadata.controller.eligible_leaders import cleared_eligible_leaders
from broker.metadata.controller.result import ControllerResult
from broker.metadata.controller.state import MIN_INSYNC_REPLICAS, ControllerState
from broker.metadata.image.config_image import CLUSTER_DEFAULT, ConfigResource, ResourceType, config_record
from broker.metadata.image.records import VersionedRecord
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC
from protocol.errors import ErrorCode, KafkaError


class AlterOperation(IntEnum):
    """Operations of IncrementalAlterConfigs on the value of a key (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOperation(NamedTuple):
    """One operation on a key; `operation` is the number in the request, known or not."""

    key: str
    operation: int
    value: str | None


class AlterOutcome(NamedTuple):
    """The result for one resource; `code` is NONE on success."""

    resource: ConfigResource
    code: ErrorCode
    message: str | None


_METADATA_LOG: Final = ConfigResource(ResourceType.TOPIC, CLUSTER_METADATA_TOPIC)
_STORED_TYPES: Final = frozenset(
    {ResourceType.TOPIC, ResourceType.BROKER, ResourceType.CLIENT_METRICS, ResourceType.GROUP}
)


class Configs:
    """The commands that alter configuration."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def alter_incrementally(
        self, changes: Mapping[ConfigResource, Sequence[ConfigOperation]], *, validate_only: bool
    ) -> ControllerResult[list[AlterOutcome]]:
        """Apply operations. A resource is altered completely or not at all."""
        outcomes = []
        records: list[VersionedRecord] = []
        for resource, operations in changes.items():
            outcome, written = self._attempt(resource, partial(self._resolved, resource, operations))
            outcomes.append(outcome)
            records += written
        return ControllerResult(() if validate_only else records, outcomes)

    def replace(
        self, configs: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool
    ) -> ControllerResult[list[AlterOutcome]]:
        """Replace all overrides of each resource by the given ones."""
        outcomes = []
        records: list[VersionedRecord] = []
        for resource, values in configs.items():
            outcome, written = self._attempt(resource, partial(self._replacement, resource, values))
            outcomes.append(outcome)
            records += written
        return ControllerResult(() if validate_only else records, outcomes)

    def _attempt(
        self, resource: ConfigResource, plan: Callable[[], Mapping[str, str | None]]
    ) -> tuple[AlterOutcome, list[VersionedRecord]]:
        try:
            records = self._records(resource, plan())
        except KafkaError as error:
            return AlterOutcome(resource, error.code, error.message), []
        return AlterOutcome(resource, ErrorCode.NONE, None), records

    def _records(self, resource: ConfigResource, changed: Mapping[str, str | None]) -> list[VersionedRecord]:
        """Validate the resulting overrides of a resource and return the records of the differences.

        Raises KafkaError.
        """
        if resource.type not in _STORED_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {resource.type} has no stored configs")
        if resource == _METADATA_LOG:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"the configs of {CLUSTER_METADATA_TOPIC} are read-only")
        before = self._state.image.configs.of(resource.type, resource.name)
        after = {key: value for key, value in {**before, **changed}.items() if value is not None}
        self._state.schema.validate(resource, after, before, self._state.layers(resource.name))
        if self._state.image.features.elr_enabled:
            _check_min_insync(resource, changed)
        self._check_exists(resource)
        # Brokers reload files such as key stores when their config is set again, hence the second condition.
        written = {
            key: value
            for key, value in changed.items()
            if before.get(key) != value or resource.type == ResourceType.BROKER
        }
        records = [config_record(resource, key, value) for key, value in written.items()]
        if before.get(MIN_INSYNC_REPLICAS) != after.get(MIN_INSYNC_REPLICAS) and self._state.image.features.elr_enabled:
            topic = resource.name if resource.type == ResourceType.TOPIC else None
            records += cleared_eligible_leaders(self._state, topic)
        return records

    def _check_exists(self, resource: ConfigResource) -> None:
        if resource.type == ResourceType.TOPIC and self._state.image.topics.by_name(resource.name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if resource.type == ResourceType.BROKER and resource.name != CLUSTER_DEFAULT:
            try:
                node_id = int(resource.name)
            except ValueError:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f'a broker resource is named by its numeric id, not "{resource.name}"'
                ) from None
            if not self._is_node(node_id):
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {node_id} is not registered")

    def _is_node(self, node_id: int) -> bool:
        own = self._state.settings.node_id
        return node_id == own or node_id in self._state.image.brokers or node_id in self._state.quorum.voter_ids

    def _resolved(self, resource: ConfigResource, operations: Sequence[ConfigOperation]) -> dict[str, str | None]:
        """Return the new value of each key, None for removal; an operation sees the effect of earlier ones."""
        stored = self._state.image.configs.of(resource.type, resource.name)
        changed: dict[str, str | None] = {}
        for key, number, value in operations:
            operation = _known(number)
            if operation is AlterOperation.SET:
                if value is None:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} cannot be set to null")
                changed[key] = value
            elif operation is AlterOperation.DELETE:
                changed[key] = None
            else:
                present = changed.get(key, stored.get(key))
                changed[key] = self._edited_list(resource, key, present, operation, value or "")
        return changed

    def _edited_list(
        self, resource: ConfigResource, key: str, present: str | None, operation: AlterOperation, value: str
    ) -> str:
        if not self._state.schema.is_list(resource.type, key):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{operation.name} needs a list config, {key} is none")
        if present is None:
            present = self._state.schema.default_of(resource.type, key) or ""
        return edited_list(present, operation, value)

    def _replacement(self, resource: ConfigResource, values: Mapping[str, str | None]) -> dict[str, str | None]:
        for key, value in values.items():
            if value is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the value of {key} is null")
        dropped = [key for key in self._state.image.configs.of(resource.type, resource.name) if key not in values]
        return {**values, **dict.fromkeys(sorted(dropped))}


def edited_list(present: str, operation: AlterOperation, value: str) -> str:
    """Return a list after APPEND (each item once) or SUBTRACT."""
    items = dict.fromkeys(item for item in present.split(",") if item)
    for item in (part for part in value.split(",") if part):
        if operation is AlterOperation.APPEND:
            items[item] = None
        else:
            items.pop(item, None)
    return ",".join(items)


def _known(number: int) -> AlterOperation:
    try:
        return AlterOperation(number)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"config operation {number} is unknown") from None


def _check_min_insync(resource: ConfigResource, changed: Mapping[str, str | None]) -> None:
    """Refuse a broker-level minimum: with ELR every node must see the same minimum of a topic (KIP-966)."""
    if resource.type != ResourceType.BROKER or MIN_INSYNC_REPLICAS not in changed:
        return
    if resource.name != CLUSTER_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_INSYNC_REPLICAS} cannot be set for a single broker; set it for the topic or the cluster default",
        )
    if changed[MIN_INSYNC_REPLICAS] is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC_REPLICAS} cannot be removed from the cluster default")

"""IncrementalAlterConfigs (key 44), versions 0-1: set, delete, append to and subtract from single keys (KIP-339).

Logger levels belong to a process and are changed there. The receiving broker checks changes of its own configuration;
the controller checks and stores the rest. Each resource has its own result and is changed entirely or not at all.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from broker.api.pipeline.permission import AclOperation
from broker.api.serving.config_changes import BrokerConfigCheck, check_permission, check_resource, refusal
from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.metadata_source import MetadataSource
from broker.api.serving.route import Handler
from broker.config.definitions import BROKER_KEYS
from broker.config.values import ConfigType
from broker.metadata.controller.configs import AlterOperation, AlterOutcome, ConfigOperation, edited_list
from broker.metadata.image.config_image import ConfigResource, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_LIST_OPERATIONS: Final = (AlterOperation.APPEND, AlterOperation.SUBTRACT)


class LoggerControl(Protocol):
    """Changes this process's loggers."""

    def alter(self, operations: Sequence[ConfigOperation], *, validate_only: bool) -> None:
        """Apply all operations or none. Raises KafkaError."""
        ...


class IncrementalAlterConfigsHandler:
    """Answers IncrementalAlterConfigs on a broker; `rest` answers for resources of other nodes and of the cluster."""

    def __init__(self, rest: Handler, metadata: MetadataSource, own: BrokerConfigCheck, loggers: LoggerControl) -> None:
        self._rest = rest
        self._metadata = metadata
        self._own = own
        self._loggers = loggers

    async def __call__(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        wanted, outcomes = _split(request)
        passed: list[AlterConfigsResource] = []
        for asked in wanted:
            resource, operations = _resource(asked), _operations(asked)
            try:
                if resource.type == ResourceType.BROKER_LOGGER:
                    check_permission(AclOperation.ALTER_CONFIGS, resource, context)
                    self._own.check_name(resource.name)
                    self._loggers.alter(operations, validate_only=request.validate_only)
                    outcomes.append(AlterOutcome(resource, ErrorCode.NONE, None))
                else:
                    await self._check(resource, operations)
                    passed.append(asked)
            except KafkaError as error:
                outcomes.append(refusal(resource, error))
        response = IncrementalAlterConfigsResponse()
        if passed:
            response = await self._rest(IncrementalAlterConfigsRequest(passed, request.validate_only), context)
        response.responses[:0] = _results(outcomes)
        return response

    async def _check(self, resource: ConfigResource, operations: list[ConfigOperation]) -> None:
        if resource.type == ResourceType.BROKER:
            await self._own.check(resource, self._broker_changes(resource, operations), self._metadata.image.configs)

    def _broker_changes(self, resource: ConfigResource, operations: list[ConfigOperation]) -> dict[str, str | None]:
        """Return the values that operations on a broker's configs result in, to be checked before the controller."""
        stored = self._metadata.image.configs.of(resource.type, resource.name)
        changed: dict[str, str | None] = {}
        for key, operation, value in operations:
            definition = BROKER_KEYS.get(key)
            if operation not in _LIST_OPERATIONS:
                changed[key] = None if operation == AlterOperation.DELETE else value
            elif (
                definition is not None and definition.kind is ConfigType.LIST
            ):  # the controller refuses list operations on other types
                present = stored.get(key, definition.default or "")
                changed[key] = edited_list(present, AlterOperation(operation), value or "")
        return changed


class StoreConfigChangesHandler:
    """Answers IncrementalAlterConfigs on the controller, which has loggers too."""

    def __init__(self, controller: ControllerGateway, loggers: LoggerControl, *, node_id: int) -> None:
        self._controller = controller
        self._loggers = loggers
        self._node_id = node_id

    async def __call__(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        wanted, outcomes = _split(request)
        changes: dict[ConfigResource, list[ConfigOperation]] = {}
        for asked in wanted:
            resource, operations = _resource(asked), _operations(asked)
            try:
                if resource.type == ResourceType.BROKER_LOGGER:
                    check_permission(AclOperation.CLUSTER_ACTION, resource, context)
                    self._alter_loggers(resource, operations, validate_only=request.validate_only)
                    outcomes.append(AlterOutcome(resource, ErrorCode.NONE, None))
                else:
                    check_permission(AclOperation.ALTER_CONFIGS, resource, context)
                    changes[resource] = operations
            except KafkaError as error:
                outcomes.append(refusal(resource, error))
        if changes:
            outcomes += await self._controller.submit(
                lambda controller, _now: controller.alter_configs(changes, validate_only=request.validate_only)
            )
        return IncrementalAlterConfigsResponse(responses=_results(outcomes))

    def _alter_loggers(
        self, resource: ConfigResource, operations: list[ConfigOperation], *, validate_only: bool
    ) -> None:
        """Raises KafkaError."""
        if resource.name != str(self._node_id):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"this is node {self._node_id}, not '{resource.name}'")
        self._loggers.alter(operations, validate_only=validate_only)


def _split(request: IncrementalAlterConfigsRequest) -> tuple[list[AlterConfigsResource], list[AlterOutcome]]:
    """Split the request into resources that can be altered and errors for the rest."""
    counts = Counter(_resource(each) for each in request.resources)
    passed: list[AlterConfigsResource] = []
    outcomes: list[AlterOutcome] = []
    for asked in request.resources:
        resource = _resource(asked)
        try:
            check_resource(resource, [each.name for each in asked.configs], occurrences=counts[resource])
            _check_values(_operations(asked))
            passed.append(asked)
        except KafkaError as error:
            outcomes.append(refusal(resource, error))
    return passed, outcomes


def _check_values(operations: list[ConfigOperation]) -> None:
    for key, operation, value in operations:
        if value is None and operation != AlterOperation.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the value of {key} is null")


def _resource(asked: AlterConfigsResource) -> ConfigResource:
    return ConfigResource(asked.resource_type, asked.resource_name)


def _operations(asked: AlterConfigsResource) -> list[ConfigOperation]:
    return [ConfigOperation(each.name, each.config_operation, each.value) for each in asked.configs]


def _results(outcomes: list[AlterOutcome]) -> list[AlterConfigsResourceResponse]:
    return [AlterConfigsResourceResponse(outcome.code, outcome.message, *outcome.resource) for outcome in outcomes]

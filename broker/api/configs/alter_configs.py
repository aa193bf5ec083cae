"""AlterConfigs (key 33), versions 0-2: replace all overrides of a resource at once (KIP-133).

The receiving broker checks its own configuration; the controller checks and stores the rest.
"""

from collections import Counter

from broker.api.pipeline.permission import AclOperation
from broker.api.serving.config_changes import BrokerConfigCheck, check_permission, check_resource, refusal
from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.metadata_source import MetadataSource
from broker.api.serving.route import Handler
from broker.metadata.controller.configs import AlterOutcome
from broker.metadata.image.config_image import ConfigResource, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


class AlterConfigsHandler:
    """Answers AlterConfigs on a broker; `rest` answers for the resources that pass the broker's checks."""

    def __init__(self, rest: Handler, metadata: MetadataSource, own: BrokerConfigCheck) -> None:
        self._rest = rest
        self._metadata = metadata
        self._own = own

    async def __call__(self, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
        passed, outcomes = _split(request)
        for asked in list(passed):
            try:
                await self._check(asked)
            except KafkaError as error:
                passed.remove(asked)
                outcomes.append(refusal(_resource(asked), error))
        response = AlterConfigsResponse()
        if passed:
            response = await self._rest(AlterConfigsRequest(passed, request.validate_only), context)
        response.responses[:0] = _results(outcomes)
        return response

    async def _check(self, asked: AlterConfigsResource) -> None:
        resource = _resource(asked)
        if resource.type == ResourceType.BROKER:
            stored = self._metadata.image.configs
            values = _values(asked)
            dropped = dict.fromkeys(key for key in stored.of(*resource) if key not in values)
            await self._own.check(resource, {**dropped, **values}, stored)


class StoreConfigsHandler:
    """Answers AlterConfigs on the controller."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    async def __call__(self, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
        passed, outcomes = _split(request)
        configs: dict[ConfigResource, dict[str, str | None]] = {}
        for asked in passed:
            resource = _resource(asked)
            try:
                check_permission(AclOperation.ALTER_CONFIGS, resource, context)
                configs[resource] = _values(asked)
            except KafkaError as error:
                outcomes.append(refusal(resource, error))
        if configs:
            outcomes += await self._controller.submit(
                lambda controller, _now: controller.replace_configs(configs, validate_only=request.validate_only)
            )
        return AlterConfigsResponse(responses=_results(outcomes))


def _split(request: AlterConfigsRequest) -> tuple[list[AlterConfigsResource], list[AlterOutcome]]:
    """Split the request into resources that can be altered and errors for the rest."""
    counts = Counter(_resource(each) for each in request.resources)
    passed: list[AlterConfigsResource] = []
    outcomes: list[AlterOutcome] = []
    for asked in request.resources:
        resource = _resource(asked)
        try:
            check_resource(resource, [each.name for each in asked.configs], occurrences=counts[resource])
            _check_values(asked)
            passed.append(asked)
        except KafkaError as error:
            outcomes.append(refusal(resource, error))
    return passed, outcomes


def _check_values(asked: AlterConfigsResource) -> None:
    for each in asked.configs:
        if each.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the value of {each.name} is null")
    if asked.resource_type == ResourceType.BROKER_LOGGER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "logger levels can only be altered incrementally")


def _resource(asked: AlterConfigsResource) -> ConfigResource:
    return ConfigResource(asked.resource_type, asked.resource_name)


def _values(asked: AlterConfigsResource) -> dict[str, str | None]:
    return {each.name: each.value for each in asked.configs}


def _results(outcomes: list[AlterOutcome]) -> list[AlterConfigsResourceResponse]:
    return [AlterConfigsResourceResponse(outcome.code, outcome.message, *outcome.resource) for outcome in outcomes]

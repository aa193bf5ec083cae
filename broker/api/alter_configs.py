"""AlterConfigs (key 33), versions 0-2: replace all of a resource's overrides at once (KIP-133)."""

from collections import Counter

from broker.api.config_changes import OwnConfigCheck, check_resource, refusal
from broker.api.context import RequestContext
from broker.api.controller_gateway import ControllerGateway
from broker.api.metadata_source import MetadataSource
from broker.metadata.config_image import ConfigResource, ResourceType
from broker.metadata.configs import AlterOutcome
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


class AlterConfigsHandler:
    """Answers AlterConfigs."""

    def __init__(self, controller: ControllerGateway, metadata: MetadataSource, own: OwnConfigCheck) -> None:
        self._controller = controller
        self._metadata = metadata
        self._own = own

    async def __call__(self, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
        counts = Counter(_resource(each) for each in request.resources)
        outcomes: list[AlterOutcome] = []
        configs: dict[ConfigResource, dict[str, str | None]] = {}
        for asked in request.resources:
            resource = _resource(asked)
            values = {each.name: each.value for each in asked.configs}
            try:
                check_resource(resource, [each.name for each in asked.configs], times_named=counts[resource])
                self._check(resource, values)
                configs[resource] = values
            except KafkaError as error:
                outcomes.append(refusal(resource, error))
        if configs:
            outcomes += await self._controller.submit(
                lambda controller, _now: controller.replace_configs(configs, validate_only=request.validate_only)
            )
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(outcome.code, outcome.message, *outcome.resource) for outcome in outcomes
            ]
        )

    def _check(self, resource: ConfigResource, values: dict[str, str | None]) -> None:
        for key, value in values.items():
            if value is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"the value of {key} is null")
        if resource.type == ResourceType.BROKER_LOGGER:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "logger levels can only be altered incrementally")
        if resource.type == ResourceType.BROKER:
            stored = self._metadata.image.configs
            dropped = dict.fromkeys(key for key in stored.of(*resource) if key not in values)
            self._own.check(resource, {**dropped, **values}, stored)


def _resource(asked: AlterConfigsResource) -> ConfigResource:
    return ConfigResource(asked.resource_type, asked.resource_name)

"""ListConfigResources (key 74), versions 0-1: the resources that have configs.

Version 0 lists client metrics alone (KIP-714), version 1 the requested types, or all types (KIP-1142).
"""

from collections.abc import Iterable
from typing import Final

from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import MetadataSource
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.metadata_image import MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_LISTED_BY_VERSION_0: Final = (ResourceType.CLIENT_METRICS,)
_SUPPORTED: Final = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


class ListConfigResourcesHandler:
    """Answers ListConfigResources from the published image."""

    def __init__(self, metadata: MetadataSource) -> None:
        self._metadata = metadata

    def __call__(self, request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
        types: Iterable[int] = _LISTED_BY_VERSION_0
        if context.api_version > 0:
            types = dict.fromkeys(request.resource_types) or _SUPPORTED
        if any(each not in _SUPPORTED for each in types):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        image = self._metadata.image
        return ListConfigResourcesResponse(
            config_resources=[
                ConfigResource(name, kind) for kind in types for name in _names(image, kind, context.listener)
            ]
        )


def _names(image: MetadataImage, kind: int, listener: str) -> list[str]:
    if kind == ResourceType.TOPIC:
        return image.topics.names()
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker.id) for broker in image.brokers.alive(listener)]
    return image.configs.names(kind)

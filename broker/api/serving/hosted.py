"""The wrapping of a route that creates partitions: its answer is held until they can be used on this broker."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

from broker.api.serving.context import RequestContext
from broker.api.serving.route import Handler, Route
from broker.metadata.image.metadata_image import MetadataImage
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse


class CreatedPartitionsWait(Protocol):
    """Waits for partitions; see `broker.runtime.partitions.creation_wait`."""

    def wait_for(self, is_known: Callable[[MetadataImage], bool]) -> Awaitable[None]: ...


def hosted(row: Route, hosting: CreatedPartitionsWait) -> Route:
    """The row of CreateTopics or CreatePartitions, answered when its partitions are in service here, or soon enough."""
    return replace(row, handler=HostedHandler(row.handler, hosting))


class HostedHandler:
    """Waits after another handler has answered."""

    def __init__(self, handler: Handler, hosting: CreatedPartitionsWait) -> None:
        self._handler = handler
        self._hosting = hosting

    async def __call__(self, request: Any, context: RequestContext) -> Any:
        response = await self._handler(request, context)
        if not request.validate_only:
            await self._hosting.wait_for(_made_by(request, response))
        return response


def _made_by(request: Any, response: Any) -> Callable[[MetadataImage], bool]:
    """Whether an image has what a response says was created."""
    match response:
        case CreateTopicsResponse():
            created = [topic for topic in response.topics if not topic.error_code]
            return lambda image: all(_exists(topic, image) for topic in created)
        case CreatePartitionsResponse():
            counts = _extended(request, response)
            return lambda image: all(_has_partitions(name, count, image) for name, count in counts.items())
        case _:
            raise TypeError(f"{type(response).__name__} creates no partitions")


def _exists(created: CreatableTopicResult, image: MetadataImage) -> bool:
    """By its id, where the version tells it: a namesake may just have been deleted."""
    return image.topics.by_id(created.topic_id) is not None or (
        not any(created.topic_id) and image.topics.by_name(created.name) is not None
    )


def _extended(request: CreatePartitionsRequest, response: CreatePartitionsResponse) -> dict[str, int]:
    wanted = {topic.name: topic.count for topic in request.topics}
    return {result.name: wanted[result.name] for result in response.results if not result.error_code}


def _has_partitions(name: str, count: int, image: MetadataImage) -> bool:
    topic = image.topics.by_name(name)
    return topic is not None and topic.partition_count >= count

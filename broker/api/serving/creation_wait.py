"""The broker's step of CreateTopics and CreatePartitions: respond once the partitions can be used on this broker."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from broker.api.serving.context import RequestContext
from broker.api.serving.route import Handler
from broker.metadata.image.metadata_image import MetadataImage
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse


class CreatedPartitionsWait(Protocol):
    """Waits for partitions; see `broker.runtime.partitions.creation_wait`."""

    def wait_for(self, is_known: Callable[[MetadataImage], bool]) -> Awaitable[None]: ...


class CreationWaitHandler:
    """Holds the response of `handler` until the partitions are in service here, for a bounded time."""

    def __init__(self, handler: Handler, wait: CreatedPartitionsWait) -> None:
        self._handler = handler
        self._wait = wait

    async def __call__(self, request: Any, context: RequestContext) -> Any:
        response = await self._handler(request, context)
        if not request.validate_only:
            await self._wait.wait_for(_has_created(request, response))
        return response


def _has_created(request: Any, response: Any) -> Callable[[MetadataImage], bool]:
    """Return a predicate: whether an image contains what `response` reports as created."""
    match response:
        case CreateTopicsResponse():
            created = [topic for topic in response.topics if not topic.error_code]
            return lambda image: all(_has_topic(topic, image) for topic in created)
        case CreatePartitionsResponse():
            counts = _new_counts(request, response)
            return lambda image: all(_has_partitions(name, count, image) for name, count in counts.items())
        case _:
            raise TypeError(f"{type(response).__name__} creates no partitions")


def _has_topic(created: CreatableTopicResult, image: MetadataImage) -> bool:
    """Look up by id where the version has ids, because a topic of the same name may just have been deleted."""
    return image.topics.by_id(created.topic_id) is not None or (
        not any(created.topic_id) and image.topics.by_name(created.name) is not None
    )


def _new_counts(request: CreatePartitionsRequest, response: CreatePartitionsResponse) -> dict[str, int]:
    requested = {topic.name: topic.count for topic in request.topics}
    return {result.name: requested[result.name] for result in response.results if not result.error_code}


def _has_partitions(name: str, count: int, image: MetadataImage) -> bool:
    topic = image.topics.by_name(name)
    return topic is not None and topic.partition_count >= count

"""Topics, their partitions, and configurations."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, DESCRIBE_CONFIGS_OF_CLUSTER, DESCRIBE_TOPIC
from broker.console.answers import SharedAnswers
from broker.console.cluster import Answers, ConsoleCluster, check
from broker.console.listing import Filter
from broker.console.request import ConsoleRequest, Json, cut, not_found, paged
from broker.console.topic_index import TopicIndex
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.topic_image import TopicImage
from broker.metadata.image.topic_names import is_internal
from protocol.api_keys import ApiKey
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from protocol.messages.describe_node import (
    DescribedPartition,
    DescribedTopic,
    DescribeNodeRequest,
    DescribeNodeResponse,
)
from protocol.primitives import uuid_to_text

DESCRIBED_MAX: Final = 2_000
"""Partitions whose leaders are asked for one answer; lists of more have no sizes."""
_SEGMENTS_SHOWN: Final = 200
_CLIENTS_TOPICS: Final[Filter[TopicImage]] = Filter("clients", lambda topic: not topic.name.startswith("__"))
_SORTS: Final = ("name", "partitions", "offline", "under_replicated")

Partitions = Mapping[str, Sequence[int]]
"""Partitions by topic name."""

_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "properties file",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
_TYPES: Final = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")


class TopicViews:
    """The views of topics and of configurations."""

    def __init__(self, cluster: ConsoleCluster, index: TopicIndex, shared: SharedAnswers) -> None:
        self._cluster = cluster
        self._index = index
        self._shared = shared

    def find(self, request: ConsoleRequest) -> TopicImage:
        """Return the topic of the parameter `name`. Raise ConsoleError, also without the right to describe it."""
        name = request.text("name")
        topic = self._cluster.image.topics.by_name(name)
        if topic is None or not self._cluster.allows(request, DESCRIBE_TOPIC, name):
            raise not_found(f'Topic "{name[:249]}" does not exist, or {request.principal} may not describe it.')
        return topic

    async def page(self, request: ConsoleRequest) -> Json:
        """Return a page of topics."""
        page = request.page(_SORTS)
        await self._index.refresh()
        filters: list[Filter[TopicImage]] = self._cluster.filters(request, DESCRIBE_TOPIC, lambda topic: topic.name)
        if request.text("internal", "0") != "1":
            filters.append(_CLIENTS_TOPICS)
        found = await self._index.listing.select(page, filters)
        described = await self.describe({topic.name: range(len(topic.partitions)) for topic in found.rows})
        image = self._cluster.image
        items = [self._item(image, topic, described.by_topic.get(topic.name)) for topic in found.rows]
        return paged(items, page, found.total, described.missing)

    async def topic(self, request: ConsoleRequest) -> Json:
        """Return one topic."""
        topic, image = self.find(request), self._cluster.image
        described = await self.describe({topic.name: range(len(topic.partitions))})
        overrides = image.configs.topic(topic.name)
        return {
            **self._item(image, topic, described.by_topic.get(topic.name)),
            "configs_count": len(overrides),
            "cleanup_policy": overrides.get("cleanup.policy"),
            "retention_ms": overrides.get("retention.ms"),
            "missing": described.missing,
        }

    async def partitions(self, request: ConsoleRequest) -> Json:
        """Return a page of a topic's partitions with offsets, sizes and remote segments."""
        topic, page = self.find(request), request.page(("partition",))
        ordered = range(len(topic.partitions))[:: -1 if page.is_descending else 1]
        shown = cut(ordered, page)
        described = await self.describe({topic.name: shown}, segments=_SEGMENTS_SHOWN)
        found = described.by_topic.get(topic.name, {})
        items = [_partition(index, topic.partitions[index], found.get(index)) for index in shown]
        return paged(items, page, len(ordered), described.missing)

    def _item(self, image: MetadataImage, topic: TopicImage, found: Mapping[int, DescribedPartition] | None) -> Json:
        figures = self._index.figures(topic)
        is_complete = found is not None and len(found) == len(topic.partitions)
        remote = image.configs.topic(topic.name).get("remote.storage.enable") == "true"
        return {
            "name": topic.name,
            "id": uuid_to_text(topic.id),
            "internal": is_internal(topic.name),
            "partitions": len(topic.partitions),
            "replication_factor": figures.replication_factor,
            "offline": figures.offline,
            "under_replicated": figures.under_replicated,
            "under_min_isr": figures.under_min_isr,
            "tiered": remote,
            "size_bytes": sum(each.size_bytes for each in found.values()) if found and is_complete else None,
            "remote_bytes": sum(each.remote_size_bytes for each in found.values()) if found and is_complete else None,
        }

    async def describe(self, wanted: Partitions, segments: int = 0, share_group: str | None = None) -> "TopicAnswers":
        """Ask the leaders of partitions, also about deliveries to a share group. Describe none if they are too many."""
        if sum(map(len, wanted.values())) > DESCRIBED_MAX:
            return TopicAnswers(Answers())
        key = tuple((name, tuple(partitions)) for name, partitions in wanted.items())
        return await self._shared.get(
            (key, segments, share_group), lambda: self._describe(wanted, segments, share_group)
        )

    async def _describe(self, wanted: Partitions, segments: int, share_group: str | None) -> "TopicAnswers":
        image = self._cluster.image
        by_leader: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for name, partitions in wanted.items():
            topic = image.topics.by_name(name)
            for index in partitions if topic is not None else ():
                registration = None if topic is None else topic.partitions.get(index)
                if registration is not None and registration.has_leader:
                    by_leader[registration.leader][name].append(index)

        def request(leader: int) -> DescribeNodeRequest:
            topics = [DescribedTopic(name, partitions) for name, partitions in by_leader[leader].items()]
            return DescribeNodeRequest(topics=topics, max_segments=segments, share_group=share_group)

        return TopicAnswers(await self._cluster.ask_all(sorted(by_leader), request, DescribeNodeResponse))

    # Configurations.

    async def topic_configs(self, request: ConsoleRequest) -> Json:
        """Return the configuration of a topic."""
        return await self._configs(request, ResourceType.TOPIC, self.find(request).name)

    async def broker_configs(self, request: ConsoleRequest) -> Json:
        """Return the configuration of a broker. Only that broker knows its properties file, so it is asked."""
        id = request.number("id", high=2**31 - 1)
        if id == self._cluster.node.node_id:
            return await self._configs(request, ResourceType.BROKER, str(id))
        brokers = self._cluster.image.brokers
        if id not in brokers.brokers and id not in brokers.controllers:
            raise not_found(f"Node {id} is not registered.")
        what = f"describe configs of broker {id}"
        self._cluster.require(
            request, DESCRIBE_CONFIGS_OF_CLUSTER, CLUSTER_RESOURCE_NAME, what, ApiKey.DESCRIBE_CONFIGS
        )
        asked = _config_request(ResourceType.BROKER, str(id))
        return _configs_of(await self._cluster.ask(id, asked, DescribeConfigsResponse), str(id))

    async def _configs(self, request: ConsoleRequest, kind: ResourceType, name: str) -> Json:
        response = await self._cluster.submit(request, _config_request(kind, name), DescribeConfigsResponse)
        return _configs_of(response, name)


def _config_request(kind: ResourceType, name: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)], True, True)


def _configs_of(response: DescribeConfigsResponse, name: str) -> Json:
    if not response.results:
        raise not_found(f"{name} has no configuration.")
    result = response.results[0]
    check(result.error_code, result.error_message, name)
    return {"items": [_config(each) for each in sorted(result.configs, key=lambda each: each.name)]}


class TopicAnswers:
    """Partitions as their leaders describe them, by topic and index."""

    def __init__(self, answers: Answers[DescribeNodeResponse]) -> None:
        self.missing = answers.missing
        self.by_topic: defaultdict[str, dict[int, DescribedPartition]] = defaultdict(dict)
        for response in answers.by_id.values():
            for each in response.partitions:
                self.by_topic[each.topic_name][each.index] = each


def _config(config: DescribeConfigsResourceResult) -> Json:
    kind = config.config_type
    return {
        "name": config.name,
        "value": None if config.is_sensitive else config.value,
        "source": _SOURCES.get(config.config_source, "unknown"),
        "is_default": config.config_source == 5,
        "is_sensitive": config.is_sensitive,
        "is_read_only": config.read_only,
        "type": _TYPES[kind] if 0 <= kind < len(_TYPES) else "unknown",
        "documentation": config.documentation,
        "synonyms": [
            {
                "name": each.name,
                "value": None if config.is_sensitive else each.value,
                "source": _SOURCES.get(each.source, "unknown"),
            }
            for each in config.synonyms
        ],
    }


def _partition(index: int, registration: PartitionRegistration, found: DescribedPartition | None) -> Json:
    item: Json = {
        "partition": index,
        "leader": registration.leader if registration.has_leader else None,
        "leader_epoch": registration.leader_epoch,
        "replicas": list(registration.replicas),
        "isr": list(registration.isr),
        "elr": list(registration.elr),
        "adding": list(registration.adding_replicas),
        "removing": list(registration.removing_replicas),
    }
    offsets: Json = dict.fromkeys(("start_offset", "local_start_offset", "end_offset", "high_watermark", "size_bytes"))
    if found is None:
        return {**item, **offsets, "remote": None}
    return {
        **item,
        "start_offset": found.log_start_offset,
        "local_start_offset": found.local_start_offset,
        "end_offset": found.log_end_offset,
        "high_watermark": found.high_watermark,
        "size_bytes": found.size_bytes,
        "remote": _remote(found) if found.is_tiered else None,
    }


def _remote(found: DescribedPartition) -> Json:
    return {
        "size_bytes": found.remote_size_bytes,
        "segments": found.remote_segments,
        "first_offset": found.remote_first_offset if found.remote_first_offset >= 0 else None,
        "last_offset": found.remote_last_offset if found.remote_last_offset >= 0 else None,
        "copy_lag_bytes": found.copy_lag_bytes,
        "copy_lag_segments": found.copy_lag_segments,
        "segment_list": [
            {
                "start_offset": each.start_offset,
                "end_offset": each.end_offset,
                "size_bytes": each.size_bytes,
                "max_time_ms": each.max_timestamp_ms if each.max_timestamp_ms >= 0 else None,
                "state": each.state.replace("_", " "),
            }
            for each in found.segments
        ],
    }

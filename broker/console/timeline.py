"""The time line: the cluster at an offset of the metadata log, its difference to now, and changes as sentences."""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, DESCRIBE_CLUSTER, READ_TOPIC
from broker.console.cluster import ConsoleCluster
from broker.console.history import LoggedChange, MetadataHistory
from broker.console.request import ConsoleRequest, Json, cut, paged
from broker.console.topic_index import figures_of
from broker.metadata.image.image_difference import difference
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.slices import finish
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC, is_internal
from broker.metadata.timeline.change import Change
from broker.metadata.timeline.sentences import IsSecret, describe
from protocol.api_keys import ApiKey
from protocol.primitives import uuid_to_text

DIFFERENCES_MAX: Final = 500
CHANGES_MAX: Final = 500
CHANGES_SHOWN: Final = 50


class TimelineViews:
    """The views of the time line. The principal needs the right to read `__cluster_metadata`."""

    def __init__(self, cluster: ConsoleCluster, history: MetadataHistory, is_secret: IsSecret) -> None:
        self._cluster = cluster
        self._history = history
        self._is_secret = is_secret

    async def bounds(self, request: ConsoleRequest) -> Json:
        """Return the offsets of the time line and the snapshots on it."""
        self._check(request)
        bounds = await self._history.bounds()
        return {
            "first_offset": bounds.first,
            "last_offset": bounds.last,
            "last_time_ms": self._cluster.image.provenance.timestamp_ms or None,
            "snapshots": [{"offset": each.end_offset, "epoch": each.epoch} for each in bounds.snapshots],
        }

    async def changes(self, request: ConsoleRequest) -> Json:
        """Return changes below an offset, the newest first."""
        self._check(request)
        before = request.number("before", 2**62)
        limit = request.number("limit", CHANGES_SHOWN, low=1, high=CHANGES_MAX)
        found, following = await self._history.changes(before, limit)
        return {"items": [_logged(each) for each in found], "next_before": following}

    async def at(self, request: ConsoleRequest) -> Json:
        """Return the cluster at an offset, and what has changed since."""
        self._check(request)
        offset = request.number("offset")
        then, now = await self._history.image_at(offset), self._cluster.image
        items, total = await asyncio.to_thread(_difference, then, now, self._is_secret)
        return {
            "offset": offset,
            "time_ms": then.provenance.timestamp_ms or None,
            "now_offset": now.offset,
            "summary": await asyncio.to_thread(_summary, then),
            "difference": {"items": items, "total": total, "truncated": total > len(items)},
        }

    async def topics(self, request: ConsoleRequest) -> Json:
        """Return a page of the topics at an offset."""
        self._check(request)
        page = request.page(("name",))
        image = await self._history.image_at(request.number("offset"))
        names = await asyncio.to_thread(image.topics.names)
        names = [name for name in names if page.search in name.lower()]
        if page.is_descending:
            names.reverse()
        items = [item for name in cut(names, page) if (item := _topic(image, name)) is not None]
        return paged(items, page, len(names))

    def _check(self, request: ConsoleRequest) -> None:
        self._cluster.require(request, DESCRIBE_CLUSTER, CLUSTER_RESOURCE_NAME, "describe the cluster")
        self._cluster.require(request, READ_TOPIC, CLUSTER_METADATA_TOPIC, "read the metadata log", ApiKey.FETCH)


def _logged(logged: LoggedChange) -> Json:
    return {"offset": logged.offset, "time_ms": logged.time_ms, **_change(logged.change)}


def _change(change: Change) -> Json:
    return change._asdict()


def _difference(then: MetadataImage, now: MetadataImage, is_secret: IsSecret) -> tuple[list[Json], int]:
    """Return the first differences, and the number of all."""
    changes: Iterator[Change] = describe(finish(difference(then, now)), is_secret)
    items = [_change(each) for each in islice(changes, DIFFERENCES_MAX)]
    return items, len(items) + sum(1 for _ in changes)


def _summary(image: MetadataImage) -> Json:
    brokers = [
        {
            "id": broker.id,
            "rack": broker.rack,
            "state": "fenced" if broker.fenced else "shutting down" if broker.in_controlled_shutdown else "running",
        }
        for broker in sorted(image.brokers.brokers.values(), key=lambda each: each.id)
    ]
    partitions = [each for topic in image.topics for each in topic.partitions.values()]
    return {
        "brokers": brokers,
        "topics": len(image.topics),
        "partitions": len(partitions),
        "offline": sum(not each.has_leader for each in partitions),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
        "acls": len(image.acls.entries),
        "features": dict(sorted(image.features.finalized().items())),
    }


def _topic(image: MetadataImage, name: str) -> Json | None:
    topic = image.topics.by_name(name)
    if topic is None:
        return None
    figures = figures_of(topic, 1)
    return {
        "name": name,
        "id": uuid_to_text(topic.id),
        "internal": is_internal(name),
        "partitions": len(topic.partitions),
        "replication_factor": figures.replication_factor,
        "offline": figures.offline,
        "under_replicated": figures.under_replicated,
        "tiered": image.configs.topic(name).get("remote.storage.enable") == "true",
        "configs": dict(sorted(image.configs.topic(name).items())),
    }

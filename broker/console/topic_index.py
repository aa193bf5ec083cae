"""Figures of all topics of an image, for lists and totals. A new image costs what changed, and a look at each topic."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from broker.console.listing import RowListing
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicImage
from protocol.primitives import Uuid

TOPICS_PER_TURN: Final = 500
"""Unchanged topics that a turn of the event loop passes."""
PARTITIONS_PER_TURN: Final = 2_000
"""Partitions of new and changed topics that a turn counts: some milliseconds."""


class TopicFigures(NamedTuple):
    """The state of a topic's partitions. `leaders` and `replicas` count partitions by broker."""

    replication_factor: int
    offline: int
    under_replicated: int
    under_min_isr: int
    leaders: Mapping[int, int]
    replicas: Mapping[int, int]


class _Entry(NamedTuple):
    topic: TopicImage
    min_isr: int
    figures: TopicFigures


class TopicTotals:
    """Sums over all topics; `leaders` and `replicas` count partitions by broker."""

    def __init__(self) -> None:
        self.offline = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.leaders: Counter[int] = Counter()
        self.replicas: Counter[int] = Counter()

    def move(self, figures: TopicFigures, sign: int) -> None:
        """Add the figures of a topic, or remove them with `sign` -1."""
        self.offline += sign * figures.offline
        self.under_replicated += sign * figures.under_replicated
        self.under_min_isr += sign * figures.under_min_isr
        for counts, own in ((self.leaders, figures.leaders), (self.replicas, figures.replicas)):
            for broker, count in own.items():
                counts[broker] += sign * count


class TopicIndex:
    """Follows the image when `refresh` is called."""

    def __init__(self, image: Callable[[], MetadataImage], min_isr: Callable[[MetadataImage, str], int]) -> None:
        self._image = image
        self._min_isr = min_isr
        self._entries: dict[Uuid, _Entry] = {}
        self._indexed: MetadataImage | None = None
        self._refreshing: asyncio.Future[None] | None = None
        self.totals = TopicTotals()
        self._listing: RowListing[TopicImage] = RowListing([], _name)

    @property
    def listing(self) -> RowListing[TopicImage]:
        """All topics by name, as the last `refresh` found them; sorted by partitions, or by troubled partitions."""
        return self._listing

    def figures(self, topic: TopicImage) -> TopicFigures:
        """Return the figures of a topic."""
        entry = self._entries.get(topic.id)
        if entry is not None and entry.topic is topic:
            return entry.figures
        image = self._image()
        return figures_of(topic, self._min_isr(image, topic.name))

    async def refresh(self) -> None:
        """Follow the latest image. Callers at the same time share a pass."""
        for _ in range(2):  # a pass that has begun before this call may have seen an older image
            if self._indexed is self._image():
                return
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.ensure_future(self._follow())
            await asyncio.shield(self._refreshing)

    async def _follow(self) -> None:
        image, before = self._image(), self._indexed
        if before is not None and (before.topics is image.topics and before.configs is image.configs):
            self._indexed = image
            return
        has_new, work = False, 0
        for topic in image.topics:
            min_isr = self._min_isr(image, topic.name)
            entry = self._entries.get(topic.id)
            is_known = entry is not None and entry.topic is topic and entry.min_isr == min_isr
            work += PARTITIONS_PER_TURN // TOPICS_PER_TURN if is_known else len(topic.partitions) + 1
            if work > PARTITIONS_PER_TURN:
                await asyncio.sleep(0)
                work = 0
            if not is_known:
                has_new |= entry is None
                await self._add(topic, min_isr, entry)
        gone = [id for id in self._entries if image.topics.by_id(id) is None] if self._has_gone(image) else []
        for topic_id in gone:
            self.totals.move(self._entries.pop(topic_id).figures, -1)
        await self._list(image, is_same=before is not None and not has_new and not gone)
        self._indexed = image

    def _has_gone(self, image: MetadataImage) -> bool:
        return len(self._entries) > len(image.topics)

    async def _add(self, topic: TopicImage, min_isr: int, before: _Entry | None) -> None:
        if len(topic.partitions) > PARTITIONS_PER_TURN:
            figures = await asyncio.to_thread(figures_of, topic, min_isr)
        else:
            figures = figures_of(topic, min_isr)
        if before is not None:
            self.totals.move(before.figures, -1)
        self._entries[topic.id] = _Entry(topic, min_isr, figures)
        self.totals.move(figures, 1)

    async def _list(self, image: MetadataImage, *, is_same: bool) -> None:
        """Make the list for an image; `is_same` tells that the names have not changed."""
        names = [topic.name for topic in self._listing.rows] if is_same else image.topics.names()
        await asyncio.sleep(0)
        rows = [topic for name in names if (topic := image.topics.by_name(name)) is not None]
        self._listing = RowListing(
            rows,
            _name,
            {
                "partitions": lambda topic: len(topic.partitions),
                "offline": lambda topic: self.figures(topic).offline,
                "under_replicated": lambda topic: self.figures(topic).under_replicated,
            },
        )


def _name(topic: TopicImage) -> str:
    return topic.name


def figures_of(topic: TopicImage, min_isr: int) -> TopicFigures:
    """Return the figures of a topic whose `min.insync.replicas` is `min_isr`, in one pass over its partitions."""
    factor = offline = under_replicated = under_min_isr = 0
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for each in topic.partitions.values():
        wanted, in_sync = len(each.replicas), len(each.isr)
        factor = max(factor, wanted)
        under_replicated += in_sync < wanted
        under_min_isr += in_sync < min(min_isr, wanted)
        if each.has_leader:
            leaders[each.leader] = leaders.get(each.leader, 0) + 1
        else:
            offline += 1
        for broker in each.replicas:
            replicas[broker] = replicas.get(broker, 0) + 1
    return TopicFigures(factor, offline, under_replicated, under_min_isr, leaders, replicas)

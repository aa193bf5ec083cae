"""Figures of all topics of an image, for lists and totals.

The index notes the topics that metadata changes name, so that a new image costs what changed. Without these notes (the
first image, a snapshot, another default of `min.insync.replicas`) it looks at each topic, in short turns.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from broker.console.listing import ROWS_PER_TURN, RowListing
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicImage
from protocol.primitives import Uuid

TOPICS_PER_TURN: Final = 250
"""Unchanged topics that a turn of the event loop passes."""
PARTITIONS_PER_TURN: Final = 1_000
"""Partitions of new and changed topics that a turn counts: a millisecond or two."""
CHANGES_MAX: Final = 10_000
"""Noted changes; after more, the index looks at each topic."""


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
        self._noted: MetadataImage | None = None
        """The image that `_changed` leads to from the indexed one."""
        self._changed: set[Uuid] = set()
        self._places: dict[str, int] = {}
        self._refreshing: asyncio.Future[None] | None = None
        self.totals = TopicTotals()
        self._listing: RowListing[TopicImage] = RowListing([], _name, self._keys())

    @property
    def listing(self) -> RowListing[TopicImage]:
        """All topics by name, as the last `refresh` found them; sorted by partitions, or by troubled partitions."""
        return self._listing

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Note the topics that a new image has changed."""
        is_next, self._noted = self._noted is delta.image, None
        if not is_next or len(self._changed) > CHANGES_MAX:
            return
        if delta.configs is not None:
            for kind, name in delta.configs.changed_resources:
                if kind == ResourceType.BROKER:  # may be the default of min.insync.replicas
                    return
                topic = image.topics.by_name(name) if kind == ResourceType.TOPIC else None
                if topic is not None:
                    self._changed.add(topic.id)
        if delta.topics is not None:
            self._changed.update(delta.topics.changed, delta.topics.deleted)
        self._noted = image

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
        image, is_noted = self._image(), self._indexed is not None and self._noted is self._image()
        changed, self._changed = self._changed, set()
        self._noted = image
        if is_noted:
            topics: Iterable[TopicImage] = [each for id in changed if (each := image.topics.by_id(id)) is not None]
            gone = [id for id in changed if id in self._entries and image.topics.by_id(id) is None]
        else:
            topics = image.topics
            gone = [id for id in self._entries if image.topics.by_id(id) is None]
        for topic_id in gone:
            self.totals.move(self._entries.pop(topic_id).figures, -1)
        renewed = await self._look_at(image, topics)
        if gone or any(topic.name not in self._places for topic in renewed):
            await self._list(image)
        elif renewed:
            rows = list(self._listing.rows)
            for topic in renewed:
                rows[self._places[topic.name]] = topic
            self._listing = self._listing.with_rows(rows)
        self._indexed = image

    async def _look_at(self, image: MetadataImage, topics: Iterable[TopicImage]) -> list[TopicImage]:
        """Count the partitions of new and changed topics in turns of the loop, and return these topics."""
        renewed, work = [], 0
        for topic in topics:
            min_isr = self._min_isr(image, topic.name)
            entry = self._entries.get(topic.id)
            is_known = entry is not None and entry.topic is topic and entry.min_isr == min_isr
            work += PARTITIONS_PER_TURN // TOPICS_PER_TURN if is_known else len(topic.partitions) + 1
            if work > PARTITIONS_PER_TURN:
                await asyncio.sleep(0)
                work = 0
            if not is_known:
                renewed.append(topic)
                await self._add(topic, min_isr, entry)
        return renewed

    async def _add(self, topic: TopicImage, min_isr: int, before: _Entry | None) -> None:
        if len(topic.partitions) > PARTITIONS_PER_TURN:
            figures = await asyncio.to_thread(figures_of, topic, min_isr)
        else:
            figures = figures_of(topic, min_isr)
        if before is not None:
            self.totals.move(before.figures, -1)
        self._entries[topic.id] = _Entry(topic, min_isr, figures)
        self.totals.move(figures, 1)

    async def _list(self, image: MetadataImage) -> None:
        """Make the list of an image with other names than the indexed one."""
        names, rows = image.topics.names(), list[TopicImage]()
        for begin in range(0, len(names), ROWS_PER_TURN):
            await asyncio.sleep(0)
            found = [image.topics.by_name(name) for name in names[begin : begin + ROWS_PER_TURN]]
            rows += [topic for topic in found if topic is not None]
        self._places = {name: place for place, name in enumerate(names)}
        self._listing = RowListing(rows, _name, self._keys())

    def _keys(self) -> Mapping[str, Callable[[TopicImage], int]]:
        return {
            "partitions": lambda topic: len(topic.partitions),
            "offline": lambda topic: self.figures(topic).offline,
            "under_replicated": lambda topic: self.figures(topic).under_replicated,
        }


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

"""Figures of all topics of an image, for lists and totals. A new image costs what changed, and a look at each topic."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicImage
from protocol.primitives import Uuid

_TOPICS_PER_TURN: Final = 256


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
        self.names: list[str] = []
        """All names, sorted."""

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
        for number, topic in enumerate(image.topics):
            if number % _TOPICS_PER_TURN == _TOPICS_PER_TURN - 1:
                await asyncio.sleep(0)
            self._add(topic, self._min_isr(image, topic.name))
        if len(self._entries) > len(image.topics):
            for topic_id in [id for id in self._entries if image.topics.by_id(id) is None]:
                self.totals.move(self._entries.pop(topic_id).figures, -1)
        self.names = image.topics.names()
        self._indexed = image

    def _add(self, topic: TopicImage, min_isr: int) -> None:
        entry = self._entries.get(topic.id)
        if entry is not None and entry.topic is topic and entry.min_isr == min_isr:
            return
        if entry is not None:
            self.totals.move(entry.figures, -1)
        figures = figures_of(topic, min_isr)
        self._entries[topic.id] = _Entry(topic, min_isr, figures)
        self.totals.move(figures, 1)


def figures_of(topic: TopicImage, min_isr: int) -> TopicFigures:
    """Return the figures of a topic whose `min.insync.replicas` is `min_isr`."""
    partitions = topic.partitions.values()
    return TopicFigures(
        max((len(each.replicas) for each in partitions), default=0),
        sum(not each.has_leader for each in partitions),
        sum(len(each.isr) < len(each.replicas) for each in partitions),
        sum(len(each.isr) < min(min_isr, len(each.replicas)) for each in partitions),
        _counts(each.leader for each in partitions if each.has_leader),
        _counts(broker for each in partitions for broker in each.replicas),
    )


def _counts(brokers: Iterable[int]) -> Mapping[int, int]:
    return Counter(brokers)

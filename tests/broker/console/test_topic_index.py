"""Figures of topics: equal to a count of all partitions, at a cost that follows the changes."""

import asyncio
from collections import Counter
from itertools import pairwise
from time import perf_counter
from typing import Any

import pytest
from immutables import Map

from broker.console.topic_index import PARTITIONS_PER_TURN, TopicIndex, TopicTotals, figures_of
from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage, Provenance
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.records import MetadataRecord
from broker.metadata.image.topic_image import TopicImage, TopicsImage
from protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord
from tests.broker.metadata.histories import History, folded
from tests.broker.metadata.images import directory_of, image_with, uuid
from tests.support.harnesses.console_harness import asked

SORTS = ("name", "partitions", "offline", "under_replicated")


class Index:
    """An index over an image that the test replaces; `min_isr` counts its calls."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.looked_at = 0
        self.index = TopicIndex(lambda: self.image, self._min_isr)

    def load(self, *records: MetadataRecord) -> None:
        """Publish the image after records, as the metadata driver does."""
        before = self.image
        delta = MetadataDelta(before)
        delta.replay_all(records)
        self.image = delta.apply(Provenance(before.offset + 1))
        self.index.on_metadata(delta, self.image)

    def _min_isr(self, image: MetadataImage, topic: str) -> int:
        self.looked_at += 1
        return int(image.configs.topic(topic).get("min.insync.replicas", 1))

    async def names(self, **parameters: Any) -> list[str]:
        await self.index.refresh()
        found = await self.index.listing.select(asked(**parameters).page(SORTS))
        return [topic.name for topic in found.rows]


def big_image(topics: int, partitions: int) -> MetadataImage:
    """Return an image of topics with three replicas each on ten brokers. Topics share registrations, to save time."""
    registrations = [PartitionRegistration.from_record(_partition(lead)) for lead in range(10)]
    rows = [
        TopicImage(
            f"topic-{number:05}",
            uuid(number),
            Map({index: registrations[(number + index) % 10] for index in range(partitions)}),
        )
        for number in range(1, topics + 1)
    ]
    image = TopicsImage(Map({row.name: row for row in rows}), Map({row.id: row for row in rows}), topics * partitions)
    return image_with(brokers=range(1, 11))._replace(topics=image)


def _partition(lead: int) -> PartitionRecord:
    replicas = [(lead + step) % 10 + 1 for step in range(3)]
    return PartitionRecord(
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory_of(each) for each in replicas],
    )


@pytest.fixture(scope="module")
def big() -> MetadataImage:
    return big_image(10_000, 10)


@pytest.mark.parametrize("seed", range(2))
async def test_totals_equal_a_count_of_all_partitions(seed: int) -> None:
    batches = History(seed, steps=200).batches
    index = Index(folded(batches[:20]))
    for end in range(20, len(batches) + 1, 20):
        index.image = folded(batches[:end])
        await index.index.refresh()
        every = [each for topic in index.image.topics for each in topic.partitions.values()]
        totals = index.index.totals
        assert totals.offline == sum(not each.has_leader for each in every)
        assert totals.under_replicated == sum(len(each.isr) < len(each.replicas) for each in every)
        assert +totals.leaders == Counter(each.leader for each in every if each.has_leader)
        assert +totals.replicas == Counter(broker for each in every for broker in each.replicas)
        assert await index.names(size=200) == index.image.topics.names()[:200]


async def test_topics_are_sorted_by_their_trouble() -> None:
    index = Index(image_with(topics={"a": 1, "b": 3, "c": 2}, brokers=(1, 2), fenced=(2,)))
    assert await index.names(sort="-partitions") == ["b", "c", "a"]
    assert await index.names(sort="under_replicated") == ["a", "c", "b"]
    assert await index.names(search="B") == ["b"]
    index.image = image_with(topics={"a": 1, "b": 3}, brokers=(1,), fenced=(1,))
    assert await index.names(sort="-offline") == ["b", "a"]
    assert index.index.totals.offline == 4


async def test_config_of_min_isr_counts() -> None:
    index = Index(image_with(topics={"a": 2}, brokers=(1, 2), fenced=(2,)))
    await index.index.refresh()
    assert index.index.totals.under_min_isr == 0
    index.image = image_with(topics={"a": 2}, brokers=(1, 2), fenced=(2,), configs={"a": {"min.insync.replicas": "2"}})
    await index.index.refresh()
    assert index.index.totals.under_min_isr == 2


async def test_callers_at_the_same_time_share_a_pass(big: MetadataImage) -> None:
    index = Index(big)
    await asyncio.gather(*(index.index.refresh() for _ in range(10)))
    assert index.looked_at == 10_000
    await index.index.refresh()
    assert index.looked_at == 10_000


async def test_new_image_counts_the_changed_topics_only(big: MetadataImage, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(big)
    await index.index.refresh()
    counted: list[str] = []

    def count(topic: object, min_isr: int) -> object:
        counted.append(topic.name)  # type: ignore[attr-defined]
        return figures_of(topic, min_isr)  # type: ignore[arg-type]

    monkeypatch.setattr("broker.console.topic_index.figures_of", count)
    index.looked_at = 0
    index.load(PartitionChangeRecord(partition_id=3, topic_id=uuid(7), isr=[(7 + 3) % 10 + 1]))
    index.load(RemoveTopicRecord(topic_id=uuid(9)))
    await index.index.refresh()
    assert index.looked_at == 1
    assert counted == ["topic-00007"]
    assert (index.index.totals.under_replicated, sum(index.index.totals.replicas.values())) == (1, 3 * 99_990)
    assert await index.names(sort="-under_replicated", size=2) == ["topic-00007", "topic-00001"]


async def test_turns_of_the_event_loop_stay_short_with_100_000_partitions(big: MetadataImage) -> None:
    """Count turns, not time: a busy machine slows all. Figures are in docs/console.md."""
    index, turns, is_over = Index(big), [0], False

    async def watch() -> None:
        while not is_over:
            turns.append(len(index.index._entries))
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    await index.index.refresh()
    is_over = True
    await watching
    topics_a_turn = max(after - before for before, after in pairwise(turns))
    assert topics_a_turn * 10 <= PARTITIONS_PER_TURN + 10


async def test_page_of_10_000_topics_costs_its_rows(big: MetadataImage) -> None:
    """Compare the second page with the first one on the same machine."""
    index = Index(big)
    begun = perf_counter()
    first = await index.names(search="9", sort="-under_replicated")
    built_s = perf_counter() - begun
    begun = perf_counter()
    second = await index.names(search="9", sort="-under_replicated", page=1)
    paged_s = perf_counter() - begun
    assert len(first) == len(second) == 50
    assert not set(first) & set(second)
    assert paged_s < built_s / 5


async def test_topic_with_many_partitions_is_counted_beside_the_loop() -> None:
    index = Index(big_image(1, PARTITIONS_PER_TURN + 1))
    await index.index.refresh()
    assert sum(index.index.totals.leaders.values()) == PARTITIONS_PER_TURN + 1


@pytest.mark.parametrize("seed", range(2))
async def test_noted_changes_lead_to_the_same_index_as_a_look_at_all_topics(seed: int) -> None:
    batches = History(seed + 50, steps=300).batches
    index = Index(folded(batches[:30]))
    await index.index.refresh()
    for number, batch in enumerate(batches[30:]):
        index.load(*batch.records)
        if number % 5:
            continue
        assert await index.names(sort="-under_replicated", size=200) is not None
        other = Index(index.image)
        for sort in SORTS:
            assert await index.names(sort=sort, size=200) == await other.names(sort=sort, size=200)
        assert vars(index.index.totals) == {**vars(other.index.totals), **_without_zeros(index.index.totals)}


def _without_zeros(totals: TopicTotals) -> dict[str, Counter[int]]:
    assert all(count >= 0 for count in (*totals.leaders.values(), *totals.replicas.values()))
    return {"leaders": totals.leaders, "replicas": totals.replicas}


async def test_other_default_of_min_isr_is_a_look_at_all_topics() -> None:
    index = Index(image_with(topics={"a": 2, "b": 1}, brokers=(1, 2), fenced=(2,)))
    await index.index.refresh()
    index.load(config_record(ConfigResource(ResourceType.BROKER, ""), "min.insync.replicas", "2").message)
    await index.index.refresh()
    assert index.looked_at == 4

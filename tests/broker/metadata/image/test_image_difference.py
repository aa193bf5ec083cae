"""Deltas between images that share no history."""

import pytest

from broker.metadata.image.config_image import ConfigResource, ResourceType
from broker.metadata.image.image_difference import difference
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.metadata.image.slices import finish
from tests.broker.metadata.histories import History, folded
from tests.broker.metadata.images import image_with, uuid


@pytest.mark.parametrize("seed", range(8))
def test_difference_leads_from_one_image_to_the_other(seed: int) -> None:
    batches = History(seed, steps=200).batches
    before, after = folded(batches[:50]), folded(batches)
    for base, target in ((before, after), (EMPTY_IMAGE, after), (after, before)):
        delta = finish(difference(base, target))
        if target is not before:  # metadata.version and controllers are never removed
            assert delta.apply(target.provenance) == target
        assert delta.image is base


def test_topics_and_configs_have_an_order() -> None:
    names = [f"topic-{number}" for number in range(300)]
    image = image_with(topics=dict.fromkeys(names, 1), configs={name: {"k": "v"} for name in names})
    for base, target in ((EMPTY_IMAGE, image), (image, EMPTY_IMAGE)):
        delta = finish(difference(base, target))
        assert delta.topics is not None
        for topics in (delta.topics.changed, delta.topics.deleted):
            assert list(topics) == sorted(topics)
        assert delta.configs is not None
        assert list(delta.configs.changes) == sorted(delta.configs.changes)


def test_equal_images_have_an_empty_difference() -> None:
    batches = History(1).batches
    assert finish(difference(folded(batches), folded(batches, at_once=5))).is_empty


def test_removals_are_in_the_difference() -> None:
    before = image_with(topics={"a": 1, "b": 1}, brokers=(1, 2), configs={"a": {"k": "v"}, "b": {"k": "v"}})
    after = image_with(topics={"a": 2}, brokers=(1,), configs={"a": {"k": "w"}})
    delta = finish(difference(before, after))
    assert delta.topics is not None
    assert [topic.name for topic in delta.topics.deleted.values()] == ["b"]
    assert set(delta.topics.changed[uuid(1)].changed_partitions) == {0, 1}  # 0 has lost a replica
    assert delta.brokers is not None
    assert delta.brokers.changed_brokers[2] is None
    assert delta.configs is not None
    assert delta.configs.removed == {ConfigResource(ResourceType.TOPIC, "b")}
    assert delta.configs.changes == {ConfigResource(ResourceType.TOPIC, "a"): {"k": "w"}}


def test_recreated_topic_is_another_topic() -> None:
    before = image_with(topics={"a": 1})
    after = image_with(topics={"0": 1, "a": 1})  # "0" has the former id of "a"
    delta = finish(difference(before, after))
    assert delta.topics is not None
    assert delta.topics.changed[uuid(2)].is_new

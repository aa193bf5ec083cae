"""The views of the time line."""

from typing import Any

import pytest

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, AclOperation, AclResourceType
from broker.console.building import is_secret
from broker.console.history import Bounds, LoggedChange
from broker.console.request import ConsoleError
from broker.console.timeline import DIFFERENCES_MAX, TimelineViews
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.timeline.change import Change
from broker.quorum.identity import SnapshotId
from protocol.ids import LeaderEpoch, Offset
from tests.broker.metadata.images import image_with
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.console_harness import ALICE, ConsoleHarness, asked

THEN = image_with(topics={"a": 1, "b": 1, "gone": 2}, brokers=(1, 2), fenced=(2,), configs={"a": {"k": "v"}})
NOW = image_with(topics={"a": 3, "b": 1}, brokers=(1, 2), configs={"a": {"k": "w"}})
RIGHTS = [
    (ALICE, AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_RESOURCE_NAME),
    (ALICE, AclOperation.READ, AclResourceType.TOPIC, "__cluster_metadata"),
]


class Past:
    """A history with one image and one change."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image

    async def bounds(self) -> Bounds:
        return Bounds(3, 99, [SnapshotId(Offset(4), LeaderEpoch(2))])

    async def image_at(self, offset: int) -> MetadataImage:
        return self.image

    async def changes(self, before: int, limit: int) -> tuple[list[LoggedChange], int | None]:
        return [LoggedChange(before - 1, 5, Change("topic a: deleted", "topic", "a"))], 17


def views(authorizer: GrantedPermissions | None = None, now: MetadataImage = NOW) -> TimelineViews:
    history: Any = Past(THEN)
    return TimelineViews(ConsoleHarness(now, authorizer).cluster, history, is_secret)


async def test_bounds_name_the_snapshots() -> None:
    bounds = await views().bounds(asked())
    assert (bounds["first_offset"], bounds["last_offset"]) == (3, 99)
    assert bounds["snapshots"] == [{"offset": 4, "epoch": 2}]


async def test_changes_have_offset_time_and_sentence() -> None:
    answer = await views().changes(asked(before=50))
    (item,) = answer["items"]
    assert (item["offset"], item["time_ms"], item["sentence"], answer["next_before"]) == (49, 5, "topic a: deleted", 17)


async def test_cluster_then_and_its_difference_to_now() -> None:
    answer = await views().at(asked(offset=7))
    summary = answer["summary"]
    assert (summary["topics"], summary["partitions"], summary["under_replicated"]) == (3, 4, 4)
    assert [broker["state"] for broker in summary["brokers"]] == ["running", "fenced"]
    sentences = [item["sentence"] for item in answer["difference"]["items"]]
    assert "topic gone: deleted, with 2 partitions" in sentences
    assert "topic a: 2 partitions added, 3 in all" in sentences
    assert "topic a: k v → w" in sentences
    assert answer["difference"]["total"] == len(sentences)


async def test_long_difference_is_cut_and_counted() -> None:
    many = image_with(topics={f"t-{number}": 1 for number in range(DIFFERENCES_MAX + 50)})
    difference = (await views(now=many).at(asked(offset=7)))["difference"]
    assert (len(difference["items"]), difference["truncated"]) == (DIFFERENCES_MAX, True)
    assert difference["total"] > DIFFERENCES_MAX + 50


async def test_topics_then_are_searched() -> None:
    answer = await views().topics(asked(offset=7, search="GO"))
    assert [(item["name"], item["partitions"]) for item in answer["items"]] == [("gone", 2)]
    answer = await views().topics(asked(offset=7, sort="-name"))
    assert [item["name"] for item in answer["items"]] == ["gone", "b", "a"]
    assert answer["items"][2]["configs"] == {"k": "v"}


@pytest.mark.parametrize("right", RIGHTS)
async def test_every_view_needs_the_rights_to_describe_the_cluster_and_to_read_the_log(right: Any) -> None:
    own = views(GrantedPermissions(set(RIGHTS) - {right}))
    for view in (own.bounds, own.changes, own.at, own.topics):
        with pytest.raises(ConsoleError, match="User:alice is not authorized") as refused:
            await view(asked(offset=7))
        assert refused.value.status == 403
    assert (await views(GrantedPermissions(RIGHTS)).at(asked(offset=7)))["offset"] == 7

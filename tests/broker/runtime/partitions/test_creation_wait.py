"""Topic creation responses wait for the logs of their partitions (`creation_wait.py`)."""

import asyncio

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.runtime.partitions.creation_wait import CreationWait
from protocol.ids import LeaderEpoch


class FakePartitions:
    """Creates logs until the event is set."""

    def __init__(self) -> None:
        self.created = asyncio.Event()

    async def wait_created(self) -> None:
        await self.created.wait()


def image_at(offset: int) -> MetadataImage:
    return EMPTY_IMAGE._replace(provenance=Provenance(offset, LeaderEpoch(1), 0))


def is_at_7(image: MetadataImage) -> bool:
    return image.offset >= 7


async def turns_of_the_loop() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def test_response_waits_for_the_metadata_and_the_logs() -> None:
    partitions = FakePartitions()
    hosting = CreationWait(partitions, wait_max_ms=60_000)
    answer = asyncio.ensure_future(hosting.wait_for(is_at_7))
    for offset in (6, 7):
        await turns_of_the_loop()
        assert not answer.done()
        hosting.on_metadata(MetadataDelta(EMPTY_IMAGE), image_at(offset))
    await turns_of_the_loop()
    assert not answer.done()
    partitions.created.set()
    await answer


async def test_known_topic_waits_for_its_logs_only() -> None:
    partitions = FakePartitions()
    partitions.created.set()
    hosting = CreationWait(partitions, wait_max_ms=60_000)
    hosting.on_metadata(MetadataDelta(EMPTY_IMAGE), image_at(9))
    await hosting.wait_for(is_at_7)


async def test_wait_is_bounded() -> None:
    await CreationWait(FakePartitions(), wait_max_ms=0).wait_for(is_at_7)

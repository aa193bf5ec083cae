"""Races between a copier that finishes and a broker that judges the copy abandoned: the order in the log decides."""

import asyncio
from dataclasses import replace

import pytest

from protocol.ids import BrokerId
from protocol.primitives import Uuid
from storage.tiered.catalog.segment_state import CopyWasFinished, check_update
from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentEpoch, SegmentState, SegmentUpdate
from tests.broker.runtime.remote_log.test_manager import a_while, staged
from tests.storage.tiered.catalog.test_metadata_records import SEGMENT
from tests.support.harnesses.remote_log_harness import Broker, Bucket


def deletion(segment: RemoteSegment) -> SegmentUpdate:
    """Return the event of another broker that judges a copy abandoned."""
    return SegmentUpdate(segment.id, SegmentState.DELETE_STARTED, 0, BrokerId(2), only_unfinished=True)


@staged
async def test_copier_copies_again_under_a_new_id_if_the_deletion_came_first() -> None:
    bucket = Bucket()
    broker = Broker(bucket, upload_s=lambda: 5.0).start()
    log = broker.lead(0).log
    broker.fill(1)
    await a_while(2)
    (first,) = bucket.segments(SegmentState.COPY_STARTED)
    bucket.metadata.publish(deletion(first), asyncio.get_running_loop().create_future())
    await a_while(5)
    assert log.highest_remote_offset == -1, "the local segment stays"
    await a_while(30)
    (second,) = bucket.segments(SegmentState.COPY_FINISHED)
    assert second.id != first.id
    assert log.highest_remote_offset == 9
    assert bucket.orphans() == set()
    await broker.stop()


@staged
async def test_deletion_after_the_end_of_the_copy_has_no_effect() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    broker.lead(0)
    broker.fill(1)
    await a_while(5)
    (copy,) = bucket.segments()
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bucket.metadata.publish(deletion(copy), done)
    assert isinstance(done.exception(), CopyWasFinished)
    assert bucket.ranges() == [(0, 9)]
    await broker.stop()


@staged
async def test_copy_does_not_lower_the_remote_end_that_others_have_raised() -> None:
    """Local retention may have deleted the segments up to that end while the upload was under way."""
    bucket = Bucket()
    broker = Broker(bucket, upload_s=lambda: 5.0).start()
    log = broker.lead(0).log
    broker.fill(3)
    await a_while(2)
    (own,) = bucket.segments(SegmentState.COPY_STARTED)
    for number in range(3):
        copy_of_former_leader(bucket, own, 10 * number)
    await a_while(2)
    ends: list[int] = []
    while len(bucket.segments(SegmentState.COPY_FINISHED)) < 4 or len(ends) < 50:
        await a_while(0.1)
        ends.append(log.highest_remote_offset)
    assert set(ends) == {29}
    await broker.stop()


def copy_of_former_leader(bucket: Bucket, like: RemoteSegment, start: int) -> None:
    """Publish a finished segment of ten records of another broker."""
    id = RemoteSegmentId(like.id.partition, Uuid(bytes(15) + bytes([start + 1])))
    epochs = (SegmentEpoch(like.leader_epochs[0].epoch, start),)
    segment = replace(
        like, id=id, start_offset=start, end_offset=start + 9, broker_id=BrokerId(2), leader_epochs=epochs
    )
    loop = asyncio.get_running_loop()
    bucket.metadata.publish(segment, loop.create_future())
    bucket.metadata.publish(SegmentUpdate(id, SegmentState.COPY_FINISHED, 0, BrokerId(2)), loop.create_future())


def test_expiration_of_a_finished_copy_is_no_race() -> None:
    expired = deletion(SEGMENT)._replace(only_unfinished=False)
    check_update(SegmentState.COPY_FINISHED, expired)
    check_update(SegmentState.COPY_STARTED, deletion(SEGMENT))
    check_update(SegmentState.DELETE_STARTED, deletion(SEGMENT))
    with pytest.raises(InvalidSegmentTransition):
        check_update(SegmentState.DELETE_STARTED, expired._replace(state=SegmentState.COPY_FINISHED))

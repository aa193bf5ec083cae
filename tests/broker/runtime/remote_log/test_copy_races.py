"""Races between a copier that finishes and a broker that judges the copy abandoned: the order in the log decides."""

import asyncio

import pytest

from protocol.ids import BrokerId
from storage.tiered.catalog.segment_state import CopyWasFinished, check_update
from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate
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


def test_expiration_of_a_finished_copy_is_no_race() -> None:
    expired = deletion(SEGMENT)._replace(only_unfinished=False)
    check_update(SegmentState.COPY_FINISHED, expired)
    check_update(SegmentState.COPY_STARTED, deletion(SEGMENT))
    check_update(SegmentState.DELETE_STARTED, deletion(SEGMENT))
    with pytest.raises(InvalidSegmentTransition):
        check_update(SegmentState.DELETE_STARTED, expired._replace(state=SegmentState.COPY_FINISHED))

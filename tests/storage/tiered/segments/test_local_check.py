"""Checks of local segments while they are copied."""

from random import Random

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.batch import patch
from protocol.records.builder import Record, build_batch
from storage.tiered.errors import CorruptLocalSegment
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentEpoch, TopicIdPartition
from storage.tiered.segments.local_check import WatchedFiles
from tests.support.fakes.memory_files import MemoryFileSystem

PARTITION = TopicIdPartition(Uuid(bytes(15) + b"\x01"), "t", 0)
LOG = "d/t-0/00000000000000000100.log"


def content(batches: int = 20, base: int = 100) -> bytes:
    data = b""
    for number in range(batches):
        batch = bytearray(build_batch([Record(5, b"k", b"v" * (number * 37 % 200))] * 2))
        patch(batch, 0, base + 2 * number, LeaderEpoch(0))
        data += batch
    return data


def segment_of(data: bytes, last: int = 139) -> RemoteSegment:
    return RemoteSegment(
        id=RemoteSegmentId(PARTITION, Uuid(bytes(16))),
        start_offset=100,
        end_offset=last,
        max_timestamp_ms=5,
        broker_id=BrokerId(1),
        event_timestamp_ms=5,
        size_bytes=len(data),
        leader_epochs=(SegmentEpoch(LeaderEpoch(0), 100),),
    )


def watched(data: bytes, *, segment: RemoteSegment | None = None) -> WatchedFiles:
    fs = MemoryFileSystem()
    fs.make_directory("d/t-0")
    file = fs.open(LOG)
    file.write(0, data)
    return WatchedFiles(fs, segment or segment_of(data), LOG)


def read(watch: WatchedFiles, size: int, piece: int, *, finishes: bool = False) -> None:
    file = watch.open_existing(LOG)
    for position in range(0, size, piece):
        file.read(position, min(piece, size - position))
    file.close()
    if finishes:
        watch.finish()


@pytest.mark.parametrize("piece", [1, 7, 61, 100, 1_000, 100_000])
def test_intact_segment_passes_in_pieces_of_any_size(piece: int) -> None:
    data = content()
    watch = watched(data)
    read(watch, len(data), piece)
    assert watch.bytes_read == len(data)
    watch.finish()


@pytest.mark.parametrize("piece", [61, 1_000, 100_000])
def test_any_flipped_bit_is_found(piece: int) -> None:
    """The leader epoch has no checksum, and neither have the low bits of a base offset with room around it."""
    random, data = Random(piece), content()
    for _ in range(100):
        rotten, at = bytearray(data), random.randrange(len(data))
        starts = [position for position in positions(data) if position <= at]
        if 12 <= at - starts[-1] < 16:
            continue
        rotten[at] ^= 1 << random.randrange(8)
        watch = watched(bytes(rotten), segment=segment_of(data))
        with pytest.raises(CorruptLocalSegment):
            read(watch, len(rotten), piece, finishes=True)


def positions(data: bytes) -> list[int]:
    """Return the positions of the batches."""
    found, at = [], 0
    while at < len(data):
        found.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found


def test_bytes_that_were_not_read_are_checked_at_the_end() -> None:
    """A plug-in may read the file in any order, or by other means."""
    data = content()
    watched(data).finish()
    rotten = bytearray(data)
    rotten[-1] ^= 1
    backwards = watched(bytes(rotten))
    backwards.open_existing(LOG).read(len(data) - 100, 100)
    with pytest.raises(CorruptLocalSegment, match="checksum"):
        backwards.finish()


def test_fault_outlives_a_plugin_that_swallows_it() -> None:
    data = bytearray(content())
    data[70] ^= 1
    watch = watched(bytes(data))
    with pytest.raises(CorruptLocalSegment):
        read(watch, len(data), 100_000)
    with pytest.raises(CorruptLocalSegment):
        watch.finish()


def test_torn_end_is_found() -> None:
    data = content()
    for cut in (1, 30, 80):
        watch = watched(data[:-cut])
        with pytest.raises(CorruptLocalSegment):
            read(watch, len(data) - cut, 100_000, finishes=True)

"""Checks of local segments while they are copied."""

from dataclasses import replace
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


def watched(data: bytes, *, segment: RemoteSegment | None = None, epochs_known_from: int = 100) -> WatchedFiles:
    fs = MemoryFileSystem()
    fs.make_directory("d/t-0")
    file = fs.open(LOG)
    file.write(0, data)
    return WatchedFiles(fs, segment or segment_of(data), LOG, epochs_known_from)


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
    """The leader epoch is not part of the checksum, but the log knows it."""
    random, data = Random(piece), content()
    for _ in range(100):
        rotten, at = bytearray(data), random.randrange(len(data))
        rotten[at] ^= 1 << random.randrange(8)
        watch = watched(bytes(rotten), segment=segment_of(data))
        with pytest.raises(CorruptLocalSegment):
            read(watch, len(rotten), piece, finishes=True)


def positions(data: bytes | bytearray) -> list[int]:
    """Return the positions of the batches."""
    found, at = [], 0
    while at < len(data):
        found.append(at)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return found


def with_epochs(*epochs: int) -> bytes:
    """Return batches of two records, from offset 100 on, with these leader epochs."""
    data = bytearray(content(len(epochs)))
    for number, (position, epoch) in enumerate(zip(positions(data), epochs, strict=True)):
        patch(data, position, 100 + 2 * number, LeaderEpoch(epoch))
    return bytes(data)


def check_epochs(data: bytes, *epochs: tuple[int, int], epochs_known_from: int = 100) -> None:
    entries = tuple(SegmentEpoch(LeaderEpoch(epoch), start) for epoch, start in epochs)
    segment = replace(segment_of(data), leader_epochs=entries)
    read(watched(data, segment=segment, epochs_known_from=epochs_known_from), len(data), 100, finishes=True)


def test_epochs_of_the_log_pass() -> None:
    check_epochs(with_epochs(2, 2, 5, 5, 7), (2, 100), (5, 104), (6, 108), (7, 108))


@pytest.mark.parametrize("epochs", [(3, 2, 5, 7), (2, 2, 4, 7), (2, 2, 5, 5), (2, 5, 5, 7), (2, 2, 5, 8)])
def test_epoch_that_the_log_does_not_have_there_is_found(epochs: tuple[int, ...]) -> None:
    with pytest.raises(CorruptLocalSegment, match="leader epoch"):
        check_epochs(with_epochs(*epochs), (2, 100), (5, 104), (7, 106))


def test_deleted_records_and_those_of_old_clients_may_have_other_epochs() -> None:
    check_epochs(with_epochs(9, 1, 5, -1), (5, 100), epochs_known_from=104)


def test_epoch_of_a_batch_with_deleted_records_is_compared() -> None:
    """The log start offset lies within the first batch, whose last record the log still has."""
    check_epochs(with_epochs(5, 5), (5, 100), epochs_known_from=101)
    with pytest.raises(CorruptLocalSegment, match="leader epoch"):
        check_epochs(with_epochs(4, 5), (5, 100), epochs_known_from=101)


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

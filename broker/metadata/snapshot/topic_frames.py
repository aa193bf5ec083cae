"""Frames of topics and partitions, written and read without intermediate messages.

Nearly all metadata of a large cluster is in these two records, and nearly all partitions have the same form: replicas
with directories, an in-sync set, no reassignment, no ELR. These are packed and unpacked with one call; other forms go
through `records.py`. The bytes are identical either way, which tests verify.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.partition import (
    SHARED_MAX,
    LeaderRecoveryState,
    PartitionRegistration,
    shared_directories,
    shared_ids,
)
from broker.metadata.image.records import FRAME_VERSION, encode_record
from broker.metadata.image.topic_image import TopicsImage
from protocol.messages.metadata_records import PartitionRecord, TopicRecord
from protocol.primitives import Uuid, encode_uvarint

PARTITION_KEY: Final = PartitionRecord.API_KEY
FRAMES_PER_LIST: Final = 256
"""The longest list of frames that a writer receives at once, a third of a millisecond of work."""
_TOPIC_HEAD: Final = bytes((FRAME_VERSION, TopicRecord.API_KEY, 0))
_NO_TAGS: Final = b"\0"
_HEADS: Final = frozenset(bytes((FRAME_VERSION, PARTITION_KEY, version)) for version in (1, 2))  # 0: no directories
# The count of an array with fewer elements takes one byte, as the packed forms require.
_MAX_COUNT: Final = 126
_COUNT_POSITION: Final = 23  # of the replica count
_FIXED_SIZE: Final = 41  # bytes of a frame without replicas
_EMPTY: Final = 1  # the count of an empty array
_PACKED_IDS: Final = tuple(Struct(f">{count}i").pack for count in range(_MAX_COUNT + 1))
_ID_LISTS: Final = tuple(Struct(f">{count}i").unpack for count in range(_MAX_COUNT + 1))
_UUID_LISTS: Final = tuple(Struct("16s" * count).unpack for count in range(_MAX_COUNT + 1))
_SHAPES: Final = 1_024  # more combinations of sizes than occur in a cluster

_new = tuple.__new__  # a named tuple's generated constructor costs twice as much


def topic_frames(topics: TopicsImage, ids: Iterable[Uuid], version: MetadataVersion) -> Iterator[list[bytes]]:
    """Yield each topic's frame and those of its partitions by ascending index, in lists up to `FRAMES_PER_LIST`."""
    writer = _PartitionFrameWriter(version)
    frames: list[bytes] = []
    for topic_id in ids:
        topic = topics.by_id(topic_id)
        assert topic is not None
        if len(frames) == FRAMES_PER_LIST:
            yield frames
            frames = []
        frames.append(_topic_frame(topic.name, topic_id))
        partitions, begin = topic.in_order(), 0
        while begin < len(partitions):
            if len(frames) == FRAMES_PER_LIST:
                yield frames
                frames = []
            end = begin + FRAMES_PER_LIST - len(frames)
            writer.append(frames, topic_id, partitions[begin:end])
            begin = end
    if frames:
        yield frames


def _topic_frame(name: str, topic_id: Uuid) -> bytes:
    """Return the frame of a TopicRecord: a compact string, an id, no tagged fields."""
    encoded = name.encode()
    return b"".join((_TOPIC_HEAD, encode_uvarint(len(encoded) + 1), encoded, topic_id, _NO_TAGS))


class _PartitionFrameWriter:
    """Appends partition frames. Keeps how to pack the shape of the last one: most partitions of a cluster share it."""

    def __init__(self, version: MetadataVersion) -> None:
        self._version = version
        self._record_version = version.partition_record_version
        self._head = bytes((FRAME_VERSION, PARTITION_KEY, self._record_version))

    def append(
        self, frames: list[bytes], topic_id: Uuid, partitions: Sequence[tuple[int, PartitionRegistration]]
    ) -> None:
        """Append the frames of a topic's (index, registration) pairs."""
        head, has_directories = self._head, self._record_version > 0
        count, in_sync, pack = 0, 0, _packer(0, 0)
        for index, registration in partitions:
            (
                replicas,
                isr,
                leader,
                leader_epoch,
                partition_epoch,
                directories,
                leaving,
                adding,
                elr,
                last_elr,
                recovering,
            ) = registration
            if len(replicas) != count or len(isr) != in_sync:
                count, in_sync = len(replicas), len(isr)
                pack = _packer(count, in_sync)
            is_usual = not (leaving or adding or elr or last_elr or recovering) and len(directories) == count
            if pack is None or not is_usual or not has_directories:
                frame = encode_record(*registration.to_record(topic_id, index, self._version))
            else:
                raw_replicas = _PACKED_IDS[count](*replicas)
                raw_isr = raw_replicas if isr == replicas else _PACKED_IDS[in_sync](*isr)
                frame = pack(
                    head, index, topic_id, count + 1, raw_replicas, in_sync + 1, raw_isr,
                    _EMPTY, _EMPTY, leader, leader_epoch, partition_epoch, count + 1, b"".join(directories),
                )  # fmt: skip
            frames.append(frame)


@lru_cache(maxsize=_SHAPES)
def _packer(replicas: int, in_sync: int) -> Callable[..., bytes] | None:
    if max(replicas, in_sync) > _MAX_COUNT:
        return None
    return Struct(f">3si16sB{4 * replicas}sB{4 * in_sync}sBBiiiB{16 * replicas}sx").pack


class PartitionFrameReader:
    """Reads partition frames; equal replica lists, in-sync sets and directories become the same objects.

    Use one instance per load, because it keeps the shared objects.
    """

    def __init__(self) -> None:
        self._ids: dict[bytes, tuple[int, ...]] = {}
        self._directory_lists: dict[bytes, tuple[Uuid, ...]] = {}
        self._directories: dict[bytes, Uuid] = {}

    def read(self, frame: bytes) -> tuple[Uuid, int, PartitionRegistration] | None:
        """Return (topic id, index, registration) of a PartitionRecord's frame; None for an unusual form."""
        if len(frame) <= _COUNT_POSITION:
            return None
        shape = _shape(len(frame), frame[_COUNT_POSITION])
        if shape is None:
            return None
        unpack, in_sync = shape
        (
            head, index, topic_id, count, replicas, isr_count, isr,
            leaving, adding, leader, leader_epoch, partition_epoch, directory_count, directories, tags,
        ) = unpack(frame)  # fmt: skip
        if (
            isr_count != in_sync
            or directory_count != count
            or leaving != _EMPTY
            or adding != _EMPTY
            or tags
            or head not in _HEADS
        ):
            return None
        registration = _new(
            PartitionRegistration,
            (
                self._ids.get(replicas) or self._new_ids(replicas),
                self._ids.get(isr) or self._new_ids(isr),
                leader,
                leader_epoch,
                partition_epoch,
                self._directory_lists.get(directories) or self._new_directories(directories),
                (),
                (),
                (),
                (),
                LeaderRecoveryState.RECOVERED,
            ),
        )
        return topic_id, index, registration

    def _new_ids(self, raw: bytes) -> tuple[int, ...]:
        if len(self._ids) >= SHARED_MAX:
            self._ids.clear()
        ids = self._ids[raw] = shared_ids(_ID_LISTS[len(raw) // 4](raw))
        return ids

    def _new_directories(self, raw: bytes) -> tuple[Uuid, ...]:
        if len(self._directory_lists) >= SHARED_MAX:
            self._directory_lists.clear()
        known = self._directories
        each = [known.get(id) or known.setdefault(id, id) for id in _UUID_LISTS[len(raw) // 16](raw)]
        directories = self._directory_lists[raw] = shared_directories(tuple(each))
        return directories


def partition_topic_id(frame: bytes) -> Uuid | None:
    """Return the topic id of a valid PartitionRecord frame; None for an unusual form, as `PartitionFrameReader.read`.

    Checks the form without unpacking the registration.
    """
    if len(frame) <= _COUNT_POSITION:
        return None
    count = frame[_COUNT_POSITION]
    skeleton = _skeleton(len(frame), count)
    if skeleton is None:
        return None
    unpack, in_sync = skeleton
    head, topic_id, isr_count, leaving, adding, directory_count, tags = unpack(frame)
    is_usual = isr_count == in_sync and directory_count == count and leaving == adding == _EMPTY and not tags
    return topic_id if is_usual and head in _HEADS else None


@lru_cache(maxsize=_SHAPES)
def _skeleton(size: int, count: int) -> tuple[Callable[[bytes], tuple[Any, ...]], int] | None:
    """Return what `_shape` returns, unpacking only the topic id and the fields that define the usual form."""
    shape = _shape(size, count)
    if shape is None:
        return None
    replicas, in_sync = count - 1, shape[1] - 1
    return Struct(f">3s4x16sx{4 * replicas}xB{4 * in_sync}xBB12xB{16 * replicas}xB").unpack, shape[1]


@lru_cache(maxsize=_SHAPES)
def _shape(size: int, count: int) -> tuple[Callable[[bytes], tuple[Any, ...]], int] | None:
    """Return how to unpack a frame of the usual form, and the count of its in-sync set plus one; None for other forms.

    Frame size and replica count determine both.
    """
    replicas = count - 1
    in_sync, left = divmod(size - _FIXED_SIZE - 20 * replicas, 4)
    if left or not 0 <= replicas <= _MAX_COUNT or not 0 <= in_sync <= _MAX_COUNT:
        return None
    return Struct(f">3si16sB{4 * replicas}sB{4 * in_sync}sBBiiiB{16 * replicas}sB").unpack, in_sync + 1

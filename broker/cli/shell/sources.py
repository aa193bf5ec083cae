"""Sources of the metadata shell: a snapshot file, or `__cluster_metadata` of a live cluster."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.cli.shared.failure import CommandFailed
from broker.client import Client, Connection, raise_for
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.loader import MetadataLoader, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metadata.image.records import InvalidMetadata, decode_record
from broker.metadata.snapshot.codec import InvalidSnapshot, SnapshotReading
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, SnapshotId
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
)
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, crc_is_valid, iter_headers
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records

TOPIC: Final = "__cluster_metadata"
PAGE_BYTES: Final = 1024 * 1024
FETCH_BYTES: Final = 8 * 1024 * 1024
NO_SESSION: Final = -1
LAST_VERSION_WITH_NAMES: Final = 12

_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

ReadPage = Callable[[int], Buffer]
"""Function that returns the bytes of a snapshot from a position; empty at the end."""


def load_snapshot(read: ReadPage, end_offset: int | None) -> MetadataImage:
    """Load the image of a snapshot. Without an end offset, the record count is used. Raises InvalidSnapshot."""
    reading, delta, count, position = SnapshotReading(), MetadataDelta(EMPTY_IMAGE), 0, 0
    while piece := read(position):
        for frames in reading.feed(piece):
            try:
                delta.replay_all(decode_record(frame) for frame in frames)
            except DecodeError as error:
                raise InvalidSnapshot(f"a record does not parse: {error}") from error
            count += len(frames)
        position += len(piece)
    reading.end()
    last_offset = (count if end_offset is None else end_offset) - 1
    return delta.apply(Provenance(last_offset, reading.epoch, reading.last_timestamp_ms))


def load_file(path: str) -> MetadataImage:
    """Load a snapshot file, whose name contains its end offset. Raises CommandFailed."""
    name = _SNAPSHOT_NAME.match(Path(path).name)
    try:
        with open(path, "rb") as file:
            return load_snapshot(lambda _position: file.read(PAGE_BYTES), None if name is None else int(name[1]))
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}.") from error
    except (InvalidSnapshot, InvalidMetadata) as error:
        raise CommandFailed(f"{path} is not a complete snapshot: {error}.") from error


class LiveMetadata:
    """The metadata of a running cluster. `catch_up` reads records committed since the last call.

    Fetches as a consumer does. If the log starts after the fetch position, the response contains a snapshot id; the
    snapshot is then fetched from the same broker, page by page.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loader = MetadataLoader(supported=None)
        self._next_offset = 0

    @property
    def image(self) -> MetadataImage:
        """Image after the last `catch_up`."""
        return self._loader.image

    def catch_up(self) -> None:
        """Read up to the high watermark. Raises KafkaError or ClientError."""
        while not self._client.retrying(self._step):
            pass

    def _step(self) -> bool:
        """Fetch records or one snapshot; return whether the high watermark is reached."""
        broker = self._serving_broker()
        found = self._fetch(broker)
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and found.snapshot_id.end_offset > 0:
            self._load_snapshot(broker, found.snapshot_id)
            return False
        raise_for(found.error_code, TOPIC)
        self._load(found.records or b"")
        return self._next_offset >= found.high_watermark

    def _serving_broker(self) -> Connection:
        topic = self._client.leaders([TOPIC])[TOPIC]
        return self._client.node(topic.partitions[0].leader_id)

    def _fetch(self, broker: Connection) -> PartitionData:
        partition = FetchPartition(0, fetch_offset=self._next_offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_bytes=FETCH_BYTES, session_epoch=NO_SESSION, topics=[FetchTopic(TOPIC, partitions=[partition])]
        )
        answer = broker.call(request, FetchResponse, highest=LAST_VERSION_WITH_NAMES)
        raise_for(answer.error_code, TOPIC)
        if not answer.responses or not answer.responses[0].partitions:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response contains no partition of {TOPIC}.")
        return answer.responses[0].partitions[0]

    def _load_snapshot(self, broker: Connection, snapshot_id: SnapshotId) -> None:
        def page(position: int) -> Buffer:
            return self._page(broker, snapshot_id, position)

        try:
            image = load_snapshot(page, snapshot_id.end_offset)
        except (InvalidSnapshot, InvalidMetadata) as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the snapshot of {TOPIC}: {error}.") from error
        self._loader.install(image)
        self._next_offset = snapshot_id.end_offset

    def _page(self, broker: Connection, snapshot_id: SnapshotId, position: int) -> Buffer:
        """Fetch the bytes of a snapshot from a position; empty past the end."""
        wanted = FetchSnapshotRequestSnapshotId(snapshot_id.end_offset, snapshot_id.epoch)
        partition = FetchSnapshotRequestPartitionSnapshot(0, -1, wanted, position)
        topic = FetchSnapshotRequestTopicSnapshot(TOPIC, [partition])
        request = FetchSnapshotRequest(max_bytes=PAGE_BYTES, topics=[topic])
        answer = broker.call(request, FetchSnapshotResponse)
        raise_for(answer.error_code, TOPIC)
        found = answer.topics[0].partitions[0]
        if found.error_code == ErrorCode.POSITION_OUT_OF_RANGE and position > 0:
            return b""
        raise_for(found.error_code, f"the snapshot of {TOPIC}")
        return found.unaligned_records or b""

    def _load(self, data: Buffer) -> None:
        try:
            batches = [_decoded(data, position, header) for position, header in iter_headers(data)]
            fresh = [batch for batch in batches if batch.base_offset >= self._next_offset]
            if fresh:
                self._loader.load(fresh)
                self._next_offset = fresh[-1].last_offset + 1
        except (MalformedBatch, MalformedRecords, DecodeError, InvalidMetadata) as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{TOPIC}: {error}.") from error


def _decoded(data: Buffer, position: int, header: BatchHeader) -> RecordBatch:
    if not crc_is_valid(data, position, header.size):
        raise MalformedBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
    records = [] if header.is_control else [decode_record(each.value or b"") for each in iter_records(data, position)]
    return RecordBatch(header.base_offset, header.last_offset, header.leader_epoch, header.max_timestamp, records)

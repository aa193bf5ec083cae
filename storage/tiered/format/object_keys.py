"""Keys of a segment's objects, as Aiven's plugin names them.

`<prefix>TOPIC-TOPICID/PARTITION/%020d-SEGMENTID.{log,indexes,rsm-manifest}`, with the prefix as configured, without an
added slash. Topic names and ids (22 characters) may contain dashes, so a key is parsed from its end.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from protocol.primitives import Uuid, uuid_from_text, uuid_to_text
from storage.tiered.format.custom_metadata import CustomField, decode_custom_metadata
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, TopicIdPartition

_ID = "[A-Za-z0-9_-]{22}"
_PARTITION = re.compile(rf"(?P<topic>[^/]+)-(?P<topic_id>{_ID})/(?P<partition>0|[1-9][0-9]{{0,9}})/")
_SEGMENT = re.compile(rf"(?P<start>[0-9]{{20}})-(?P<id>{_ID})\.(?P<suffix>log|indexes|rsm-manifest)")
_MASK = "<prefix>/"


class ObjectSuffix(Enum):
    LOG = "log"
    INDEXES = "indexes"
    MANIFEST = "rsm-manifest"


class ParsedKey(NamedTuple):
    """Parts of the key of a segment's object."""

    id: RemoteSegmentId
    start_offset: int
    suffix: ObjectSuffix


class ObjectKeys:
    """Keys under one prefix. `mask_prefix` hides the prefix in the result of `shown`."""

    def __init__(self, prefix: str, *, mask_prefix: bool = False) -> None:
        self.prefix = prefix
        self._mask_prefix = mask_prefix

    def partition(self, partition: TopicIdPartition) -> str:
        """Return the common prefix of all objects of a partition, with a trailing slash."""
        return self.prefix + _partition_path(partition)

    def key(self, segment: RemoteSegment, suffix: ObjectSuffix) -> str:
        """Return the key of an object. Custom metadata take precedence over the configured prefix, which may have
        changed.

        Raises ValueError for invalid custom metadata.
        """
        fields: Mapping[CustomField, int | str] = {}
        if segment.custom_metadata is not None:
            fields = decode_custom_metadata(segment.custom_metadata)
        prefix = fields.get(CustomField.OBJECT_PREFIX, self.prefix)
        path = fields.get(CustomField.OBJECT_KEY, segment_path(segment))
        return f"{prefix}{path}.{suffix.value}"

    def parse(self, key: str) -> ParsedKey | None:
        """Parse the key of a segment's object under this prefix; None for any other key."""
        if not key.startswith(self.prefix):
            return None
        partition, position = _parse_partition(key, len(self.prefix))
        match = _SEGMENT.fullmatch(key, position)
        if partition is None or match is None or (identity := _parse_id(match["id"])) is None:
            return None
        return ParsedKey(RemoteSegmentId(partition, identity), int(match["start"]), ObjectSuffix(match["suffix"]))

    def parse_partition(self, key: str) -> TopicIdPartition | None:
        """Return the partition whose directory contains the key; None for any other key."""
        return _parse_partition(key, len(self.prefix))[0] if key.startswith(self.prefix) else None

    def shown(self, text: str) -> str:
        """Return `text`, which may contain keys, for a message or a log."""
        return text.replace(self.prefix, _MASK) if self._mask_prefix and self.prefix else text


def segment_path(segment: RemoteSegment) -> str:
    """Return the key of a segment's objects without prefix and suffix."""
    name = f"{segment.start_offset:020d}-{uuid_to_text(segment.id.id)}"
    return _partition_path(segment.id.partition) + name


def _partition_path(partition: TopicIdPartition) -> str:
    return f"{partition.topic}-{uuid_to_text(partition.topic_id)}/{partition.partition}/"


def _parse_partition(key: str, position: int) -> tuple[TopicIdPartition | None, int]:
    """Return the partition and the position after it."""
    match = _PARTITION.match(key, position)
    if match is None or (topic_id := _parse_id(match["topic_id"])) is None:
        return None, position
    return TopicIdPartition(topic_id, match["topic"], int(match["partition"])), match.end()


def _parse_id(text: str) -> Uuid | None:
    """Decode an id; None for the few texts of 22 characters that no id is encoded as."""
    uuid = uuid_from_text(text)
    return uuid if uuid_to_text(uuid) == text else None

"""The names of a segment's objects (those Aiven's plugin gives them), to and fro.

`<prefix>TOPIC-TOPICID/PARTITION/%020d-SEGMENTID.{log,indexes,rsm-manifest}`: the prefix as it is configured, without a
slash of its own. Names of topics may contain dashes and so may ids, which have 22 characters, so that what a name
means is read from its end.
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
    """What the name of a segment's object says."""

    id: RemoteSegmentId
    start_offset: int
    suffix: ObjectSuffix


class ObjectKeys:
    """Keys under one prefix. `mask_prefix` keeps the prefix out of what `shown` gives."""

    def __init__(self, prefix: str, *, mask_prefix: bool = False) -> None:
        self.prefix = prefix
        self._mask_prefix = mask_prefix

    def partition(self, partition: TopicIdPartition) -> str:
        """What the keys of all objects of a partition begin with, and no others; it ends in a slash."""
        return self.prefix + _partition_path(partition)

    def key(self, segment: RemoteSegment, suffix: ObjectSuffix) -> str:
        """Custom metadata, where they say so, outrank the prefix configured now: it may have been changed since.

        Raises ValueError for custom metadata that are not ours.
        """
        fields: Mapping[CustomField, int | str] = {}
        if segment.custom_metadata is not None:
            fields = decode_custom_metadata(segment.custom_metadata)
        prefix = fields.get(CustomField.OBJECT_PREFIX, self.prefix)
        path = fields.get(CustomField.OBJECT_KEY, segment_path(segment))
        return f"{prefix}{path}.{suffix.value}"

    def parse(self, key: str) -> ParsedKey | None:
        """None for the key of anything else than a segment's object under this prefix."""
        if not key.startswith(self.prefix):
            return None
        partition, position = _parse_partition(key, len(self.prefix))
        match = _SEGMENT.fullmatch(key, position)
        if partition is None or match is None or (identity := _parse_id(match["id"])) is None:
            return None
        return ParsedKey(RemoteSegmentId(partition, identity), int(match["start"]), ObjectSuffix(match["suffix"]))

    def parse_partition(self, key: str) -> TopicIdPartition | None:
        """The partition whose objects `key` is among; None for a key that is in no partition's place."""
        return _parse_partition(key, len(self.prefix))[0] if key.startswith(self.prefix) else None

    def shown(self, text: str) -> str:
        """`text`, which may contain keys, for a message or a log."""
        return text.replace(self.prefix, _MASK) if self._mask_prefix and self.prefix else text


def segment_path(segment: RemoteSegment) -> str:
    """The key of a segment's objects without prefix and suffix."""
    name = f"{segment.start_offset:020d}-{uuid_to_text(segment.id.id)}"
    return _partition_path(segment.id.partition) + name


def _partition_path(partition: TopicIdPartition) -> str:
    return f"{partition.topic}-{uuid_to_text(partition.topic_id)}/{partition.partition}/"


def _parse_partition(key: str, position: int) -> tuple[TopicIdPartition | None, int]:
    """The partition, and the position after it."""
    match = _PARTITION.match(key, position)
    if match is None or (topic_id := _parse_id(match["topic_id"])) is None:
        return None, position
    return TopicIdPartition(topic_id, match["topic"], int(match["partition"])), match.end()


def _parse_id(text: str) -> Uuid | None:
    """None for the few texts of 22 characters that decode, but are not what is written for any id."""
    uuid = uuid_from_text(text)
    return uuid if uuid_to_text(uuid) == text else None

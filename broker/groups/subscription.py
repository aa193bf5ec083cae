"""The topics that a consumer subscribes to, from its opaque JoinGroup metadata (protocol type "consumer").

The client owns the layout: int16 version, then from version 0 on a list of topic names, then additions of newer
versions. All versions share this prefix, so only the prefix is read, and any non-negative version is accepted.
"""

from collections.abc import Iterable

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a member's metadata; None when it does not follow the consumer protocol."""
    if len(metadata) < 6 or metadata[0] & 0x80:
        return None
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    if count < 0 or count * 2 > len(metadata):
        return None
    topics: set[str] = set()
    position = 6
    for _ in range(count):
        start = position + 2
        length = int.from_bytes(metadata[position:start], "big", signed=True)
        position = start + length
        if length < 0 or position > len(metadata):
            return None
        try:
            topics.add(metadata[start:position].decode())
        except UnicodeDecodeError:
            return None
    return frozenset(topics)


def all_subscribed_topics(members_metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics that any member subscribes to; None if one member's metadata is unreadable."""
    topics: frozenset[str] = frozenset()
    for metadata in members_metadata:
        member_topics = subscribed_topics(metadata)
        if member_topics is None:
            return None
        topics |= member_topics
    return topics

"""The topics of the cluster, as consumer groups see them."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from protocol.primitives import Uuid


class SubscribableTopic(NamedTuple):
    """A topic: its id, and the racks of each partition's replicas, by index."""

    name: str
    topic_id: Uuid
    racks: Sequence[frozenset[str]]

    @property
    def partition_count(self) -> int:
        return len(self.racks)


class TopicsView(Protocol):
    """The topics at one metadata offset."""

    @property
    def offset(self) -> int: ...

    def describe(self, name: str) -> SubscribableTopic | None:
        """Return the topic; None for a missing one."""

    def name_of(self, topic_id: Uuid) -> str | None:
        """Return the name of the topic with that id."""


class NoTopics:
    """A cluster without topics."""

    offset: Final = -1

    def describe(self, name: str) -> SubscribableTopic | None:
        return None

    def name_of(self, topic_id: Uuid) -> str | None:
        return None


def metadata_hash(topics: TopicsView, names: Iterable[str]) -> int:
    """Return a hash over ids, partitions and racks of the topics, as a signed 64-bit number; 0 without topics.

    A new target assignment is due when the hash changes (KIP-1101). The function is this coordinator's own: a group
    that Kafka has written gets one more epoch.
    """
    digest = blake2b(digest_size=8)
    is_empty = True
    for name in sorted(names):
        topic = topics.describe(name)
        if topic is not None:
            is_empty = False
            texts = {each: ",".join(sorted(each)) for each in set(topic.racks)}  # few, of many partitions
            is_uniform = len(texts) == 1
            racks = ";".join(
                [*texts.values()] * len(topic.racks) if is_uniform else [texts[each] for each in topic.racks]
            )
            digest.update(f"{len(name)} {name} {topic.topic_id.hex()} {topic.partition_count} {racks}\n".encode())
    return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True)

"""The name of a share partition: a topic's partition, as one share group reads it (KIP-932)."""

from typing import Final, NamedTuple

from protocol.primitives import Uuid, uuid_from_text, uuid_to_text

_SEPARATOR: Final = ":"
_PARTS: Final = 3


class SharePartitionKey(NamedTuple):
    """A share partition. Its state is kept by the share coordinator that `coordinator_key` hashes to."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key in FindCoordinator: "group:topicId:partition"."""
        return _SEPARATOR.join((self.group_id, uuid_to_text(self.topic_id), str(self.partition)))


def parse_coordinator_key(text: str) -> SharePartitionKey:
    """Return the share partition of a FindCoordinator key. Raise ValueError unless it has three valid parts."""
    parts = text.split(_SEPARATOR)
    if len(parts) != _PARTS or not parts[0].strip():
        raise ValueError(f'"{text}" is not a key of the form group:topicId:partition')
    group_id, topic_id, partition = parts
    return SharePartitionKey(group_id.strip(), uuid_from_text(topic_id), int(partition))

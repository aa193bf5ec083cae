"""The map from key to newest offset with which compaction decides what is outdated: bounded by memory, not by keys.

Keys up to 32 bytes stand for themselves, longer ones for a 33-byte digest, so that two keys are never taken for one
and an entry has a bounded size.
"""

import hashlib

ENTRY_BYTES = 200
"""What an entry costs at worst: the key object (98), the offset object (32), and its share of a dict that is being
enlarged.
"""
_WHOLE_KEY_BYTES = 32
_DIGEST_BYTES = _WHOLE_KEY_BYTES + 1


class OffsetMap:
    """Takes keys until ``capacity`` of them are in. ``latest_offset`` is how far the log has been mapped, -1 at
    first.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = max(1, capacity)
        self.latest_offset = -1
        self._offsets: dict[bytes, int] = {}

    @classmethod
    def within(cls, buffer_bytes: int, load_factor: float = 1.0) -> "OffsetMap":
        """A map that takes about ``load_factor`` of ``buffer_bytes``, and one key at least."""
        return cls(int(buffer_bytes * load_factor) // ENTRY_BYTES)

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Notes the newest offset of ``key``; False, and nothing noted, if that took another entry than there are."""
        identity = key if len(key) <= _WHOLE_KEY_BYTES else _digest(key)
        offsets = self._offsets
        if len(offsets) >= self.capacity and identity not in offsets:
            return False
        offsets[identity] = offset
        self.latest_offset = offset
        return True

    def get(self, key: bytes) -> int:
        """The newest offset of ``key``, or -1."""
        return self._offsets.get(key if len(key) <= _WHOLE_KEY_BYTES else _digest(key), -1)


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()

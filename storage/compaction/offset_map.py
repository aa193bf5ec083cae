"""The map from key to newest offset that shows compaction which records are outdated; bounded by memory, not by keys.

Keys up to 32 bytes are stored as they are, longer ones as a 33-byte digest: two keys never collide, and the size of an
entry is bounded.
"""

import hashlib

ENTRY_BYTES = 200
"""Maximum size of an entry: the key object (98), the offset object (32), and its share of a dict that is being
resized.
"""
_WHOLE_KEY_BYTES = 32
_DIGEST_BYTES = _WHOLE_KEY_BYTES + 1


class OffsetMap:
    """A map of at most ``capacity`` keys. ``latest_offset`` is the last mapped offset, -1 at first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = max(1, capacity)
        self.latest_offset = -1
        self._offsets: dict[bytes, int] = {}

    @classmethod
    def within(cls, buffer_bytes: int, load_factor: float = 1.0) -> "OffsetMap":
        """Return a map that takes about ``load_factor`` of ``buffer_bytes``, and at least one key."""
        return cls(int(buffer_bytes * load_factor) // ENTRY_BYTES)

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Map ``key`` to its newest offset; return False and change nothing if a new key exceeds the capacity."""
        identity = key if len(key) <= _WHOLE_KEY_BYTES else _digest(key)
        offsets = self._offsets
        if len(offsets) >= self.capacity and identity not in offsets:
            return False
        offsets[identity] = offset
        self.latest_offset = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the newest offset of ``key``, or -1."""
        return self._offsets.get(key if len(key) <= _WHOLE_KEY_BYTES else _digest(key), -1)


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()

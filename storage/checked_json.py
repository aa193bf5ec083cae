"""JSON objects with a checksum as their last field, which readers of the plain format ignore.

A rotten bit could otherwise turn a number into another valid one. An object without the field, of an earlier release or
of another program, is accepted.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from protocol.records.compiled import crc32c

CHECKSUM: Final = "ottlaCrc32c"


def encode_checked(content: Mapping[str, object]) -> bytes:
    """Return the object on one line, with the CRC-32C of the other fields as JSON in their order."""
    return _json({**content, CHECKSUM: crc32c(_json(content))})


def take_checksum(content: dict[str, Any]) -> bool:
    """Remove the checksum from a decoded object; return whether it is right or absent."""
    expected = content.pop(CHECKSUM, None)
    return expected is None or bool(expected == crc32c(_json(content)))


def _json(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()

"""AES-256-GCM encryption of the chunks and indexes of one segment.

An encrypted chunk is a random IV of 12 bytes, the ciphertext, and a tag of 16 bytes. The tag also authenticates the
additional data of the segment, 32 random bytes in its manifest, so chunks of two segments cannot be exchanged even if
their keys were equal.
"""

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from protocol.primitives import Buffer
from storage.tiered.errors import CorruptRemoteData

KEY_BYTES = 32
AAD_BYTES = 32
IV_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = IV_BYTES + TAG_BYTES


class SegmentCipher:
    """Implements ChunkCipher."""

    overhead_bytes = OVERHEAD_BYTES

    def __init__(self, data_key: bytes, aad: bytes) -> None:
        self._aead = AESGCM(data_key)
        self._aad = aad

    def seal(self, chunk: Buffer) -> Buffer:
        sealed = bytearray(len(chunk) + OVERHEAD_BYTES)
        sealed[:IV_BYTES] = iv = secrets.token_bytes(IV_BYTES)
        self._aead.encrypt_into(iv, chunk, self._aad, memoryview(sealed)[IV_BYTES:])
        return sealed

    def open(self, sealed: Buffer) -> Buffer:
        if len(sealed) < OVERHEAD_BYTES:
            raise CorruptRemoteData(f"an encrypted chunk of {len(sealed)} bytes is too short")
        view = memoryview(sealed)
        chunk = bytearray(len(sealed) - OVERHEAD_BYTES)
        try:
            self._aead.decrypt_into(view[:IV_BYTES], view[IV_BYTES:], self._aad, chunk)
        except InvalidTag as error:
            raise CorruptRemoteData("an encrypted chunk was modified or encrypted with another key") from error
        return chunk

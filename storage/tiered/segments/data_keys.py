"""Data keys of encrypted segments: one random key per segment, encrypted for a key pair of the operator.

New data keys are encrypted for the active pair; other pairs decrypt older segments. Keys are rotated by adding a pair
and activating it. An encrypted key names its pair: `<pair id>:<base64>`.
"""

import base64
import secrets
from collections.abc import Mapping

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from protocol.lazy_dataclass import lazy_dataclass
from storage.files import FileSystem, read_file
from storage.tiered.errors import CorruptRemoteData, RemoteStorageError
from storage.tiered.format.manifest import SegmentEncryption
from storage.tiered.format.oaep import OaepError, decrypt, encrypt
from storage.tiered.format.segment_cipher import AAD_BYTES, KEY_BYTES, SegmentCipher
from storage.tiered.segments.writer import NewKey
from storage.tiered.settings import KeyPairFiles

_MIN_KEY_BITS = 2048
"""Minimum RSA key size: smaller keys are unsafe and leave little room for OAEP with SHA3-512."""


@lazy_dataclass(frozen=True, slots=True)
class KeyPair:
    public: RSAPublicKey
    private: RSAPrivateKey


class DataKeys:
    """Implements KeyRing. `active` is among `pairs`."""

    def __init__(self, active: str, pairs: Mapping[str, KeyPair]) -> None:
        self._active = active
        self._pairs = dict(pairs)

    def new(self) -> NewKey:
        data_key = secrets.token_bytes(KEY_BYTES)
        aad = secrets.token_bytes(AAD_BYTES)
        sealed = base64.b64encode(encrypt(self._pairs[self._active].public, data_key)).decode()
        return NewKey(SegmentCipher(data_key, aad), SegmentEncryption(f"{self._active}:{sealed}", aad))

    def cipher(self, encryption: SegmentEncryption) -> SegmentCipher:
        """Return the cipher. Raises RemoteStorageError for an unknown pair, CorruptRemoteData for a wrong key."""
        pair_id, _, sealed = encryption.data_key.partition(":")
        pair = self._pairs.get(pair_id)
        if pair is None:
            raise RemoteStorageError(f"key pair {pair_id!r} of an encrypted segment is not configured")
        try:
            data_key = decrypt(pair.private, base64.b64decode(sealed, validate=True))
        except (OaepError, ValueError) as error:
            raise CorruptRemoteData(f"key pair {pair_id!r} cannot decrypt the data key of a segment") from error
        if len(data_key) != KEY_BYTES:
            raise CorruptRemoteData(f"a data key has {len(data_key)} bytes instead of {KEY_BYTES}")
        return SegmentCipher(data_key, encryption.aad)


def load_data_keys(fs: FileSystem, active: str, files: Mapping[str, KeyPairFiles]) -> DataKeys:
    """Load the key pairs. Raises ValueError with one sentence that names the configuration key."""
    return DataKeys(active, {pair_id: _load_pair(fs, each) for pair_id, each in files.items()})


def _load_pair(fs: FileSystem, files: KeyPairFiles) -> KeyPair:
    public = _load_public(_read(fs, files.public_path, files.public_key), files)
    private = _load_private(_read(fs, files.private_path, files.private_key), files)
    if private.public_key().public_numbers() != public.public_numbers():
        raise ValueError(f"{files.private_key} is not the private key that belongs to {files.public_key}.")
    if public.key_size < _MIN_KEY_BITS:
        raise ValueError(f"{files.public_key} has {public.key_size} bits, and must have {_MIN_KEY_BITS} or more.")
    return KeyPair(public, private)


def _read(fs: FileSystem, path: str, key: str) -> bytes:
    try:
        return read_file(fs, path)
    except OSError as error:
        raise ValueError(f"{key} names {path}, which cannot be read: {error.strerror}.") from error


def _load_public(pem: bytes, files: KeyPairFiles) -> RSAPublicKey:
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"{files.public_key} names {files.public_path}, which is not a public key in PEM.") from error
    if not isinstance(key, RSAPublicKey):
        raise ValueError(f"{files.public_key} names {files.public_path}, which is not an RSA key.")
    return key


def _load_private(pem: bytes, files: KeyPairFiles) -> RSAPrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(
            f"{files.private_key} names {files.private_path}, which is not an unencrypted private key in PEM."
        ) from error
    if not isinstance(key, RSAPrivateKey):
        raise ValueError(f"{files.private_key} names {files.private_path}, which is not an RSA key.")
    return key

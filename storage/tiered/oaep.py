"""RSA-OAEP (RFC 8017, section 7.1) with SHA3-512 for the message and for MGF1, and no label.

Segments in the buckets people have seal their data keys this way. The `cryptography` package has the keys and the
arithmetic's parts, but refuses SHA-3 here, so that padding and exponentiation are done in this file, with what makes
them safe: the private operation is blinded (its time says nothing of the key), its result is checked (a fault in one
half of the Chinese remainder would give the key away), and all failures of decoding look alike.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

_HASH = hashlib.sha3_512
_HASH_BYTES = _HASH().digest_size
_LABEL_HASH = _HASH(b"").digest()
_COUNTER_BYTES = 4


class OaepError(Exception):
    """Bytes that were not encrypted for this key. There is nothing more to say."""


def encrypt(key: RSAPublicKey, message: bytes, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> bytes:
    """Raises ValueError for a message that is too long for the key."""
    numbers = key.public_numbers()
    size = (numbers.n.bit_length() + 7) // 8
    encoded = int.from_bytes(_encode(message, size, random_bytes(_HASH_BYTES)), "big")
    return pow(encoded, numbers.e, numbers.n).to_bytes(size, "big")


def decrypt(key: RSAPrivateKey, ciphertext: bytes) -> bytes:
    """Raises OaepError."""
    modulus = key.public_key().public_numbers().n
    size = (modulus.bit_length() + 7) // 8
    value = int.from_bytes(ciphertext, "big")
    if len(ciphertext) != size or value >= modulus or size < 2 * _HASH_BYTES + 2:
        raise OaepError
    return _decode(_private_operation(key, value).to_bytes(size, "big"))


def _encode(message: bytes, size: int, seed: bytes) -> bytes:
    padding_bytes = size - len(message) - 2 * _HASH_BYTES - 2
    if padding_bytes < 0:
        raise ValueError(f"{len(message)} bytes are too many for a key of {8 * size} bits")
    block = _LABEL_HASH + bytes(padding_bytes) + b"\x01" + message
    masked_block = _xor(block, _mask(seed, len(block)))
    return b"\x00" + _xor(seed, _mask(masked_block, _HASH_BYTES)) + masked_block


def _decode(encoded: bytes) -> bytes:
    masked_seed, masked_block = encoded[1 : 1 + _HASH_BYTES], encoded[1 + _HASH_BYTES :]
    seed = _xor(masked_seed, _mask(masked_block, _HASH_BYTES))
    block = _xor(masked_block, _mask(seed, len(masked_block)))
    padding, one, message = block[_HASH_BYTES:].partition(b"\x01")
    is_ours = hmac.compare_digest(block[:_HASH_BYTES], _LABEL_HASH)
    is_padded = hmac.compare_digest(padding, bytes(len(padding)))
    if not (is_ours & is_padded & (encoded[0] == 0) & (one == b"\x01")):
        raise OaepError
    return message


def _mask(seed: bytes, size: int) -> bytes:
    """MGF1 (RFC 8017, appendix B.2.1)."""
    count = -(-size // _HASH_BYTES)
    return b"".join(_HASH(seed + number.to_bytes(_COUNTER_BYTES, "big")).digest() for number in range(count))[:size]


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


def _private_operation(key: RSAPrivateKey, value: int) -> int:
    numbers = key.private_numbers()
    modulus, exponent = numbers.public_numbers.n, numbers.public_numbers.e
    blind = secrets.randbelow(modulus - 2) + 2
    blinded = value * pow(blind, exponent, modulus) % modulus
    by_p = pow(blinded, numbers.dmp1, numbers.p)
    by_q = pow(blinded, numbers.dmq1, numbers.q)
    result = by_q + (by_p - by_q) * numbers.iqmp % numbers.p * numbers.q
    if pow(result, exponent, modulus) != blinded:
        raise OaepError
    return result * pow(blind, -1, modulus) % modulus

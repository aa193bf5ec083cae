"""RSA-OAEP with SHA3-512 for message and MGF1 and without label, as existing buckets encrypt their data keys.

The only module that uses pycryptodome: `cryptography`, used everywhere else, does not support SHA-3 here.
"""

from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey


class OaepError(Exception):
    """The bytes were not encrypted for this key."""


def encrypt(key: RSAPublicKey, message: bytes) -> bytes:
    """Encrypt a message. Raises ValueError if it is too long for the key."""
    numbers = key.public_numbers()
    return PKCS1_OAEP.new(RSA.construct((numbers.n, numbers.e)), SHA3_512).encrypt(message)


def decrypt(key: RSAPrivateKey, ciphertext: bytes) -> bytes:
    """Decrypt a message. Raises OaepError."""
    numbers = key.private_numbers()
    public = numbers.public_numbers
    own = RSA.construct((public.n, public.e, numbers.d, numbers.p, numbers.q), consistency_check=False)
    try:
        return PKCS1_OAEP.new(own, SHA3_512).decrypt(ciphertext)
    except (ValueError, TypeError) as error:
        raise OaepError from error

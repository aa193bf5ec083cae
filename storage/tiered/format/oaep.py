"""RSA-OAEP with SHA3-512 for the message and for MGF1, and no label: how segments in the buckets people have seal keys.

The one file that knows pycryptodome: `cryptography`, which has everything else, refuses SHA-3 here.
"""

from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey


class OaepError(Exception):
    """Bytes that were not encrypted for this key. There is nothing more to say."""


def encrypt(key: RSAPublicKey, message: bytes) -> bytes:
    """Raises ValueError for a message that is too long for the key."""
    numbers = key.public_numbers()
    return PKCS1_OAEP.new(RSA.construct((numbers.n, numbers.e)), SHA3_512).encrypt(message)


def decrypt(key: RSAPrivateKey, ciphertext: bytes) -> bytes:
    """Raises OaepError."""
    numbers = key.private_numbers()
    public = numbers.public_numbers
    own = RSA.construct((public.n, public.e, numbers.d, numbers.p, numbers.q), consistency_check=False)
    try:
        return PKCS1_OAEP.new(own, SHA3_512).decrypt(ciphertext)
    except (ValueError, TypeError) as error:
        raise OaepError from error

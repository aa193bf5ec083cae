"""Key pairs for tests: one fixed pair, for data encrypted elsewhere, and generated ones."""

import functools

from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPrivateNumbers,
    RSAPublicNumbers,
    generate_private_key,
    rsa_crt_dmp1,
    rsa_crt_dmq1,
    rsa_crt_iqmp,
    rsa_recover_private_exponent,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from storage.files import FileSystem, join, write_file
from storage.tiered.segments.data_keys import DataKeys, load_data_keys
from storage.tiered.settings import KeyPairFiles

_P = (
    "cf33e5c678bf7fe6e60ea95108ed7aed7d0378b033436b62c403b75d2a9013210e5f80cbcccccb0dfcdc27d4accf1a530cbd"
    "1c5e2d2ecc155c721ae01e6c73330843ec5ac0883d9a3d78cae6e7551890d2e9e9cf72b4eed2634db40d63f8f14dc75d87a2"
    "bb1d43abbd98453ec09a7f2b8a9a4a6cd31cacb45a092fb00f4f452d"
)
_Q = (
    "be625ed6ffa252cdbba071d4af79a8f142c2769311df2d3deb6f23e23a07dd3355e23c585733fc6c30a9d84f274fa4510022"
    "4c8231aaac0010ed26793d0ddca1207eaca82f223b53581e7943d49d3d4ab380d3347c59f61d535dc0e2ce5269fe4d41c0ce"
    "bda33de057b787b4523737d86a36e2c4796bf484ec7a906b150a419f"
)
_EXPONENT = 65537


def _written_down() -> RSAPrivateKey:
    p, q = int(_P, 16), int(_Q, 16)
    d = rsa_recover_private_exponent(_EXPONENT, p, q)
    exponents = rsa_crt_dmp1(d, p), rsa_crt_dmq1(d, q)
    numbers = RSAPrivateNumbers(p, q, d, *exponents, rsa_crt_iqmp(p, q), RSAPublicNumbers(_EXPONENT, p * q))
    return numbers.private_key()


@functools.cache
def private_key(name: str) -> RSAPrivateKey:
    """Return the same key for the same name within one run; "written" is the fixed one."""
    return _written_down() if name == "written" else generate_private_key(_EXPONENT, 2048)


def write_key_pair(fs: FileSystem, directory: str, name: str) -> KeyPairFiles:
    """Write the files of a pair; return settings with its name."""
    key = private_key(name)
    fs.make_directory(directory)
    public_path, private_path = join(directory, f"{name}.pub"), join(directory, f"{name}.key")
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_file(fs, public_path, public, sync=False)
    write_file(fs, private_path, private, sync=False)
    return KeyPairFiles(f"{name}.public.key.file", public_path, f"{name}.private.key.file", private_path)


def data_keys(fs: FileSystem, active: str, *others: str) -> DataKeys:
    return load_data_keys(fs, active, {name: write_key_pair(fs, "keys", name) for name in (active, *others)})

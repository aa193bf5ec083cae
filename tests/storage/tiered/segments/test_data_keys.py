import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from storage.files import write_file
from storage.tiered.errors import CorruptRemoteData, RemoteStorageError
from storage.tiered.format.manifest import SegmentEncryption
from storage.tiered.segments.data_keys import load_data_keys
from tests.storage.tiered.format.key_pairs import data_keys, write_key_pair
from tests.support.fakes.memory_files import MemoryFileSystem


def test_new_key_is_sealed_for_the_active_pair() -> None:
    keys = data_keys(MemoryFileSystem(), "one", "two")
    new = keys.new()
    assert new.encryption.data_key.startswith("one:")
    assert len(new.encryption.aad) == 32
    assert keys.cipher(new.encryption).open(new.cipher.seal(b"chunk")) == b"chunk"


def test_each_segment_has_its_own_key_and_aad() -> None:
    keys = data_keys(MemoryFileSystem(), "one")
    one, other = keys.new(), keys.new()
    assert one.encryption.aad != other.encryption.aad
    with pytest.raises(CorruptRemoteData):
        other.cipher.open(one.cipher.seal(b"chunk"))


def test_keys_of_a_former_active_pair_are_opened() -> None:
    old = data_keys(MemoryFileSystem(), "one").new()
    rotated = data_keys(MemoryFileSystem(), "two", "one")
    assert rotated.cipher(old.encryption).open(old.cipher.seal(b"chunk")) == b"chunk"
    assert rotated.new().encryption.data_key.startswith("two:")


def test_error_names_an_unconfigured_key_pair() -> None:
    old = data_keys(MemoryFileSystem(), "one").new()
    with pytest.raises(RemoteStorageError, match="key pair 'one'") as caught:
        data_keys(MemoryFileSystem(), "two").cipher(old.encryption)
    assert not isinstance(caught.value, CorruptRemoteData)


@pytest.mark.parametrize("sealed", ["", "!", "AAAA"])
def test_invalid_data_key_is_corrupt_data(sealed: str) -> None:
    with pytest.raises(CorruptRemoteData, match="'one' cannot decrypt"):
        data_keys(MemoryFileSystem(), "one").cipher(SegmentEncryption(f"one:{sealed}", b""))


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("keys/one.pub", None, "one.public.key.file names keys/one.pub, which cannot be read: No such file"),
        ("keys/one.key", None, "one.private.key.file names keys/one.key, which cannot be read: No such file"),
        ("keys/one.pub", b"junk", "one.public.key.file names keys/one.pub, which is not a public key in PEM"),
        ("keys/one.key", b"junk", "one.private.key.file names keys/one.key, which is not an unencrypted private key"),
    ],
)
def test_error_names_an_invalid_key_file(path: str, content: bytes | None, message: str) -> None:
    fs = MemoryFileSystem()
    pair = write_key_pair(fs, "keys", "one")
    fs.remove(path)
    if content is not None:
        write_file(fs, path, content, sync=False)
    with pytest.raises(ValueError, match=message):
        load_data_keys(fs, "one", {"one": pair})


def test_private_key_of_another_pair_is_refused() -> None:
    fs = MemoryFileSystem()
    mixed = write_key_pair(fs, "keys", "one")._replace(private_path=write_key_pair(fs, "keys", "two").private_path)
    with pytest.raises(ValueError, match=r"one.private.key.file is not the private key that belongs to one.public"):
        load_data_keys(fs, "one", {"one": mixed})


def test_non_rsa_keys_are_refused() -> None:
    fs = MemoryFileSystem()
    pair = write_key_pair(fs, "keys", "one")
    curve = generate_private_key(SECP256R1())
    public = curve.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    write_file(fs, "keys/one.pub", public, sync=False)
    with pytest.raises(ValueError, match=r"one.public.key.file names keys/one.pub, which is not an RSA key"):
        load_data_keys(fs, "one", {"one": pair})
    private = curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_file(fs, "keys/one.key", private, sync=False)
    write_key_pair(fs, "other", "one")
    with pytest.raises(ValueError, match=r"one.private.key.file names keys/one.key, which is not an RSA key"):
        load_data_keys(fs, "one", {"one": pair._replace(public_path="other/one.pub")})

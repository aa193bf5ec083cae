import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.tiered.format.oaep import OaepError, decrypt, encrypt
from tests.storage.tiered.format.key_pairs import private_key

MESSAGE = bytes(range(32))
BY_JAVA = (
    "LnOl0nH4aoT8fE4uaWa80sMDPHeW/3TXpJyElWPAweVLMzhLbTAycSGPvkSsDJsY+O4TfAYmNeGCUQI4/VioZ36u3bXiUEAZqA51"
    "wrRUIGkU7406tvHGVn0soa97NluwpXLrZSDjFnw/pBLcUEk7AuXtlrA/IRpMrevuMoURaCs2if4bkjNoqAF+eqPcSu+TvKDRw5Kg"
    "9pj+Y4GAz+irLGx+HZWRFS7hVfP12xUKQRayx8pQQkwATmRJI0pYyBSbcAgRCdPeqo9nh1RBZYkFjw9FqeS+AsoUXFNtOBUl+iPS"
    "y0hiD04Xc/WnCiiZkkZYM9teSyIpG55EeQ0LvT79dQ=="
)
"""MESSAGE, encrypted for the fixed key by the JDK (RSA/ECB/OAEPPadding, SHA3-512 for both)."""

MAX_BYTES = 2048 // 8 - 2 * 64 - 2


def test_ciphertext_of_the_jdk_is_decrypted() -> None:
    assert decrypt(private_key("written"), base64.b64decode(BY_JAVA)) == MESSAGE


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=MAX_BYTES))
def test_encryption_round_trips(message: bytes) -> None:
    key = private_key("written")
    ciphertext = encrypt(key.public_key(), message)
    assert len(ciphertext) == 256
    assert decrypt(key, ciphertext) == message


def test_repeated_encryption_gives_different_ciphertexts() -> None:
    key = private_key("written").public_key()
    assert encrypt(key, MESSAGE) != encrypt(key, MESSAGE)


def test_message_above_the_maximum_length_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        encrypt(private_key("written").public_key(), bytes(MAX_BYTES + 1))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 255), st.integers(1, 255))
def test_changed_ciphertext_byte_is_refused(position: int, difference: int) -> None:
    ciphertext = bytearray(base64.b64decode(BY_JAVA))
    ciphertext[position] ^= difference
    with pytest.raises(OaepError):
        decrypt(private_key("written"), bytes(ciphertext))


@pytest.mark.parametrize("ciphertext", [b"", bytes(255), bytes(256), bytes(257), b"\xff" * 256])
def test_invalid_ciphertext_is_refused(ciphertext: bytes) -> None:
    with pytest.raises(OaepError):
        decrypt(private_key("written"), ciphertext)


def test_another_key_does_not_decrypt() -> None:
    with pytest.raises(OaepError):
        decrypt(private_key("other"), base64.b64decode(BY_JAVA))

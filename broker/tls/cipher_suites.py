"""Names of cipher suites: Java's (IANA's) to OpenSSL's, and the choice that `ssl.cipher.suites` makes.

The suites of TLS 1.2 and 1.3 are chosen separately. Python's `ssl` cannot leave out single suites of TLS 1.3, so a
list has all of them or none; with none, TLS 1.3 is off, as in Java.
"""

import re
import ssl
from collections.abc import Iterable
from typing import Final

from protocol.lazy_dataclass import lazy_dataclass

TLS_1_3_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")

_EXCHANGES: Final = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "DHE_DSS": "DHE-DSS-",
    "RSA": "",
}
_IANA: Final = re.compile(r"TLS_(?P<exchange>[A-Z0-9_]+?)_WITH_(?P<cipher>[A-Z0-9_]+)")
_BLOCK_CIPHER: Final = re.compile(
    r"(?P<name>AES|ARIA|CAMELLIA)_(?P<bits>128|256)_(?P<mode>GCM|CBC|CCM|CCM_8)(_(?P<hash>SHA\d*))?"
)


@lazy_dataclass(frozen=True, slots=True)
class CipherChoice:
    """The versions that remain, and OpenSSL's list of suites for TLS 1.2; None for the library's own."""

    lowest: ssl.TLSVersion
    highest: ssl.TLSVersion
    names: str | None


def choose_ciphers(suites: Iterable[str], lowest: ssl.TLSVersion, highest: ssl.TLSVersion) -> CipherChoice:
    """Return the choice that a list of suites makes; no list is no restriction.

    Raise ValueError with the end of a sentence about the setting.
    """
    listed = tuple(suites)
    if not listed:
        return CipherChoice(lowest, highest, None)
    newer = [suite for suite in listed if suite in TLS_1_3_SUITES]
    older = [openssl_name(suite) for suite in listed if suite not in TLS_1_3_SUITES]
    if highest is ssl.TLSVersion.TLSv1_3 and newer:
        missing = [suite for suite in TLS_1_3_SUITES if suite not in newer]
        if missing:
            raise ValueError(
                f"lists {newer[0]} but not {missing[0]}: single suites of TLS 1.3 cannot be left out, so list all "
                f"three ({', '.join(TLS_1_3_SUITES)}), or none and thereby turn TLS 1.3 off"
            )
    elif highest is ssl.TLSVersion.TLSv1_3:
        highest = ssl.TLSVersion.TLSv1_2
    if not older:
        lowest = ssl.TLSVersion.TLSv1_3
    if lowest > highest:
        raise ValueError("has no suite for the versions in ssl.enabled.protocols")
    return CipherChoice(lowest, highest, ":".join(older) or None)


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2. Raise ValueError if this OpenSSL does not have the suite."""
    name = _translate(suite)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.set_ciphers(name)
    except ssl.SSLError:
        raise ValueError(f"lists {suite!r}, which is not a cipher suite of this OpenSSL") from None
    return name


def _translate(suite: str) -> str:
    """Return OpenSSL's spelling; a name that is not IANA's is returned as it is if it has OpenSSL's form."""
    match = _IANA.fullmatch(suite)
    if match is None:
        if not re.fullmatch(r"[A-Z0-9]+(-[A-Z0-9]+)+", suite):
            raise ValueError(f"lists {suite!r}, which is not a cipher suite of TLS 1.2 or 1.3")
        return suite
    exchange = _EXCHANGES.get(match["exchange"])
    cipher = "CHACHA20-POLY1305" if match["cipher"] == "CHACHA20_POLY1305_SHA256" else _block_cipher(match["cipher"])
    if exchange is None or cipher is None:
        raise ValueError(f"lists {suite!r}, which is not a cipher suite of this OpenSSL")
    return (exchange + cipher).replace("ECDHE-RSA-ARIA", "ECDHE-ARIA")  # OpenSSL's one irregular name


def _block_cipher(text: str) -> str | None:
    match = _BLOCK_CIPHER.fullmatch(text)
    if match is None:
        return None
    parts = [match["name"] + match["bits"], *([] if match["mode"] == "CBC" else [match["mode"].replace("_", "")])]
    return "-".join([*parts, *([match["hash"]] if match["hash"] else [])])

"""Principals in forwarded requests: a version, then `DefaultPrincipalData` (KIP-590)."""

from struct import Struct
from typing import Final, NamedTuple

from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError
from protocol.messages.common_records import DefaultPrincipalData
from protocol.primitives import Buffer

_VERSION: Final = Struct(">h")
_NEWEST: Final = DefaultPrincipalData.MAX_VERSION


class ForwardedPrincipal(NamedTuple):
    """A principal `Type:name`, and whether a delegation token has authenticated it."""

    principal: str
    is_token: bool = False


def serialize_principal(principal: str, *, is_token: bool = False) -> bytes:
    """Return the bytes of a principal `Type:name`."""
    kind, _, name = principal.partition(":")
    return _VERSION.pack(_NEWEST) + encode_bytes(DefaultPrincipalData(kind, name, is_token), _NEWEST)


def deserialize_principal(data: Buffer) -> ForwardedPrincipal:
    """Return the principal. Raises DecodeError."""
    if len(data) < _VERSION.size:
        raise DecodeError("the principal is shorter than its version")
    (version,) = _VERSION.unpack_from(data)
    principal, end = decode(DefaultPrincipalData, data, version, _VERSION.size)
    if end != len(data) or not principal.type:
        raise DecodeError("the bytes are not a principal")
    return ForwardedPrincipal(f"{principal.type}:{principal.name}", principal.token_authenticated)

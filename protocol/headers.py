"""Headers of requests and responses, and the frames that contain them.

A request header has version 2 (with a tag section) if the request's version is flexible, else 1; a response header has
1 or 0 likewise. ApiVersions responses always have header version 0, so that a client that requested an unsupported
version can read the response (KIP-511). The client id is an old-style string in every version, so that a header can be
parsed before the version is known to exist.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple, TypeVar

from protocol.api_keys import API_BY_KEY, ApiKey
from protocol.codec_errors import DecodeError
from protocol.compiler import decoder, encoder
from protocol.messages import NEVER_FLEXIBLE, Message
from protocol.primitives import Buffer, skip_tags

M = TypeVar("M", bound=Message)

_FLEXIBLE_FROM = {key: api.flexible_from for key, api in API_BY_KEY.items()}
_REQUEST = Struct(">hhih")
_SIZED_REQUEST = Struct(">ihhih")
_SIZED_RESPONSE = Struct(">ii")
_SIZE = Struct(">i")
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class RequestHeader(NamedTuple):
    """A received header; `api_key` and `api_version` may be unknown."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def response_header_version(api_key: int, version: int) -> int:
    if api_key == _API_VERSIONS:
        return 0
    return 1 if version >= _FLEXIBLE_FROM.get(api_key, NEVER_FLEXIBLE) else 0


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Return (header, position of the body) of a frame without its size prefix. Raises DecodeError."""
    try:
        api_key, version, correlation_id, size = _REQUEST.unpack_from(frame)
        position = _REQUEST.size
        client_id = None
        if size >= 0:
            position += size
            if position > len(frame):
                raise DecodeError("the client id exceeds the frame")
            client_id = str(frame[_REQUEST.size : position], "utf-8")
        if version >= _FLEXIBLE_FROM.get(api_key, NEVER_FLEXIBLE):
            count = frame[position]
            position += 1
            if count:
                position = skip_tags(frame, position, count)
    except (IndexError, struct_error, UnicodeDecodeError) as error:
        raise DecodeError(f"request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id), position


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> list[Buffer]:
    """Return a response frame as chunks, the size prefix first. Raises EncodeError."""
    out = bytearray(_SIZED_RESPONSE.pack(0, correlation_id))
    if version >= _FLEXIBLE_FROM[api_key] and api_key != _API_VERSIONS:
        out.append(0)
    return _finish(message, version, out)


def encode_request(message: Message, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """Return a request frame as chunks, the size prefix first. Raises EncodeError."""
    client = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(client)
    out = bytearray(_SIZED_REQUEST.pack(0, message.API_KEY, version, correlation_id, size))
    out += client
    if version >= _FLEXIBLE_FROM[message.API_KEY]:
        out.append(0)
    return _finish(message, version, out)


def _finish(message: Message, version: int, out: bytearray) -> list[Buffer]:
    """Append the message to the header in `out` and prefix the total size."""
    chunks: list[Buffer] = []
    encoder(type(message), version)(message, out, chunks)
    total = len(out) if len(chunks) == 1 else sum(map(len, chunks))
    _SIZE.pack_into(out, 0, total - _SIZE.size)
    return chunks


def decode_response(cls: type[M], version: int, frame: Buffer) -> tuple[int, M]:
    """Return (correlation id, message) of a response frame without its size prefix. Raises DecodeError."""
    view = frame if type(frame) is memoryview else memoryview(frame)
    try:
        (correlation_id,) = _SIZE.unpack_from(view)
        position = _SIZE.size
        if response_header_version(cls.API_KEY, version) == 1:
            count = view[position]
            position += 1
            if count:
                position = skip_tags(view, position, count)
    except (IndexError, struct_error) as error:
        raise DecodeError(f"response header: {error}") from error
    message, _ = decoder(cls, version)(view, position)
    return correlation_id, message

"""Responses to requests that failed as a whole: the error in every place where the response has room for one.

Handlers answer expected failures themselves, item by item. Other failures come here: a `KafkaError` that a handler let
through, or an unexpected exception. The two message classes tell which part of the request an error belongs to: a
response list whose elements carry an error mirrors the request list that it answers. Reflection is slow, which does not
matter here.
"""

import dataclasses
import types
import typing
from collections.abc import Sequence
from functools import cache
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages import Message
from protocol.messages.alter_partition import AlterPartitionResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from protocol.messages.describe_quorum import DescribeQuorumResponse
from protocol.messages.end_quorum_epoch import EndQuorumEpochResponse
from protocol.messages.fetch_snapshot import FetchSnapshotResponse
from protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from protocol.messages.share_fetch import ShareFetchResponse
from protocol.messages.update_features import UpdateFeaturesResponse
from protocol.messages.vote import VoteResponse
from protocol.primitives import Uuid

_SAME_FIELD = {"partition_index": "partition", "group_id": "group"}
_NUMBERS_THAT_IDENTIFY = {"index", "partition", "partition_index", "resource_type"}
"""Other numbers of a response (counts, epochs, offsets) keep the defaults that mean "unknown"."""

_SAID_ONCE = (
    AlterPartitionResponse,
    AssignReplicasToDirsResponse,
    BeginQuorumEpochResponse,
    DescribeQuorumResponse,
    EndQuorumEpochResponse,
    FetchSnapshotResponse,
    ShareAcknowledgeResponse,
    ShareFetchResponse,
    UpdateFeaturesResponse,
    VoteResponse,
)
"""Responses whose receivers read the top-level error first: an entry with an error would be a partition's state."""


def error_response(response_class: type[Message], request: Message, code: ErrorCode, text: str | None) -> Message:
    """Return a response that reports `code` (and `text`, where there is room) for every item of `request`."""
    response = response_class()
    if isinstance(response, _SAID_ONCE):
        response.error_code = code
        if hasattr(response, "error_message"):
            response.error_message = text
    else:
        _fill(response, request, code, text)
    return response


def _fill(answer: Any, asked: Any, code: ErrorCode, text: str | None) -> None:
    cls: type = type(answer)
    for name, element in _shape(cls).items():
        if name == "error_code":
            answer.error_code = int(code)
        elif name == "error_message":
            answer.error_message = text
        elif element is not None:
            setattr(answer, name, [_mirror(element, item, code, text) for item in _items(asked, name)])
        elif (value := getattr(asked, name, getattr(asked, _SAME_FIELD.get(name, name), None))) is not None:
            setattr(answer, name, value)


def _mirror(element: type, item: object, code: ErrorCode, text: str | None) -> object:
    answer = element()
    if dataclasses.is_dataclass(item):
        _fill(answer, item, code, text)
        return answer
    _fill(answer, None, code, text)
    kind = type(item)
    fields = [field for field in dataclasses.fields(element) if not field.name.startswith("error_")]
    named = [field.name for field in fields if field.type is kind] or [f.name for f in fields if f.type == kind | None]
    if named:
        setattr(answer, named[0], item)
    return answer


def _items(asked: object, name: str) -> Sequence[object]:
    """Return the request list that the response list `name` answers: its namesake, else the first that is not empty."""
    if asked is None:
        return ()
    lists = {
        f.name: value
        for f in dataclasses.fields(typing.cast(Any, asked))
        if isinstance(value := getattr(asked, f.name), list)
    }
    return lists.get(name) or next((value for value in lists.values() if value), ())


@cache
def _shape(cls: type) -> dict[str, type | None]:
    """Return plain fields (mapped to None) and lists whose elements carry an error (mapped to the element class)."""
    shape: dict[str, type | None] = {}
    for name, hint in typing.get_type_hints(cls).items():
        element = _list_element(hint)
        if element is not None and _carries_error(element):
            shape[name] = element
        elif name in _NUMBERS_THAT_IDENTIFY or hint in (str, str | None) or hint is Uuid or name.startswith("error_"):
            shape[name] = None
    return shape


def _list_element(hint: object) -> type | None:
    if isinstance(hint, types.UnionType):
        return next((found for part in typing.get_args(hint) if (found := _list_element(part)) is not None), None)
    if typing.get_origin(hint) is not list:
        return None
    (element,) = typing.get_args(hint)
    return element if isinstance(element, type) and dataclasses.is_dataclass(element) else None


def _carries_error(cls: type) -> bool:
    return any(name == "error_code" or element is not None for name, element in _shape(cls).items())


def reports(response: Message, code: ErrorCode) -> bool:
    """Whether a response reports `code` for the whole request or any part of it."""
    return _reports(response, code)


def _reports(answer: Any, code: ErrorCode) -> bool:
    if getattr(answer, "error_code", ErrorCode.NONE) == code:
        return True
    cls: type = type(answer)
    lists = (name for name, element in _shape(cls).items() if element is not None)
    return any(_reports(item, code) for name in lists for item in getattr(answer, name) or ())

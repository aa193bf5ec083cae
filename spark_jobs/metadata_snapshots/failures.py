"""What went wrong, in a sentence for a person, and whether to try again.

An error in an executor, or in the driver's worker that plans, comes back as the text of a traceback inside the text of
another; the last line of the innermost one that we know is what happened.
"""

import re
from typing import Final, NamedTuple

from broker.client import TRANSIENT
from protocol.errors import ErrorCode

_RETRIED: Final = ("ConnectionLost", "LogTrimmed", "StoreThrottled", "StoreUnavailable")
_FINAL: Final = (
    "ClientError",
    "GapInLog",
    "InvalidCommit",
    "InvalidMetadata",
    "InvalidSnapshot",
    "KafkaError",
    "MalformedLog",
    "ObjectNotFound",
    "ObjectStoreError",
    "SourceRefused",
    "StoreUriError",
    "TablesRefused",
    "TakenOver",
    "UnknownRecord",
    "Unsupported",
    "WrongSnapshot",
)
_LINE: Final = re.compile(rf"^(?:[\w.]*\.)?({'|'.join(_RETRIED + _FINAL)}): (.+)$", re.MULTILINE)
_CODE: Final = re.compile(r"^([A-Z_]+): (.+)$")
_RETRIED_CODES: Final = frozenset(
    code.name for code in TRANSIENT | {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.SNAPSHOT_NOT_FOUND}
)
"""Of Kafka's errors: what passes, though it took longer than a client waits for it; a broker that is away, and a
snapshot that was replaced by a newer one while it was fetched.
"""
SHORT: Final = 300
_FULL: Final = "No space left on device"
_HINTS: Final = {
    "InvalidCommit": " Without the _state in --out, which is of another version of this program, it is folded anew.",
}


class Failure(NamedTuple):
    """`kind` is the name of the exception; `sentence` ends with a full stop."""

    kind: str
    sentence: str
    is_retriable: bool


_DISK_FULL: Final = Failure(
    "DiskFull", "no space is left where Spark keeps its checkpoint or its own files (SPARK_LOCAL_DIRS).", True
)
"""Told by Java; a store that is full tells itself."""


def in_short(error: BaseException) -> str:
    """What is not known to go wrong, in a line."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:SHORT]}"


def failure_of(error: BaseException) -> Failure | None:
    """None for what is not expected, and therefore a fault of ours or of Spark's."""
    text = f"{type(error).__name__}: {error}"
    found = _LINE.findall(text)
    if not found:
        return _DISK_FULL if _FULL in text else None
    kind, told = found[0]
    is_retriable = kind in _RETRIED
    coded = _CODE.match(told)
    if kind == "KafkaError" and coded is not None:
        is_retriable, told = coded[1] in _RETRIED_CODES, coded[2]
    return Failure(kind, told.rstrip(". ") + "." + _HINTS.get(kind, ""), is_retriable)

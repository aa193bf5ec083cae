"""Translation of failures to one sentence for the operator, with the decision whether to retry.

An error in an executor, or in the driver's worker that plans, arrives as the text of a traceback inside another text;
the last line of the innermost known traceback names the cause.
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
    "UnsupportedVersion",
    "WrongSnapshot",
)
_LINE: Final = re.compile(rf"^(?:[\w.]*\.)?({'|'.join(_RETRIED + _FINAL)}): (.+)$", re.MULTILINE)
_CODE: Final = re.compile(r"^([A-Z_]+): (.+)$")
_RETRIED_CODES: Final = frozenset(
    code.name for code in TRANSIENT | {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.SNAPSHOT_NOT_FOUND}
)
"""Transient Kafka errors that outlasted the client's timeout: an unavailable broker, and a snapshot that was replaced
by a newer one during the fetch.
"""
SHORT: Final = 300
_FULL: Final = "No space left on device"
_HINTS: Final = {
    "InvalidCommit": " Remove _state in --out, which another version of this program wrote, to fold the log again.",
}


class Failure(NamedTuple):
    """`kind` is the name of the exception; `sentence` ends with a full stop."""

    kind: str
    sentence: str
    is_retriable: bool


_DISK_FULL: Final = Failure(
    "DiskFull", "no space is left where Spark keeps its checkpoint or its own files (SPARK_LOCAL_DIRS).", True
)
"""Reported by Java; a full store reports itself."""


def in_short(error: BaseException) -> str:
    """Return one line for an unexpected failure."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:SHORT]}"


def failure_of(error: BaseException) -> Failure | None:
    """Return the failure for a known error; None for an unexpected one, which is a bug in Ottla or Spark."""
    text = f"{type(error).__name__}: {error}"
    found = _LINE.findall(text)
    if not found:
        return _DISK_FULL if _FULL in text else None
    kind, message = found[0]
    is_retriable = kind in _RETRIED
    coded = _CODE.match(message)
    if kind == "KafkaError" and coded is not None:
        is_retriable, message = coded[1] in _RETRIED_CODES, coded[2]
    return Failure(kind, message.rstrip(". ") + "." + _HINTS.get(kind, ""), is_retriable)

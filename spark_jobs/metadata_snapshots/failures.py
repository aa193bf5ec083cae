"""What went wrong, in a sentence for a person, and whether to try again.

An error in an executor, or in the driver's worker that plans, comes back as the text of a traceback inside the text of
another; the last line of the innermost one that we know is what happened.
"""

import re
from typing import Final, NamedTuple

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
    "TablesBehind",
    "UnknownRecord",
    "Unsupported",
    "WrongSnapshot",
)
_LINE: Final = re.compile(rf"^(?:[\w.]*\.)?({'|'.join(_RETRIED + _FINAL)}): (.+)$", re.MULTILINE)
_CODE: Final = re.compile(r"^([A-Z_]+): (.+)$")
_RETRIED_CODES: Final = frozenset(
    {"BROKER_NOT_AVAILABLE", "SNAPSHOT_NOT_FOUND", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER"}
)
"""Of Kafka's errors: a broker that is away, and a snapshot that was replaced by a newer one while it was fetched."""
_HINTS: Final = {
    "UnknownRecord": " A newer version of this program may know it; nothing was skipped, and it goes on from there.",
}


class Failure(NamedTuple):
    """`kind` is the name of the exception; `sentence` ends with a full stop."""

    kind: str
    sentence: str
    is_retriable: bool


def failure_of(error: BaseException) -> Failure | None:
    """None for what is not expected, and therefore a fault of ours or of Spark's."""
    found = _LINE.findall(f"{type(error).__name__}: {error}")
    if not found:
        return None
    kind, told = found[0]
    is_retriable = kind in _RETRIED
    coded = _CODE.match(told)
    if kind == "KafkaError" and coded is not None:
        is_retriable, told = coded[1] in _RETRIED_CODES, coded[2]
    return Failure(kind, told.rstrip(". ") + "." + _HINTS.get(kind, ""), is_retriable)

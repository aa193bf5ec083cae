"""What a server of S3 answers instead of doing what it was asked to, in our words."""

from storage.tiered.errors import ObjectNotFound, ObjectStoreError, StoreThrottled, StoreUnavailable

_THROTTLING = ("SlowDown", "Throttl", "TooManyRequests", "RequestLimitExceeded", "BandwidthLimitExceeded")
"""Parts of error codes; servers have variants such as SlowDownWrite and KMS.ThrottlingException."""

_TRANSIENT = frozenset(
    {
        "RequestTimeout",
        "OperationAborted",
        "ConditionalRequestConflict",
        "InternalError",
        "ServiceUnavailable",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestTimeTooSkewed",
        "ExistingObjectIsDirectory",
    }
)
"""Codes that come with a status that would say otherwise. Keys are rotated and clocks are set; and gateways to file
systems meet directories that another request is about to remove.
"""

_NEVER = frozenset({501, 505})
"""Statuses above 500 that no repetition changes."""


class NoSuchUpload(ObjectStoreError):
    """The upload was completed already, or aborted."""


class BucketExists(ObjectStoreError):
    """And whoever asks for it owns it already."""


class ObjectChanged(ObjectStoreError):
    """It is another object by now than the one that was asked for."""


class RangeNotSatisfiable(ObjectNotFound):
    """There is no such byte."""


def store_error(code: str, status: int, message: str) -> ObjectStoreError:
    text = f"{message} ({code or status})"
    if status == 429 or any(part in code for part in _THROTTLING):
        return StoreThrottled(text)
    if code in _TRANSIENT or (status >= 500 and status not in _NEVER):
        return StoreUnavailable(text)
    if code == "PreconditionFailed" or status == 412:
        return ObjectChanged(text)
    if code == "NoSuchUpload":
        return NoSuchUpload(text)
    if code == "BucketAlreadyOwnedByYou":
        return BucketExists(text)
    if code == "InvalidRange" or status == 416:
        return RangeNotSatisfiable(text)
    if code == "NoSuchKey" or (status == 404 and code in ("", "404", "NotFound")):
        return ObjectNotFound(text)
    return ObjectStoreError(text)

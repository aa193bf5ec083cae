"""Translation of S3 error responses."""

from storage.tiered.errors import ObjectNotFound, ObjectStoreError, StoreThrottled, StoreUnavailable

_THROTTLING = ("SlowDown", "Throttl", "TooManyRequests", "RequestLimitExceeded", "BandwidthLimitExceeded")
"""Parts of throttling error codes; servers have variants such as SlowDownWrite and KMS.ThrottlingException."""

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
"""Retriable codes whose status suggests otherwise: keys are rotated, clocks are corrected, and gateways to file systems
meet directories that another request is about to remove.
"""

_NEVER = frozenset({501, 505})
"""Statuses above 500 that are permanent."""


class NoSuchUpload(ObjectStoreError):
    """The upload was completed or aborted already."""


class BucketExists(ObjectStoreError):
    """The bucket exists and is ours."""


class ObjectChanged(ObjectStoreError):
    """The object was replaced by another version."""


class RangeNotSatisfiable(ObjectNotFound):
    """The range lies beyond the object's end."""


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

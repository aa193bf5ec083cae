"""The IAM actions that requests to S3 need, as documented in `docs/s3.md`."""

from collections.abc import Mapping
from typing import Final

ACTIONS: Final[Mapping[str, str]] = {
    "CreateBucket": "s3:CreateBucket",
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "DeleteObjects": "s3:DeleteObject",
    "ListObjectsV2": "s3:ListBucket",
}
"""Actions by request, named as by the SDK."""

_READS: Final = frozenset({"GetObject", "HeadObject"})


def denial_hint(operation: str) -> str:
    """Return what to change after a denied request, as the end of a sentence; empty for an unknown request."""
    action = ACTIONS.get(operation)
    if action is None:
        return ""
    hint = f"; the IAM policy must allow {action}"
    if operation in _READS:
        hint += " and s3:ListBucket, without which S3 answers the same for a missing object"
    return hint

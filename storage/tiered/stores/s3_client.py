"""Types for the used part of the SDK's S3 client. The names are the SDK's."""

from datetime import datetime
from typing import NotRequired, Protocol, TypedDict


class Body(Protocol):
    def read(self, size: int) -> bytes: ...

    def close(self) -> None: ...


class GetAnswer(TypedDict):
    Body: Body
    ContentLength: int
    ETag: NotRequired[str]
    ContentRange: NotRequired[str]


class HeadAnswer(TypedDict):
    ContentLength: int
    Metadata: NotRequired[dict[str, str]]


class CreateAnswer(TypedDict):
    UploadId: str


class DeleteFailure(TypedDict):
    Key: str
    Code: NotRequired[str]
    Message: NotRequired[str]


class DeleteAnswer(TypedDict):
    Errors: NotRequired[list[DeleteFailure]]


class Listed(TypedDict):
    Key: str
    Size: int
    LastModified: datetime


class ListAnswer(TypedDict):
    Contents: NotRequired[list[Listed]]
    NextContinuationToken: NotRequired[str]
    IsTruncated: NotRequired[bool]


class ListedUpload(TypedDict):
    Key: str
    UploadId: str
    Initiated: datetime


class ListUploadsAnswer(TypedDict):
    Uploads: NotRequired[list[ListedUpload]]
    NextKeyMarker: NotRequired[str]
    NextUploadIdMarker: NotRequired[str]
    IsTruncated: NotRequired[bool]


class S3Client(Protocol):
    """The used part of the SDK's client, which has no types."""

    def create_bucket(self, **arguments: object) -> object: ...

    def put_object(self, **arguments: object) -> object: ...

    def get_object(self, **arguments: object) -> GetAnswer: ...

    def head_object(self, **arguments: object) -> HeadAnswer: ...

    def create_multipart_upload(self, **arguments: object) -> CreateAnswer: ...

    def upload_part(self, **arguments: object) -> dict[str, object]: ...

    def complete_multipart_upload(self, **arguments: object) -> object: ...

    def abort_multipart_upload(self, **arguments: object) -> object: ...

    def list_multipart_uploads(self, **arguments: object) -> ListUploadsAnswer: ...

    def delete_objects(self, **arguments: object) -> DeleteAnswer: ...

    def list_objects_v2(self, **arguments: object) -> ListAnswer: ...

    def close(self) -> None: ...

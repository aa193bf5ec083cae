"""Object store in an S3 or compatible bucket. The only module that uses the SDK, imported on first use.

Small objects take one request; a larger one is a multipart upload whose parts are sent one after another from one
buffer. Every request is idempotent and retried by `Retries`, not by the SDK, which has no timeout for a whole call.
Keys have no meaning here.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import NoReturn, Protocol, TypeVar, cast

from protocol.primitives import Buffer
from storage.files import FileSystem, OsFileSystem
from storage.tiered.errors import ObjectNotFound, ObjectStoreError, StoreUnavailable
from storage.tiered.object_store import ObjectInfo
from storage.tiered.statistics import StoreStatistics
from storage.tiered.stores.credentials_file import AccessKeys, CredentialsFile
from storage.tiered.stores.retries import Retries, RetryLimits
from storage.tiered.stores.s3_client import Body, DeleteFailure, GetAnswer, S3Client
from storage.tiered.stores.s3_errors import BucketExists, NoSuchUpload, ObjectChanged, RangeNotSatisfiable, store_error
from storage.tiered.stores.s3_permissions import denial_hint
from storage.tiered.stores.s3_settings import S3Settings
from storage.tiered.stores.unfinished_uploads import UnfinishedUpload
from storage.tiered.stores.upload_parts import upload_parts

__all__ = ["S3Settings", "S3Store"]

_PIECE_BYTES = 4 * 1024 * 1024
"""Read size of a body: a chunk of the default size is one piece."""

_CAREFUL_PIECE_BYTES = 512 * 1024
"""Read size after a broken body, because the bytes of an incomplete piece are requested again."""

_MAX_PARTS = 10_000
"""Maximum number of parts of an upload in S3."""

_MAX_DELETES = 1_000
"""Maximum number of keys per deletion request in S3."""

_DENIED = frozenset({"AccessDenied", "403"})
"""Codes of denied requests; the response to a denied HEAD has no body, and its status stands for the code."""

_CONNECT_TIMEOUT_MS = 5_000
_ATTEMPT_TIMEOUT_MS = 30_000

_UPLOAD_MARK = "ottla-upload"
"""Object metadata that identify the upload that created the object."""

T = TypeVar("T")


class S3Store:
    """Implements ConditionalStore in one bucket. Keys are used as they are, without a prefix."""

    def __init__(
        self,
        settings: S3Settings,
        fs: FileSystem | None = None,
        *,
        monotonic_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
        wait: Callable[[float], bool] | None = None,
        statistics: StoreStatistics | None = None,
    ) -> None:
        """`fs` holds the credentials file. `wait` replaces the wait between attempts, see Retries."""
        self._statistics = statistics or StoreStatistics()
        self._settings = settings
        self._fs = fs or OsFileSystem()
        self._closed = threading.Event()
        limits = RetryLimits(max_attempts=settings.max_attempts, call_timeout_ms=settings.api_call_timeout)
        self._retries = Retries(limits, monotonic_ms, wait or self._closed.wait, Random())
        self._client_lock = threading.Lock()
        self._client: S3Client | None = None

    # -- put ---------------------------------------------------------------------------------------------------------

    def put(self, key: str, parts: Iterable[Buffer]) -> int:
        """Store an object. After StoreUnavailable the object may exist, complete, if only the response was lost."""
        cut = upload_parts(parts, self._settings.multipart_upload_part_size)
        part, is_last = next(cut)
        if is_last:
            request = self._named(key) | self._new_object() | {"Body": part}
            self._call("put_object", lambda client: client.put_object(**request), sent_bytes=len(part))
            return len(part)
        return self._put_in_parts(key, part, cut)

    def put_new(self, key: str, content: Buffer) -> bool:
        new = self._named(key) | self._new_object() | {"Body": bytes(content), "IfNoneMatch": "*"}
        try:
            self._call("put_object", lambda client: client.put_object(**new), sent_bytes=len(content))
        except ObjectChanged:
            return False
        return True

    def _put_in_parts(self, key: str, first: bytearray, rest: Iterator[tuple[bytearray, bool]]) -> int:
        mark = secrets.token_hex(16)
        create = self._named(key) | self._new_object() | {"Metadata": {_UPLOAD_MARK: mark}}
        upload = self._named(key) | {
            "UploadId": self._call("create_multipart_upload", lambda client: client.create_multipart_upload(**create))[
                "UploadId"
            ]
        }
        try:
            done = [self._upload_part(upload, 1, first)]
            size = len(first)
            for part, _ in rest:
                done.append(self._upload_part(upload, len(done) + 1, part))
                size += len(part)
            self._complete(upload, mark, done)
        except BaseException:
            self._abort(upload)
            raise
        return size

    def _upload_part(self, upload: dict[str, object], number: int, part: bytearray) -> dict[str, object]:
        if number > _MAX_PARTS:
            raise ObjectStoreError(f"an object of more than {_MAX_PARTS} parts of {len(part)} bytes cannot be stored")
        request = upload | {"PartNumber": number, "Body": part}
        answer = self._call("upload_part", lambda client: client.upload_part(**request), sent_bytes=len(part))
        checksums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
        return {"PartNumber": number, "ETag": answer["ETag"], **checksums}

    def _complete(self, upload: dict[str, object], mark: str, done: list[dict[str, object]]) -> None:
        """Complete an upload. After a lost response the second attempt finds the upload gone and the object stored."""
        try:
            self._call(
                "complete_multipart_upload",
                lambda client: client.complete_multipart_upload(**upload, MultipartUpload={"Parts": done}),
            )
        except NoSuchUpload:
            named = self._named(str(upload["Key"]))
            found = self._call("head_object", lambda client: client.head_object(**named))
            if found.get("Metadata", {}).get(_UPLOAD_MARK) != mark:
                raise

    def _abort(self, upload: dict[str, object]) -> None:
        """Abort an upload if possible; the first error counts, and `abandoned_uploads` finds what stays."""
        with contextlib.suppress(ObjectStoreError):
            self._call("abort_multipart_upload", lambda client: client.abort_multipart_upload(**upload))

    def _named(self, key: str) -> dict[str, object]:
        return {"Bucket": self._settings.bucket_name, "Key": key}

    def _new_object(self) -> dict[str, object]:
        wanted = {
            "StorageClass": self._settings.storage_class,
            "ServerSideEncryption": self._settings.server_side_encryption,
            "SSEKMSKeyId": self._settings.server_side_encryption_kms_key_id,
        }
        return {name: value for name, value in wanted.items() if value is not None}

    # -- get ---------------------------------------------------------------------------------------------------------

    def get(self, key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        assert last is None or first <= last, "a range has at least one byte"
        arguments = self._named(key)
        if first or last is not None:
            arguments["Range"] = f"bytes={first}-{'' if last is None else last}"
        try:
            answer = self._call("get_object", lambda client: client.get_object(**arguments))
        except RangeNotSatisfiable:
            return self._nothing(key)
        if "Range" in arguments:
            _check_range(answer, key, first, last)
        return self._pieces(key, first, answer)

    def _pieces(self, key: str, first: int, answer: GetAnswer) -> Iterator[bytes]:
        """Yield the body; request the rest again if it breaks."""
        end, at, etag = first + answer["ContentLength"], first, answer.get("ETag")
        body: Body | None = answer["Body"]
        attempts, most = self._retries.begin(), _PIECE_BYTES
        try:
            while at < end:
                try:
                    body = body or self._rest(key, at, end - 1, etag)
                    piece = _piece(body, key, end - at, most)
                except StoreUnavailable as error:
                    if body is not None:
                        body.close()
                    body, most = None, _CAREFUL_PIECE_BYTES
                    if etag is None or not attempts.may_go_on(error):
                        raise
                    continue
                if len(piece) == min(end - at, most):  # a few bytes are no progress
                    attempts = self._retries.begin()
                at += len(piece)
                self._statistics.received(len(piece))
                yield piece
        finally:
            if body is not None:
                body.close()

    def _rest(self, key: str, first: int, last: int, etag: str | None) -> Body:
        """Request the rest of the same object version, in one attempt. Raises ObjectStoreError for another version."""
        client = self._connected()
        try:
            with self._statistics.request("get_object"), _sdk_errors(self._forget_client):
                answer = client.get_object(**self._named(key), Range=f"bytes={first}-{last}", IfMatch=etag)
        except ObjectChanged as error:
            raise ObjectStoreError(f"{key} was replaced while it was read") from error
        _check_range(answer, key, first, last)
        return answer["Body"]

    def _nothing(self, key: str) -> Iterator[bytes]:
        """Return the body of an empty object, which has no satisfiable range. Raises ObjectNotFound otherwise."""
        size = self._call("head_object", lambda client: client.head_object(**self._named(key)))["ContentLength"]
        if size:
            raise ObjectNotFound(f"{key} ends at {size}, before the requested range")
        return iter(())

    # -- delete ------------------------------------------------------------------------------------------------------

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _MAX_DELETES):
            self._delete_some(keys[start : start + _MAX_DELETES])

    def _delete_some(self, keys: Sequence[str]) -> None:
        remaining = list(keys)

        def attempt(client: S3Client) -> None:
            deletion = {"Objects": [{"Key": key} for key in remaining], "Quiet": True}
            answer = client.delete_objects(Bucket=self._settings.bucket_name, Delete=deletion)
            failures = [failure for failure in answer.get("Errors", []) if failure.get("Code") != "NoSuchKey"]
            remaining[:] = [failure["Key"] for failure in failures]
            if failures:
                raise _deletion_error(failures)

        self._call("delete_objects", attempt)

    # -- list --------------------------------------------------------------------------------------------------------

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """List objects, a page of a thousand at a time, on demand."""
        arguments: dict[str, object] = {"Bucket": self._settings.bucket_name, "Prefix": prefix}
        if start_after:
            arguments["StartAfter"] = start_after
        while True:
            page = self._call("list_objects_v2", lambda client: client.list_objects_v2(**arguments))
            for found in page.get("Contents", []):
                modified_ms = round(found["LastModified"].timestamp() * 1000)
                yield ObjectInfo(found["Key"], found["Size"], modified_ms)
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    # -- uploads in parts (UploadsInParts) ---------------------------------------------------------------------------

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """List uploads, a page at a time, on demand."""
        arguments: dict[str, object] = {"Bucket": self._settings.bucket_name, "Prefix": prefix}
        while True:
            page = self._call("list_multipart_uploads", lambda client: client.list_multipart_uploads(**arguments))
            for found in page.get("Uploads", []):
                yield UnfinishedUpload(found["Key"], found["UploadId"], round(found["Initiated"].timestamp() * 1000))
            if not page.get("IsTruncated"):
                return
            arguments["KeyMarker"], arguments["UploadIdMarker"] = page["NextKeyMarker"], page["NextUploadIdMarker"]

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        arguments = self._named(upload.key) | {"UploadId": upload.id}
        with contextlib.suppress(NoSuchUpload):
            self._call("abort_multipart_upload", lambda client: client.abort_multipart_upload(**arguments))

    # -- requests ----------------------------------------------------------------------------------------------------

    def create_bucket(self) -> bool:
        """Create the bucket; return False if it exists and is ours."""
        region = self._settings.region
        place = {} if region in (None, "us-east-1") else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            self._call("create_bucket", lambda client: client.create_bucket(Bucket=self._settings.bucket_name, **place))
        except BucketExists:
            return False
        return True

    def close(self) -> None:
        """Cancel waiting retries; a running request finishes."""
        self._closed.set()
        self._forget_client()

    def _call(self, operation: str, request: Callable[[S3Client], T], *, sent_bytes: int = 0) -> T:
        def attempt() -> T:
            client = self._connected()
            with self._statistics.request(operation, sent_bytes), _sdk_errors(self._forget_client):
                return request(client)

        return self._retries.call(attempt)

    def _connected(self) -> S3Client:
        with self._client_lock:
            if self._closed.is_set():
                raise ObjectStoreError(f"the store of {self._settings.bucket_name} is closed")
            if self._client is None:
                with _sdk_errors(lambda: None):
                    self._client = _connect(self._settings, self._fs)
            return self._client

    def _forget_client(self) -> None:
        """Close the client. A client that found no credentials never looks for them again, so it is replaced, too."""
        with self._client_lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _check_range(answer: GetAnswer, key: str, first: int, last: int | None) -> None:
    """Check Content-Range, `bytes FIRST-LAST/TOTAL`; a server that ignores Range sends everything without it."""
    given, _, total = answer.get("ContentRange", "").removeprefix("bytes ").partition("/")
    end = int(total) - 1 if total.isdigit() else -1
    expected = f"{first}-{end if last is None else min(last, end)}"
    if given != expected:
        answer["Body"].close()
        raise ObjectStoreError(f"bytes {expected} of {key} were requested and {given or 'all'} were sent")


def _piece(body: Body, key: str, left: int, most: int) -> bytes:
    """Read the next piece of a body with `left` bytes."""
    with _sdk_errors(lambda: None):
        piece = body.read(min(left, most))
    if not piece:
        raise StoreUnavailable(f"the last {left} bytes of {key} are missing")
    return piece


def _deletion_error(failures: Sequence[DeleteFailure]) -> ObjectStoreError:
    """Return one error for all failures: the first permanent one if there is one."""
    errors = [
        store_error(failure.get("Code", ""), 200, f"{failure['Key']}: {failure.get('Message', 'no reason given')}")
        for failure in failures
    ]
    error = next((error for error in errors if not isinstance(error, StoreUnavailable)), errors[0])
    return type(error)(f"{len(errors)} objects could not be deleted, among them {error}")


# -- the SDK ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _sdk_errors(when_without_credentials: Callable[[], None]) -> Iterator[None]:
    """Translate the SDK's exceptions."""
    from botocore import exceptions as sdk
    from botocore.parsers import ResponseParserError

    try:
        yield
    except sdk.ClientError as error:
        _raise_answered(error)
    except sdk.NoCredentialsError as error:
        when_without_credentials()
        raise StoreUnavailable(str(error)) from error
    except sdk.SSLError as error:
        broken = "CERTIFICATE_VERIFY_FAILED" in str(error)
        raise (ObjectStoreError if broken else StoreUnavailable)(str(error)) from error
    except (
        sdk.ConnectionError,
        sdk.HTTPClientError,
        sdk.IncompleteReadError,
        sdk.FlexibleChecksumError,
        sdk.CredentialRetrievalError,
        sdk.MetadataRetrievalError,
        ResponseParserError,
    ) as error:
        raise StoreUnavailable(str(error)) from error
    except sdk.BotoCoreError as error:
        raise ObjectStoreError(str(error)) from error


class _Answered(Protocol):
    """A ClientError of the SDK."""

    operation_name: str
    response: dict[str, dict[str, object]]


def _raise_answered(error: Exception) -> NoReturn:
    answered = cast(_Answered, error)
    details = answered.response.get("Error", {})
    status = answered.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(details.get("Code") or "")
    message = f"{answered.operation_name}: {details.get('Message') or 'no reason given'}"
    if code in _DENIED:
        message += denial_hint(answered.operation_name)
    raise store_error(code, int(str(status)), message) from error


def _connect(settings: S3Settings, fs: FileSystem) -> S3Client:
    from botocore.session import Session

    session = Session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
    if settings.credentials_file is not None:
        session.register_component(
            "credential_provider", _FileCredentials(CredentialsFile(fs, settings.credentials_file))
        )
    if settings.provider_methods:
        resolver = session.get_component("credential_provider")
        resolver.providers = [one for one in resolver.providers if one.METHOD in settings.provider_methods]
    client = session.create_client(
        "s3",
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        verify=None if settings.certificate_check_enabled else False,
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret_access_key,
        aws_session_token=settings.session_token,
        config=_client_config(settings),
    )
    if settings.legacy_md5_plugin_enabled:
        client.meta.events.register("before-call.s3.DeleteObjects", _use_md5)
    return cast(S3Client, client)


def _timestamp(value: str) -> datetime:
    """Parse a time in a header or listing. The SDK's parser tries all formats: 50 microseconds a get instead of 2."""
    return datetime.fromisoformat(value) if value[:1].isdigit() else parsedate_to_datetime(value)


def _client_config(settings: S3Settings) -> object:
    from botocore import UNSIGNED
    from botocore.config import Config

    timeout_ms = settings.api_call_attempt_timeout or _ATTEMPT_TIMEOUT_MS
    styles = {None: "auto", True: "path", False: "virtual"}
    checksums = "when_supported" if settings.checksum_check_enabled else "when_required"
    return Config(
        signature_version=UNSIGNED if settings.provider_methods == () else None,
        connect_timeout=min(timeout_ms, _CONNECT_TIMEOUT_MS) / 1000,
        read_timeout=timeout_ms / 1000,
        max_pool_connections=settings.max_connections,
        tcp_keepalive=True,
        retries={"total_max_attempts": 1, "mode": "standard"},
        request_checksum_calculation=checksums,
        response_checksum_validation=checksums,
        s3={"addressing_style": styles[settings.path_style_access_enabled]},
    )


class _FileCredentials:
    """Credentials provider and credentials for the SDK, which reads them before each request."""

    def __init__(self, file: CredentialsFile) -> None:
        self._file = file

    def load_credentials(self) -> "_FileCredentials":
        return self

    def get_frozen_credentials(self) -> AccessKeys:
        return self._file.read()

    def get_deferred_property(self, name: str) -> Callable[[], None]:
        """Return the unknown account number."""
        return lambda: None


def _use_md5(params: dict[str, object], **_: object) -> None:
    """Replace the SDK's checksum by Content-MD5."""
    from base64 import b64encode
    from hashlib import md5

    body, headers, context = params["body"], params["headers"], params["context"]
    assert isinstance(body, bytes | bytearray)
    assert isinstance(headers, dict)
    assert isinstance(context, dict)
    headers["Content-MD5"] = b64encode(md5(body, usedforsecurity=False).digest()).decode()
    context.pop("checksum", None)
    for name in [name for name in headers if name.lower().startswith(("x-amz-checksum-", "x-amz-sdk-checksum-"))]:
        del headers[name]

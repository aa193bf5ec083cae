"""S3 store: error responses, retries and their delays, headers, credentials."""

import datetime
import ipaddress
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from protocol.primitives import Buffer
from storage.tiered.errors import ObjectNotFound, ObjectStoreError, StoreThrottled, StoreUnavailable
from storage.tiered.stores.s3 import S3Settings, S3Store
from storage.tiered.stores.s3_errors import store_error
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.stub_s3_server import Answer, Request, StubS3Server, refusal
from tests.support.processes.closed_port import closed_port

MIB = 1024 * 1024
PART = 5 * MIB

CREATED = Answer(body=b"<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>")
COMPLETED = Answer(body=b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
SLOW_DOWN = refusal(503, "SlowDown")
DOWN = refusal(503, "ServiceUnavailable")


def part_answer(number: int) -> Answer:
    return Answer(headers={"ETag": f'"part-{number}"'})


class Waits:
    """Records the waits in seconds without waiting."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.give_up_after: int | None = None

    def __call__(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return self.give_up_after is not None and len(self.seconds) >= self.give_up_after

    def monotonic_ms(self) -> float:
        return sum(self.seconds) * 1000


@pytest.fixture
def server() -> Iterator[StubS3Server]:
    with StubS3Server() as stub:
        yield stub


@pytest.fixture
def settings(server: StubS3Server) -> S3Settings:
    return S3Settings(
        bucket_name="bucket",
        region="eu-north-1",
        endpoint_url=server.endpoint,
        multipart_upload_part_size=PART,
        access_key_id="AKID",
        secret_access_key="secret",
    )


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def store(settings: S3Settings, waits: Waits) -> Iterator[S3Store]:
    made = make(settings, waits)
    yield made
    made.close()


def make(settings: S3Settings, waits: Waits, fs: MemoryFileSystem | None = None) -> S3Store:
    return S3Store(settings, fs, monotonic_ms=waits.monotonic_ms, wait=waits)


# -- responses
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (503, "SlowDown", StoreThrottled),
        (503, "SlowDownWrite", StoreThrottled),
        (429, "", StoreThrottled),
        (429, "TooManyRequests", StoreThrottled),
        (400, "KMS.ThrottlingException", StoreThrottled),
        (400, "RequestLimitExceeded", StoreThrottled),
        (200, "SlowDown", StoreThrottled),
        (500, "InternalError", StoreUnavailable),
        (200, "InternalError", StoreUnavailable),
        (502, "502", StoreUnavailable),
        (503, "ServiceUnavailable", StoreUnavailable),
        (503, "503", StoreUnavailable),
        (400, "RequestTimeout", StoreUnavailable),
        (409, "OperationAborted", StoreUnavailable),
        (400, "ExpiredToken", StoreUnavailable),
        (409, "ExistingObjectIsDirectory", StoreUnavailable),
        (404, "NoSuchKey", ObjectNotFound),
        (404, "404", ObjectNotFound),
        (416, "InvalidRange", ObjectNotFound),
        (404, "NoSuchBucket", ObjectStoreError),
        (404, "NoSuchUpload", ObjectStoreError),
        (403, "AccessDenied", ObjectStoreError),
        (403, "InvalidAccessKeyId", ObjectStoreError),
        (400, "EntityTooSmall", ObjectStoreError),
        (501, "NotImplemented", ObjectStoreError),
    ],
)
def test_error_responses_are_classified(status: int, code: str, expected: type[ObjectStoreError]) -> None:
    error = store_error(code, status, "because")
    kinds = [kind for kind in (StoreThrottled, StoreUnavailable, ObjectNotFound, ObjectStoreError)]
    assert next(kind for kind in kinds if isinstance(error, kind)) is expected
    assert str(error) == f"because ({code or status})"


def test_creating_a_store_does_not_import_the_sdk() -> None:
    """Nodes without remote storage start without the SDK."""
    code = (
        "import sys; from storage.tiered.stores.s3 import S3Settings, S3Store; "
        "S3Store(S3Settings(bucket_name='b', region='r')); "
        "sys.exit(any(name.partition('.')[0] in ('boto3', 'botocore', 'urllib3') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- retries
# -------------------------------------------------------------------------------------------------------------


def test_throttled_request_backs_off_longer(server: StubS3Server, store: S3Store, waits: Waits) -> None:
    server.plan = [SLOW_DOWN, SLOW_DOWN, SLOW_DOWN, Answer()]
    assert store.put("a", [b"x"]) == 1
    assert [request.body for request in server.requests] == [b"x"] * 4
    for seconds, longest in zip(waits.seconds, [1, 2, 4], strict=True):
        assert longest / 2 <= seconds <= longest


def test_attempts_are_limited_and_the_last_error_is_raised(server: StubS3Server, store: S3Store, waits: Waits) -> None:
    server.plan = [DOWN, DOWN, DOWN, SLOW_DOWN]
    with pytest.raises(StoreThrottled, match="PutObject: because"):
        store.put("a", [b"x"])
    assert len(waits.seconds) == 3
    server.plan = [SLOW_DOWN, DOWN, SLOW_DOWN, DOWN]
    with pytest.raises(StoreUnavailable) as caught:
        store.get("a")
    assert not isinstance(caught.value, StoreThrottled)


def test_call_timeout_ends_the_attempts(server: StubS3Server, settings: S3Settings, waits: Waits) -> None:
    store = make(replace(settings, api_call_timeout=2_600, max_attempts=100), waits)
    server.plan = [SLOW_DOWN] * 10
    with pytest.raises(StoreThrottled):
        store.put("a", [b"x"])
    assert sum(waits.seconds) < 2.6
    assert 2 <= len(server.requests) <= 4
    store.close()


def test_refused_request_is_not_retried(server: StubS3Server, store: S3Store, waits: Waits) -> None:
    server.plan = [refusal(403, "AccessDenied")]
    with pytest.raises(ObjectStoreError, match="AccessDenied") as caught:
        store.put("a", [b"x"])
    assert not isinstance(caught.value, StoreUnavailable)
    assert waits.seconds == []


def test_close_ends_a_back_off(server: StubS3Server, store: S3Store, waits: Waits) -> None:
    waits.give_up_after = 1
    server.plan = [DOWN, DOWN]
    with pytest.raises(StoreUnavailable):
        store.put("a", [b"x"])
    assert len(server.requests) == 1
    store.close()
    with pytest.raises(ObjectStoreError, match="closed"):
        store.put("a", [b"x"])


def test_refused_connection_is_unavailable(settings: S3Settings, waits: Waits) -> None:
    with closed_port() as port:
        store = make(replace(settings, endpoint_url=f"http://127.0.0.1:{port}"), waits)
        for attempt in (lambda: store.put("a", [b"x"]), lambda: store.get("a"), lambda: list(store.list("a"))):
            with pytest.raises(StoreUnavailable, match="Could not connect"):
                attempt()
    assert len(waits.seconds) == 9
    store.close()


def test_lost_connection_is_retried(server: StubS3Server, store: S3Store) -> None:
    server.plan = [Answer(status=None), Answer(body=b"all")]
    assert b"".join(store.get("a")) == b"all"


def test_attempt_timeout_is_unavailable(server: StubS3Server, settings: S3Settings, waits: Waits) -> None:
    store = make(replace(settings, api_call_attempt_timeout=50, max_attempts=2), waits)
    server.plan = [Answer(never=True), Answer(never=True)]
    with pytest.raises(StoreUnavailable, match="timeout"):
        store.put("a", [b"x"])
    store.close()


def test_invalid_response_is_unavailable(server: StubS3Server, store: S3Store) -> None:
    """The response is an error page of a proxy."""
    server.plan = [Answer(502, b"<html>Bad gateway"), Answer(200, b"<html>"), Answer(body=b"<ListBucketResult/>")]
    assert list(store.list("")) == []


# -- bodies ------------------------------------------------------------------------------------------------------------


def test_truncated_body_raises_an_error(server: StubS3Server, store: S3Store) -> None:
    server.plan = [Answer(body=bytes(3 * MIB), cut_after=2 * MIB + 17)] * 10
    pieces = store.get("a")
    assert len(next(pieces)) == 2 * MIB + 17
    with pytest.raises(StoreUnavailable):
        b"".join(pieces)


CONTENT = bytes(range(256)) * (3 * MIB // 256)


def rest(first: int, *, cut_after: int | None = None) -> Answer:
    """Return CONTENT from `first` to its last byte but one."""
    headers = {"Content-Range": f"bytes {first}-{len(CONTENT) - 2}/{len(CONTENT)}", "ETag": '"one"'}
    return Answer(206, CONTENT[first:-1], headers, cut_after=cut_after)


def test_interrupted_body_resumes_at_its_position(server: StubS3Server, store: S3Store, waits: Waits) -> None:
    last = len(CONTENT) - 2
    broke = 7 + MIB + 17
    server.plan = [rest(7, cut_after=MIB + 17), Answer(None), rest(broke, cut_after=MIB), rest(broke + MIB)]
    assert b"".join(store.get("a", 7, last)) == CONTENT[7:-1]
    ranges = [(request.headers["range"], request.headers.get("if-match")) for request in server.requests]
    assert ranges == [
        (f"bytes=7-{last}", None),
        (f"bytes={broke}-{last}", '"one"'),
        (f"bytes={broke}-{last}", '"one"'),
        (f"bytes={broke + MIB}-{last}", '"one"'),
    ]
    assert len(waits.seconds) == 3


def test_resumed_body_is_read_in_smaller_pieces(server: StubS3Server, store: S3Store) -> None:
    """A body that breaks after every megabyte would never arrive with large pieces."""
    server.plan = [rest(7, cut_after=MIB), rest(7 + MIB)]
    pieces = [len(piece) for piece in store.get("a", 7, len(CONTENT) - 2)]
    assert pieces[0] == MIB
    assert max(pieces[1:]) == MIB // 2


def test_repeatedly_interrupted_body_is_unavailable(server: StubS3Server, store: S3Store, waits: Waits) -> None:
    server.plan = [rest(7, cut_after=MIB), *(rest(7 + MIB + 5 * number, cut_after=5) for number in range(3))]
    pieces = store.get("a", 7, len(CONTENT) - 2)
    with pytest.raises(StoreUnavailable):
        b"".join(pieces)
    assert (len(server.requests), len(waits.seconds)) == (4, 3)


def test_object_replaced_during_the_read_is_an_error(server: StubS3Server, store: S3Store) -> None:
    server.plan = [rest(7, cut_after=MIB), refusal(412, "PreconditionFailed")]
    with pytest.raises(ObjectStoreError, match="replaced"):
        b"".join(store.get("a", 7, len(CONTENT) - 2))


def test_stalled_body_is_unavailable(server: StubS3Server, settings: S3Settings, waits: Waits) -> None:
    store = make(replace(settings, api_call_attempt_timeout=50), waits)
    late = Answer(body=b"some", headers={"Content-Length": "100"})
    server.plan = [late] * 10  # a busy machine may retry before the first bytes arrive
    with pytest.raises(StoreUnavailable):
        list(store.get("a"))
    store.close()


@pytest.mark.parametrize("given", ["bytes 0-4/10", "bytes 3-5/10", "bytes 3-9/10", ""])
def test_response_with_another_range_is_an_error(server: StubS3Server, store: S3Store, given: str) -> None:
    server.plan = [Answer(206, b"01234", {"Content-Range": given} if given else {})]
    with pytest.raises(ObjectStoreError, match="were requested"):
        store.get("a", 3, 7)


def test_connections_are_reused(server: StubS3Server, store: S3Store) -> None:
    server.plan = [Answer(body=bytes(3 * MIB)), Answer(206, bytes(10), {"Content-Range": "bytes 5-14/15"})] * 5
    for _ in range(5):
        assert len(b"".join(store.get("a"))) == 3 * MIB
        assert len(b"".join(store.get("a", 5))) == 10
    assert server.connection_count == 1


# -- multipart uploads
# ---------------------------------------------------------------------------------------------------


def test_parts_have_one_size_and_are_completed_in_order(server: StubS3Server, store: S3Store) -> None:
    server.plan = [CREATED, part_answer(1), part_answer(2), part_answer(3), COMPLETED]
    assert store.put("t/a.log", [bytes(2 * PART), b"end"]) == 2 * PART + 3
    assert server.request_lines == [
        "POST /bucket/t/a.log?uploads",
        "PUT /bucket/t/a.log?uploadId=u1&partNumber=1",
        "PUT /bucket/t/a.log?uploadId=u1&partNumber=2",
        "PUT /bucket/t/a.log?uploadId=u1&partNumber=3",
        "POST /bucket/t/a.log?uploadId=u1",
    ]
    assert [len(request.body) for request in server.requests[1:4]] == [PART, PART, 3]
    assert server.requests[4].body.count(b"<ETag>&quot;part-") + server.requests[4].body.count(b'<ETag>"part-') == 3


def test_source_is_read_at_most_one_part_ahead(server: StubS3Server, store: S3Store) -> None:
    sent_at_part = []

    def source() -> Iterator[Buffer]:
        for _ in range(20):
            sent_at_part.append(len(server.requests))
            yield bytes(MIB)

    server.plan = [CREATED, *map(part_answer, range(4)), COMPLETED]
    store.put("a", source())
    assert sent_at_part == [0] * 6 + [2] * 5 + [3] * 5 + [4] * 4


def test_failed_upload_is_aborted(server: StubS3Server, store: S3Store) -> None:
    server.plan = [CREATED, part_answer(1), refusal(400, "EntityTooSmall"), Answer(204)]
    with pytest.raises(ObjectStoreError, match="EntityTooSmall"):
        store.put("a", [bytes(2 * PART + 1)])
    assert server.request_lines[-1] == "DELETE /bucket/a?uploadId=u1"


def test_failed_abort_does_not_replace_the_first_error(server: StubS3Server, store: S3Store) -> None:
    server.plan = [CREATED, refusal(400, "EntityTooSmall"), refusal(403, "AccessDenied")]
    with pytest.raises(ObjectStoreError, match="EntityTooSmall"):
        store.put("a", [bytes(PART + 1)])


def test_part_is_retried(server: StubS3Server, store: S3Store) -> None:
    server.plan = [CREATED, DOWN, part_answer(1), SLOW_DOWN, part_answer(2), COMPLETED]
    data = bytes(range(256)) * (PART // 256) + b"end"
    store.put("a", [data])
    assert server.requests[1].body == server.requests[2].body == data[:PART]
    assert server.requests[3].body == server.requests[4].body == b"end"


def _mark(request: Request) -> str:
    return request.headers["x-amz-meta-ottla-upload"]


def test_completion_with_lost_response_is_recognized(server: StubS3Server, store: S3Store) -> None:
    def found() -> Answer:
        return Answer(headers={"x-amz-meta-ottla-upload": _mark(server.requests[0])})

    server.plan = [CREATED, part_answer(1), part_answer(2), Answer(None), refusal(404, "NoSuchUpload"), found]
    assert store.put("a", [bytes(PART + 1)]) == PART + 1
    assert server.request_lines[-1] == "HEAD /bucket/a"


def test_object_of_another_upload_does_not_complete_the_put(server: StubS3Server, store: S3Store) -> None:
    other = Answer(headers={"x-amz-meta-ottla-upload": "0" * 32})
    no_such_upload = refusal(404, "NoSuchUpload")
    server.plan = [CREATED, part_answer(1), part_answer(2), Answer(None), no_such_upload, other, no_such_upload]
    with pytest.raises(ObjectStoreError, match="NoSuchUpload"):
        store.put("a", [bytes(PART + 1)])
    assert server.request_lines[-1] == "DELETE /bucket/a?uploadId=u1"


# -- deletes -----------------------------------------------------------------------------------------------------------


def delete_answer(**failures: str) -> Answer:
    errors = "".join(f"<Error><Key>{key}</Key><Code>{code}</Code></Error>" for key, code in failures.items())
    return Answer(body=f"<DeleteResult>{errors}</DeleteResult>".encode())


def test_failed_deletions_are_retried(server: StubS3Server, store: S3Store) -> None:
    server.plan = [delete_answer(b="SlowDown", c="InternalError", d="NoSuchKey"), delete_answer()]
    store.delete(["a", "b", "c", "d"])
    assert [request.body.count(b"<Key>") for request in server.requests] == [4, 2]


def test_permanent_deletion_failure_is_reported(server: StubS3Server, store: S3Store) -> None:
    server.plan = [delete_answer(b="InternalError", c="AccessDenied")]
    with pytest.raises(ObjectStoreError, match=r"2 objects .* c: no reason given \(AccessDenied\)"):
        store.delete(["a", "b", "c"])
    server.plan = [delete_answer(b="SlowDown")] * 4
    with pytest.raises(StoreThrottled, match="1 objects"):
        store.delete(["a", "b"])


def test_delete_sends_1000_keys_per_request(server: StubS3Server, store: S3Store) -> None:
    server.plan = [delete_answer()] * 3
    store.delete([f"k{number}" for number in range(2_001)])
    assert [request.body.count(b"<Key>") for request in server.requests] == [1_000, 1_000, 1]


# -- lists -------------------------------------------------------------------------------------------------------------


def list_answer(*keys: str, more: str = "") -> Answer:
    entry = "<Contents><Key>{}</Key><Size>5</Size><LastModified>2026-01-02T03:04:05.678Z</LastModified></Contents>"
    entries = "".join(entry.format(key) for key in keys)
    next_page = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    return Answer(body=f"<ListBucketResult>{entries}{next_page}</ListBucketResult>".encode())


def test_list_pages_are_fetched_on_demand(server: StubS3Server, store: S3Store) -> None:
    server.plan = [list_answer("a", "b", more="t1"), DOWN, list_answer("c")]
    found = store.list("p/", "p/0")
    assert server.requests == []
    assert next(found).key == "a"
    info = next(found)
    assert (info.key, info.size, info.modified_ms) == ("b", 5, 1767323045678)
    assert len(server.requests) == 1
    assert [info.key for info in found] == ["c"]
    assert "start-after=p%2F0" in server.request_lines[0]
    assert "continuation-token=t1" in server.request_lines[2]


# -- headers and parameters
# ----------------------------------------------------------------------------------------------


def test_storage_class_and_encryption_are_sent_with_every_new_object(
    server: StubS3Server, settings: S3Settings, waits: Waits
) -> None:
    store = make(
        replace(
            settings,
            storage_class="STANDARD_IA",
            server_side_encryption="aws:kms",
            server_side_encryption_kms_key_id="arn:key",
        ),
        waits,
    )
    server.plan = [Answer(), CREATED, part_answer(1), part_answer(2), COMPLETED]
    store.put("small", [b"x"])
    store.put("large", [bytes(PART + 1)])
    for request in server.requests[:2]:
        assert request.headers["x-amz-storage-class"] == "STANDARD_IA"
        assert request.headers["x-amz-server-side-encryption"] == "aws:kms"
        assert request.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "arn:key"
    assert "x-amz-storage-class" not in server.requests[2].headers
    store.close()


def _checksums(request: Request) -> set[str]:
    return {name for name in request.headers if name.startswith("x-amz-checksum-") or name == "content-md5"}


def test_checksums_are_sent_where_required_or_configured(
    server: StubS3Server, settings: S3Settings, waits: Waits
) -> None:
    server.plan = [Answer(), delete_answer()] * 3
    plain, checked, legacy = (
        make(changed, waits)
        for changed in (
            settings,
            replace(settings, checksum_check_enabled=True),
            replace(settings, legacy_md5_plugin_enabled=True),
        )
    )
    for store in (plain, checked, legacy):
        store.put("a", [b"x"])
        store.delete(["a"])
        store.close()
    put, delete, checked_put, checked_delete, legacy_put, legacy_delete = map(_checksums, server.requests)
    assert (put, legacy_put) == (set(), set())
    assert delete == checked_put == checked_delete == {"x-amz-checksum-crc32"}
    assert legacy_delete == {"content-md5"}


def test_bucket_is_in_the_path_or_in_the_host(
    server: StubS3Server, settings: S3Settings, waits: Waits, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def local(host: str, *arguments: Any, **options: Any) -> Any:
        return real("127.0.0.1" if host.endswith("s3.test") else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", local)
    endpoint = f"http://s3.test:{server.port}"
    server.plan = [Answer()] * 3
    for style in (None, True, False):
        store = make(replace(settings, endpoint_url=endpoint, path_style_access_enabled=style), waits)
        store.put("a", [b"x"])
        store.close()
    hosts_and_paths = [(request.headers["host"].partition(":")[0], request.path) for request in server.requests]
    assert hosts_and_paths == [("s3.test", "/bucket/a")] * 2 + [("bucket.s3.test", "/a")]


# -- credentials -------------------------------------------------------------------------------------------------------


def _key_id(request: Request) -> str | None:
    authorization = request.headers.get("authorization")
    return authorization and authorization.partition("Credential=")[2].partition("/")[0]


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def without_keys(settings: S3Settings, **changes: str) -> S3Settings:
    cleared = replace(settings, access_key_id=None, secret_access_key=None)
    return replace(cleared, **changes)  # type: ignore[arg-type]  # text settings only


def test_configured_keys_precede_the_environment(
    server: StubS3Server, settings: S3Settings, waits: Waits, no_credentials: pytest.MonkeyPatch
) -> None:
    no_credentials.setenv("AWS_ACCESS_KEY_ID", "ENV")
    no_credentials.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    server.plan = [Answer()] * 3
    for made in (replace(settings, session_token="token"), without_keys(settings)):
        store = make(made, waits)
        store.put("a", [b"x"])
        store.close()
    assert [_key_id(request) for request in server.requests] == ["AKID", "ENV"]
    assert server.requests[0].headers["x-amz-security-token"] == "token"


def test_credentials_provider_can_be_selected(
    server: StubS3Server, settings: S3Settings, waits: Waits, no_credentials: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_credentials.setenv("AWS_ACCESS_KEY_ID", "ENV")
    no_credentials.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id=PROFILE\naws_secret_access_key=secret\n")
    server.plan = [Answer()] * 3
    for name in ("ProfileCredentialsProvider", "DefaultCredentialsProvider", "AnonymousCredentialsProvider"):
        provider = f"software.amazon.awssdk.auth.credentials.{name}"
        store = make(without_keys(settings, credentials_provider_class=provider), waits)
        store.put("a", [b"x"])
        store.close()
    assert [_key_id(request) for request in server.requests] == ["PROFILE", "ENV", None]


def test_late_credentials_are_found(
    server: StubS3Server, settings: S3Settings, waits: Waits, no_credentials: pytest.MonkeyPatch
) -> None:
    store = make(without_keys(settings), waits)
    with pytest.raises(StoreUnavailable, match="credentials"):
        store.put("a", [b"x"])
    no_credentials.setenv("AWS_ACCESS_KEY_ID", "LATE")
    no_credentials.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    server.plan = [Answer()]
    store.put("a", [b"x"])
    assert [_key_id(request) for request in server.requests] == ["LATE"]
    store.close()


def _write(fs: MemoryFileSystem, path: str, text: str) -> None:
    fs.now_ms += 1
    file = fs.open(path)
    file.truncate(0)
    file.write(0, text.encode())
    file.close()


def test_key_file_may_be_rotated(server: StubS3Server, settings: S3Settings, waits: Waits) -> None:
    fs = MemoryFileSystem()
    store = make(without_keys(settings, credentials_file="/keys"), waits, fs)
    server.plan = [Answer()] * 4
    with pytest.raises(StoreUnavailable, match="no access keys"):
        store.put("a", [b"x"])
    _write(fs, "/keys", "aws.access.key.id=ONE\naws.secret.access.key=secret\naws.session.token=token")
    store.put("a", [b"x"])
    _write(fs, "/keys", "aws.access.key.id=half-writ")
    store.put("a", [b"x"])
    _write(fs, "/keys", "rsm.config.storage.aws.access.key.id=TWO\nrsm.config.storage.aws.secret.access.key=s")
    store.put("a", [b"x"])
    fs.remove("/keys")
    store.put("a", [b"x"])
    assert [_key_id(request) for request in server.requests] == ["ONE", "ONE", "TWO", "TWO"]
    assert [request.headers.get("x-amz-security-token") for request in server.requests[1:3]] == ["token", None]
    store.close()


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """Context of a server with a self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stub")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "server.pem").write_bytes(private + certificate.public_bytes(encoding))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    return context


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_certificates_are_verified_unless_disabled(tls: ssl.SSLContext, settings: S3Settings, waits: Waits) -> None:
    with StubS3Server(tls) as server:
        server.plan = [Answer()]
        checking = make(replace(settings, endpoint_url=server.endpoint), waits)
        with pytest.raises(ObjectStoreError, match="CERTIFICATE_VERIFY_FAILED"):
            checking.put("a", [b"x"])
        assert waits.seconds == [], "an invalid certificate is not retried"
        trusting = make(replace(settings, endpoint_url=server.endpoint, certificate_check_enabled=False), waits)
        trusting.put("a", [b"x"])
        checking.close()
        trusting.close()


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"bucket_name": ""}, "storage.s3.bucket.name"),
        ({"region": ""}, "storage.s3.region"),
        ({"multipart_upload_part_size": PART - 1}, "storage.s3.multipart.upload.part.size"),
        ({"multipart_upload_part_size": 2**31}, "storage.s3.multipart.upload.part.size"),
        ({"server_side_encryption": "rot13"}, "storage.s3.server.side.encryption"),
        ({"server_side_encryption_kms_key_id": "k"}, "storage.s3.server.side.encryption.kms.key.id"),
        ({"api_call_timeout": 0}, "storage.s3.api.call.timeout"),
        ({"max_attempts": 0}, "storage.s3.max.attempts"),
        ({"secret_access_key": None}, "storage.aws.secret.access.key"),
        ({"credentials_file": "/keys"}, "storage.aws.credentials.file"),
        (
            {"access_key_id": None, "secret_access_key": None, "session_token": "t"},
            "storage.aws.session.token",
        ),
        (
            {"access_key_id": None, "secret_access_key": None, "credentials_provider_class": "com.example.Mine"},
            "storage.aws.credentials.provider.class",
        ),
    ],
)
def test_error_names_an_invalid_setting(settings: S3Settings, changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=key.replace(".", r"\.")):
        replace(settings, **changes)


def test_secrets_are_not_shown(settings: S3Settings) -> None:
    shown = repr(replace(settings, session_token="token"))
    assert not any(secret in shown for secret in ("AKID", "'secret'", "token'"))

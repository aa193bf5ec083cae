"""A real S3 server that stops and restarts, and leftovers of uploads on it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.primitives import Buffer
from storage.tiered.errors import StoreUnavailable
from storage.tiered.stores.s3 import S3Store
from tests.support.processes.s3_server import BUCKET, S3Server, unavailable_reason

pytestmark = pytest.mark.integration

PART = 5 * 1024 * 1024


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    if reason := unavailable_reason():
        pytest.skip(reason)
    with S3Server(tmp_path / "s3") as running:
        yield running


@pytest.fixture
def store(server: S3Server) -> Iterator[S3Store]:
    made = S3Store(server.impatient_settings)
    yield made
    made.close()


def content(store: S3Store, key: str) -> bytes:
    return b"".join(store.get(key))


def open_uploads(server: S3Server) -> list[str]:
    """Return the keys of open multipart uploads."""
    from botocore.session import Session

    client = Session().create_client(
        "s3",
        region_name=server.settings.region,
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
    )
    found = client.list_multipart_uploads(Bucket=BUCKET)
    client.close()
    return [str(upload["Key"]) for upload in found.get("Uploads", [])]


def test_objects_survive_a_server_restart(server: S3Server, store: S3Store) -> None:
    store.put("t/0/a", [b"before"])
    server.stop()
    for operation in (
        lambda: store.put("t/0/b", [b"x"]),
        lambda: store.get("t/0/a"),
        lambda: store.delete(["t/0/a"]),
        lambda: list(store.list("")),
    ):
        with pytest.raises(StoreUnavailable):
            operation()
    server.start()
    assert [info.key for info in store.list("")] == ["t/0/a"]
    assert content(store, "t/0/a") == b"before"
    store.put("t/0/b", [b"after"])
    assert content(store, "t/0/b") == b"after"


def test_retries_outlast_a_short_outage(server: S3Server) -> None:
    def wait(seconds: float) -> bool:
        server.start()
        return False

    store = S3Store(server.settings, wait=wait)
    store.put("a", [b"x"])
    server.stop()
    assert content(store, "a") == b"x"
    store.close()


def test_outage_during_an_upload_leaves_no_object(server: S3Server, store: S3Store) -> None:
    def parts() -> Iterator[Buffer]:
        yield bytes(2 * PART)
        server.stop()
        yield bytes(PART)

    with pytest.raises(StoreUnavailable):
        store.put("a", parts())
    server.start()
    assert list(store.list("")) == []
    assert open_uploads(server) == ["a"], "the upload stays open until a lifecycle rule of the bucket aborts it"


def test_outage_during_a_download_raises_an_error(server: S3Server, store: S3Store) -> None:
    store.put("a", [bytes(8 * PART)])
    pieces = store.get("a")
    next(pieces)
    server.stop()
    with pytest.raises(StoreUnavailable):
        b"".join(pieces)


def test_stalled_server_is_unavailable_until_it_responds(server: S3Server, store: S3Store) -> None:
    store.put("a", [b"x"])
    impatient = S3Store(replace(server.impatient_settings, api_call_attempt_timeout=100))
    server.pause()
    with pytest.raises(StoreUnavailable, match="timeout"):
        impatient.get("a")
    server.resume()
    assert content(store, "a") == b"x"
    impatient.close()


def test_failing_source_aborts_the_upload(server: S3Server, store: S3Store) -> None:
    class SourceFailed(Exception):
        pass

    def parts() -> Iterator[Buffer]:
        yield bytes(2 * PART)
        assert open_uploads(server) == ["a"]
        raise SourceFailed

    with pytest.raises(SourceFailed):
        store.put("a", parts())
    assert open_uploads(server) == []
    assert list(store.list("")) == []

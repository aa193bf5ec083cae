"""Object store URIs: parsing, refusals with their messages, and opening."""

import pickle
from pathlib import Path

import pytest

from storage.tiered.errors import StoreUnavailable
from storage.tiered.loading.store_uri import StoreUri, StoreUriError, open_store, parse_store_uri
from storage.tiered.stores.directory_store import DirectoryStore
from storage.tiered.stores.s3 import S3Store
from tests.support.fakes.memory_files import MemoryFileSystem
from tests.support.fakes.stub_s3_server import Answer, StubS3Server


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/a/b", StoreUri(directory="/a/b")),
        ("out", StoreUri(directory="out")),
        ("what?region=eu", StoreUri(directory="what?region=eu")),
        ("file:///a/b%20c", StoreUri(directory="/a/b c")),
        ("file://localhost/a", StoreUri(directory="/a")),
        ("file:/a", StoreUri(directory="/a")),
        ("s3://bucket", StoreUri(bucket="bucket")),
        ("s3://bucket/", StoreUri(bucket="bucket")),
        ("s3a://bucket/a/b/", StoreUri(bucket="bucket", prefix="a/b/")),
        (
            "s3://bucket/a?endpoint=http://127.0.0.1:9000&region=eu-west-1&path-style=true",
            StoreUri("", "bucket", "a/", "http://127.0.0.1:9000", "eu-west-1", True),
        ),
        ("s3://bucket?path-style=false", StoreUri(bucket="bucket", is_path_style=False)),
    ],
)
def test_uri_is_parsed(uri: str, expected: StoreUri) -> None:
    assert parse_store_uri(uri) == expected
    assert pickle.loads(pickle.dumps(parse_store_uri(uri))) == expected


@pytest.mark.parametrize(
    ("uri", "word"),
    [
        ("", "needs a name"),
        ("  ", "needs a name"),
        ("file://", "from the root"),
        ("file:a", "from the root"),
        ("file://host/a", "another machine"),
        ("file:///a?region=x", "no options"),
        ("hdfs://a/b", "hdfs:// is no object store"),
        ("s3://", "does not name a bucket"),
        ("s3:///a", "does not name a bucket"),
        ("s3://host:9000/a", "endpoint="),
        ("s3://bucket/../a", "prefix"),
        ("s3://bucket/a#b", "prefix"),
        ("s3://bucket?regoin=x", "'regoin'; there are endpoint, region, path-style"),
        ("s3://bucket?region=", "one value"),
        ("s3://bucket?region=a&region=b", "one value"),
        ("s3://bucket?path-style=yes", "true or false"),
        ("s3://bucket?endpoint=localhost:9000", "http://host"),
        ("s3://bucket?endpoint=http://[1", "http://host"),
        ("s3://bucket?endpoint=http://h:99999", "http://host"),
        ("s3://[bucket", "not a valid URI"),
        ("/a\0b", "not the name of a directory"),
    ],
)
def test_invalid_uri_is_refused_with_one_sentence(uri: str, word: str) -> None:
    with pytest.raises(StoreUriError) as raised:
        parse_store_uri(uri)
    assert word in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("uri", ["s3://key:sesame@bucket/a", "s3://bucket?endpoint=http://key:sesame@host"])
def test_credentials_in_a_uri_are_refused_and_omitted_from_the_error(uri: str) -> None:
    with pytest.raises(StoreUriError, match="credentials") as raised:
        parse_store_uri(uri)
    assert "sesame" not in str(raised.value)


def test_directory_uri_is_opened_at_its_path() -> None:
    fs = MemoryFileSystem()
    at = open_store("/snapshots", fs=fs)
    at.store.put(at.key("one"), [b"1"])
    assert isinstance(at.store, DirectoryStore)
    assert [at.name(info.key) for info in at.store.list(at.key(""))] == ["one"]
    assert fs.exists("/snapshots/one")


def test_reader_creates_no_directory() -> None:
    fs = MemoryFileSystem()
    with pytest.raises(StoreUnavailable, match="the directory /snapshots does not exist"):
        open_store("/snapshots", fs=fs, must_exist=True)
    assert not fs.exists("/snapshots")
    fs.make_directory("/snapshots")
    assert list(open_store("/snapshots", fs=fs, must_exist=True).store.list("")) == []


def test_relative_directory_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    at = open_store("out")
    at.store.put(at.key("one"), [b"1"])
    assert (tmp_path / "out" / "one").read_bytes() == b"1"


def test_bucket_prefix_is_part_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials and region come from the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-7")
    with StubS3Server() as server:
        server.plan.append(Answer())
        at = open_store(f"s3a://bucket/some/where?endpoint={server.endpoint}&path-style=true")
        assert isinstance(at.store, S3Store)
        at.store.put(at.key("one"), [b"1"])
        at.store.close()
    (request,) = server.requests
    assert request.path == "/bucket/some/where/one"
    assert "AKIDEXAMPLE/" in request.headers["authorization"]
    assert "/eu-central-7/s3/" in request.headers["authorization"]


def test_custom_endpoint_needs_no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with StubS3Server() as server:
        server.plan.append(Answer(body=b"1"))
        at = open_store(f"s3://bucket?endpoint={server.endpoint}", call_timeout_ms=5_000, attempt_timeout_ms=5_000)
        assert b"".join(at.store.get(at.key("one"))) == b"1"
        at.store.close()
    assert server.request_lines == ["GET /bucket/one"]

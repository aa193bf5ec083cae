"""Object stores named by a URI, for use in one setting or option.

`/a/directory`, `file:///a/directory`, `s3://bucket/prefix`, or `s3a://` as in Hadoop. A bucket takes query options:
`endpoint=http://…`, `region=…`, `path-style=true|false`. Credentials are never part of a URI, because logs and process
lists show it; boto3 finds them, and an omitted region, in its usual places.
"""

from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from protocol.lazy_dataclass import lazy_dataclass
from storage.files import FileSystem, OsFileSystem
from storage.tiered.errors import StoreUnavailable
from storage.tiered.object_store import ConditionalStore
from storage.tiered.stores.directory_store import DirectoryStore
from storage.tiered.stores.s3_settings import S3Settings

_BUCKET_SCHEMES: Final = ("s3", "s3a")
_OPTIONS: Final = ("endpoint", "region", "path-style")
_FLAGS: Final = {"true": True, "false": False}


class StoreUriError(ValueError):
    """A URI that names no store; one sentence without secrets."""


@lazy_dataclass(frozen=True, slots=True)
class StoreUri:
    """A directory (`bucket` is empty then) or a bucket. Holds no connection and may be pickled.

    `prefix` starts all keys: empty, or with a trailing slash.
    """

    directory: str = ""
    bucket: str = ""
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    is_path_style: bool | None = None

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}" if self.bucket else self.directory


class StoreAt(NamedTuple):
    """A prefix in a store; closed by closing `store`."""

    store: ConditionalStore
    prefix: str

    def key(self, name: str) -> str:
        """Return the key of a name."""
        return self.prefix + name

    def name(self, key: str) -> str:
        """Return the name of a key."""
        return key.removeprefix(self.prefix)


def parse_store_uri(uri: str) -> StoreUri:
    """Parse a URI without any access. Raises StoreUriError."""
    if "://" not in uri and not uri.startswith("file:"):
        return StoreUri(directory=_directory(uri, uri))
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise StoreUriError(f"the object store is not a valid URI: {error}") from None
    if parts.scheme == "file":
        return _of_directory(parts, uri)
    if parts.scheme in _BUCKET_SCHEMES:
        return _of_bucket(parts)
    raise StoreUriError(f"{parts.scheme or uri}:// is no object store: use a directory, file://, s3:// or s3a://")


def open_store(
    uri: str | StoreUri,
    *,
    fs: FileSystem | None = None,
    must_exist: bool = False,
    call_timeout_ms: int | None = None,
    attempt_timeout_ms: int | None = None,
) -> StoreAt:
    """Open the store. Create a missing directory unless it `must_exist`, for readers; a bucket is accessed on first
    use.

    `call_timeout_ms` bounds a request to a bucket with all its attempts, `attempt_timeout_ms` the silence within one;
    None keeps the store's defaults. Raises StoreUriError, and for a directory the errors of ObjectStore.
    """
    place = parse_store_uri(uri) if isinstance(uri, str) else uri
    fs = fs or OsFileSystem()
    if place.directory:
        if must_exist and not fs.is_directory(place.directory):
            raise StoreUnavailable(f"the directory {place.directory} does not exist")
        return StoreAt(DirectoryStore(fs, place.directory), "")
    settings = S3Settings(
        bucket_name=place.bucket,
        region=place.region,
        endpoint_url=place.endpoint,
        path_style_access_enabled=place.is_path_style,
        api_call_timeout=call_timeout_ms,
        api_call_attempt_timeout=attempt_timeout_ms,
    )
    from storage.tiered.stores.s3 import S3Store  # a slow import

    return StoreAt(S3Store(settings, fs), place.prefix)


def _of_directory(parts: SplitResult, uri: str) -> StoreUri:
    if parts.netloc not in ("", "localhost"):
        raise StoreUriError(f"{uri} names a directory of another machine; a local one has three slashes, file:///")
    if parts.query or parts.fragment:
        raise StoreUriError(f"{uri} is a directory, which has no options")
    if not parts.path.startswith("/"):
        raise StoreUriError(f"{uri} must name its directory from the root on, file:///")
    return StoreUri(directory=_directory(unquote(parts.path), uri))


def _directory(path: str, uri: str) -> str:
    if not path.strip():
        raise StoreUriError("an object store needs a name: a directory, file://, s3:// or s3a://")
    if "\0" in path:
        raise StoreUriError(f"{uri!r} is not the name of a directory")
    return path


def _of_bucket(parts: SplitResult) -> StoreUri:
    if "@" in parts.netloc:
        raise StoreUriError("an s3:// URI must not contain credentials; boto3 finds them in its usual places")
    bucket, path = parts.netloc, parts.path.strip("/")
    if not bucket or ":" in bucket:
        raise StoreUriError(f"{parts.scheme}://{bucket}/{path} does not name a bucket; an address goes into ?endpoint=")
    if parts.fragment or any(name in (".", "..") for name in path.split("/")):
        raise StoreUriError(f"{parts.scheme}://{bucket}/{path} has a prefix that no object can have")
    options = _options(parts, bucket)
    return StoreUri(
        bucket=bucket,
        prefix=f"{path}/" if path else "",
        endpoint=_endpoint(options.get("endpoint")),
        region=options.get("region"),
        is_path_style=_flag(options.get("path-style")),
    )


def _options(parts: SplitResult, bucket: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise StoreUriError(f"s3://{bucket} has an option {name!r}; there are {', '.join(_OPTIONS)}")
        if name in options or not value:
            raise StoreUriError(f"the option {name} of s3://{bucket} must have one value")
        options[name] = value
    return options


def _endpoint(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        found = urlsplit(value)
        is_sound = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        is_sound = False
    if not is_sound or "@" in found.netloc:
        raise StoreUriError("endpoint must be an address such as http://host:9000, without credentials")
    return value


def _flag(value: str | None) -> bool | None:
    if value is not None and value not in _FLAGS:
        raise StoreUriError(f"path-style must be true or false, not {value}")
    return None if value is None else _FLAGS[value]

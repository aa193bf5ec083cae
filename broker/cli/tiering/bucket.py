"""The bucket of a command, from the settings of brokers."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from broker.cli.shared.failure import CommandFailed
from broker.config.environment import settings_from_environment
from broker.config.errors import ConfigError
from broker.config.load import parse_override, read_properties
from protocol.lazy_dataclass import lazy_dataclass
from storage.files import OsFileSystem
from storage.tiered.bucket.inventory import BucketReader
from storage.tiered.errors import ObjectStoreError, RemoteStorageError, StoreUnavailable
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.loading.remote_metadata import CLASS_NAME_KEY as METADATA_CLASS_NAME_KEY
from storage.tiered.loading.remote_metadata import is_on_topic
from storage.tiered.loading.remote_storage import CLASS_NAME_KEY, load_remote_storage, open_object_store
from storage.tiered.object_store import ObjectStore
from storage.tiered.remote_storage import RemoteStorageContext, RemoteStorageManager
from storage.tiered.segment_metadata import TOOL_BROKER_ID
from storage.tiered.settings import DEFAULT_PREFIX
from storage.tiered.stores.s3 import S3Store

IMPL_PREFIX = "remote.log.storage.manager.impl.prefix"
LOCAL = "local"
LOCAL_ROOT = "storage.root"
CHUNK_CACHE = "fetch.chunk.cache."
UNKNOWN_CLUSTER = ""
"""Cluster id for storage that is only read and cleaned up, which does not use it."""

CREATION_PAUSE_S = 0.5
"""Pause between attempts to create a bucket."""

READERS = 16
"""Manifests that are read concurrently: each is a round trip to the store."""


@lazy_dataclass(frozen=True, slots=True)
class RemoteBucket:
    """An open bucket. `storage` reads compressed and encrypted segments; `reader` serves recovery and audits."""

    store: ObjectStore
    keys: ObjectKeys
    storage: RemoteStorageManager
    reader: BucketReader


@contextmanager
def open_bucket(path: str | None, overrides: Sequence[str]) -> Iterator[RemoteBucket]:
    """Open the bucket that a properties file, the environment and overrides define.

    Errors of remote storage become CommandFailed.
    """
    settings = read_settings(path, overrides, os.environ)
    class_name = settings.get(CLASS_NAME_KEY)
    if class_name is None:
        raise CommandFailed(f"{CLASS_NAME_KEY} is not set; use --config FILE or --override.")
    prefix = settings.get(IMPL_PREFIX, DEFAULT_PREFIX)
    below = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    with store_errors_as_failures():
        opened = _open(class_name, below, prefix)
        try:
            with ThreadPoolExecutor(READERS, thread_name_prefix="manifests") as readers:
                reader = BucketReader(opened.store, opened.keys, opened.storage, readers.map)
                yield RemoteBucket(opened.store, opened.keys, opened.storage, reader)
        finally:
            opened.storage.close()
            opened.store.close()


def read_settings(path: str | None, overrides: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Read settings as brokers do: overrides, then environment, then file. Settings are not validated."""
    try:
        settings = {} if path is None else read_properties(path)
        settings |= settings_from_environment(environ)
        return settings | dict(parse_override(override) for override in overrides)
    except ConfigError as error:
        raise CommandFailed(error.sentence) from error


def require_topic_based_metadata(path: str | None, overrides: Sequence[str]) -> None:
    """Raise CommandFailed if the settings select a remote metadata manager other than the topic-based one."""
    name = read_settings(path, overrides, os.environ).get(METADATA_CLASS_NAME_KEY)
    if name and not is_on_topic(name):
        raise CommandFailed(
            f"{METADATA_CLASS_NAME_KEY} is {name}; this command supports metadata on the metadata topic only."
        )


@contextmanager
def store_errors_as_failures() -> Iterator[None]:
    """Turn errors of stores and their settings into CommandFailed."""
    try:
        yield
    except (ObjectStoreError, RemoteStorageError) as error:
        raise CommandFailed(f"remote storage: {str(error).rstrip('.')}.") from error


def create_bucket(store: ObjectStore, timeout_s: float) -> bool:
    """Create the bucket; return False if it exists. Retry for `timeout_s` while the store is unavailable.

    Raises ObjectStoreError, and CommandFailed for a store without buckets.
    """
    if not isinstance(store, S3Store):
        raise CommandFailed("create-bucket requires remote storage in S3.")
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return store.create_bucket()
        except StoreUnavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(CREATION_PAUSE_S)


class _Opened(NamedTuple):
    store: ObjectStore
    keys: ObjectKeys
    storage: RemoteStorageManager


def _open(class_name: str, settings: Mapping[str, str], prefix: str) -> _Opened:
    """Open store and storage without the brokers' chunk cache, which a broker may be using. Raises CommandFailed."""
    if class_name == LOCAL and not settings.get(LOCAL_ROOT):
        raise CommandFailed(f"{prefix}{LOCAL_ROOT} is not set; use the directory of the objects.")
    context = RemoteStorageContext(
        fs=OsFileSystem(), cache_directory="", broker_id=TOOL_BROKER_ID, cluster_id=UNKNOWN_CLUSTER
    )
    uncached = {name: value for name, value in settings.items() if not name.startswith(CHUNK_CACHE)}
    try:
        opened = open_object_store(class_name, settings, context, local_root="", prefix=prefix)
        loaded = load_remote_storage(
            class_name, uncached | {f"{CHUNK_CACHE}class": "none"}, context, local_root="", prefix=prefix
        )
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    return _Opened(opened.store, opened.keys, loaded.manager)

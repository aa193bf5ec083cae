"""Translation of object store errors and local file errors into remote storage errors."""

import contextlib
from collections.abc import Iterator

from storage.tiered.errors import (
    ObjectNotFound,
    ObjectStoreError,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
    StoreUnavailable,
)
from storage.tiered.format.object_keys import ObjectKeys


@contextlib.contextmanager
def store_errors(keys: ObjectKeys, doing: str) -> Iterator[None]:
    """Translate object store errors; `doing` starts the message, and keys are shown as configured."""
    try:
        yield
    except ObjectNotFound as error:
        raise RemoteResourceNotFound(keys.shown(f"{doing}: {error}")) from error
    except StoreUnavailable as error:
        raise RetriableRemoteStorageError(keys.shown(f"{doing}: {error}")) from error
    except ObjectStoreError as error:
        raise RemoteStorageError(keys.shown(f"{doing}: {error}")) from error


@contextlib.contextmanager
def file_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RemoteStorageError(f"{doing}: {error}") from error

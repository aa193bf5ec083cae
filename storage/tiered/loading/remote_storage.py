"""Loader of the remote storage manager from its name and settings.

`remote.log.storage.manager.class.name` is `s3`, `local`, the class of Aiven's plugin, or the import path of a
RemoteStorageFactory. Tools can open an object store with segments directly. Only this module knows all implementations,
and it imports the ones it needs.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple, cast

from storage.files import join
from storage.tiered.cache.chunk_cache import ChunkCache, ChunkReader, UncachedChunkReader
from storage.tiered.cache.chunk_storage import ChunkStorage, DiskChunkStorage, MemoryChunkStorage
from storage.tiered.cache.download_pool import DownloadPool
from storage.tiered.errors import ObjectStoreError
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.loading.import_paths import imported, made
from storage.tiered.object_store import ObjectStore
from storage.tiered.remote_storage import RemoteStorageContext, RemoteStorageFactory, RemoteStorageManager
from storage.tiered.segments.store import ObjectSegmentStore
from storage.tiered.segments.writer import KeyRing
from storage.tiered.settings import (
    BACKEND_CLASS,
    DEFAULT_PREFIX,
    ChunkCacheKind,
    ParsedSettings,
    SegmentStoreSettings,
    SettingsReader,
    parse_settings,
    unknown_key,
)
from storage.tiered.stores.byte_rate import ByteRate

CLASS_NAME_KEY = "remote.log.storage.manager.class.name"
_PLUGIN = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
_BACKENDS = {
    "s3": "s3",
    "local": "local",
    "io.aiven.kafka.tieredstorage.storage.s3.S3Storage": "s3",
    "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage": "local",
}
_OVERWRITE = "storage.overwrite.enabled"
_UPLOAD_WINDOW_MS = 1000
_MAX_WAITING_DOWNLOADS = 1000
_PREFETCH_PART = 2
"""Share of a cache that may be prefetched, as a divisor; more would evict chunks that readers use."""


class LoadedRemoteStorage(NamedTuple):
    """A loaded manager; `warnings` are sentences about settings, for the log."""

    manager: RemoteStorageManager
    warnings: tuple[str, ...]


class OpenedStore(NamedTuple):
    """An object store with segments, its keys, and warnings about settings."""

    store: ObjectStore
    keys: ObjectKeys
    warnings: tuple[str, ...]


def load_remote_storage(
    name: str,
    settings: Mapping[str, str],
    context: RemoteStorageContext,
    *,
    local_root: str,
    prefix: str = DEFAULT_PREFIX,
    class_path: str | None = None,
) -> LoadedRemoteStorage:
    """Load a manager. `settings` are without `prefix`; `local_root` is the directory of `local` unless the settings
    name one; `class_path` is searched first for the module of an import path.

    Raises ValueError with one sentence that names the key.
    """
    if not is_object_store(name):
        factory = cast(RemoteStorageFactory, imported(CLASS_NAME_KEY, name, class_path, "s3, local"))
        return LoadedRemoteStorage(made(CLASS_NAME_KEY, name, lambda: factory(settings, context)), ())
    parsed = parse_settings(settings, prefix)
    store, warnings = _open_store(name, parsed, context, local_root, prefix)
    manager = ObjectSegmentStore(
        store,
        parsed.settings,
        _chunk_reader(parsed.settings, context, prefix),
        monotonic_ms=_monotonic_ms,
        key_ring=_key_ring(parsed.settings, context),
        upload_rate=_upload_rate(parsed.settings),
    )
    return LoadedRemoteStorage(manager, parsed.warnings + warnings)


def open_object_store(
    name: str,
    settings: Mapping[str, str],
    context: RemoteStorageContext,
    *,
    local_root: str,
    prefix: str = DEFAULT_PREFIX,
) -> OpenedStore:
    """Open the store that `load_remote_storage` would use. Raises ValueError, also for other kinds of storage."""
    if not is_object_store(name):
        raise ValueError(
            f"{CLASS_NAME_KEY} is {name!r}, which does not keep segments in an object store; use s3 or local."
        )
    parsed = parse_settings(settings, prefix)
    store, warnings = _open_store(name, parsed, context, local_root, prefix)
    keys = ObjectKeys(parsed.settings.key_prefix, mask_prefix=parsed.settings.masks_key_prefix)
    return OpenedStore(store, keys, parsed.warnings + warnings)


def _monotonic_ms() -> float:
    return time.monotonic() * 1000


# -- names -------------------------------------------------------------------------------------------------------------


def is_object_store(name: str) -> bool:
    """Whether a storage of that name keeps segments in an object store (`open_object_store`)."""
    return name in ("s3", "local", _PLUGIN)


def _backend(name: str, reader: SettingsReader) -> str:
    """Return `s3` or `local`, by the class name and the plugin's own key."""
    named = reader.text(BACKEND_CLASS)
    if name == _PLUGIN:
        reader.needed(BACKEND_CLASS, f"where {CLASS_NAME_KEY} is {_PLUGIN}")
    if named is None:
        return name
    backend = _BACKENDS.get(named)
    if backend is None:
        raise reader.wrong(BACKEND_CLASS, "s3 or local: Ottla has no other object stores")
    if name not in (_PLUGIN, backend):
        raise reader.wrong(BACKEND_CLASS, f"left out where {CLASS_NAME_KEY} is {name}")
    return backend


# -- object stores -----------------------------------------------------------------------------------------------------


def _open_store(
    name: str, parsed: ParsedSettings, context: RemoteStorageContext, local_root: str, prefix: str
) -> tuple[ObjectStore, tuple[str, ...]]:
    """Open a store; also return warnings about unknown keys."""
    reader = SettingsReader(parsed.storage, prefix)
    if _backend(name, reader) == "s3":
        store: ObjectStore = _open_s3(reader, context)
        warnings: tuple[str, ...] = ()
    else:
        store, warnings = _open_local(reader, context, local_root)
    return store, (*warnings, *(unknown_key(reader, each) for each in reader.unknown()))


def _open_local(
    reader: SettingsReader, context: RemoteStorageContext, local_root: str
) -> tuple[ObjectStore, tuple[str, ...]]:
    """Open a directory; also return a warning about a key without effect."""
    from storage.tiered.stores.directory_store import DirectoryStore

    warnings: tuple[str, ...] = ()
    if not reader.boolean(_OVERWRITE, True):
        warnings = (f"{reader.full(_OVERWRITE)} has no effect: a write always replaces the whole object.",)
    root = reader.text("storage.root") or local_root
    try:
        return DirectoryStore(context.fs, root), warnings
    except ObjectStoreError as error:
        raise ValueError(f"{reader.full('storage.root')} must be a writable directory: {error}.") from error


def _open_s3(reader: SettingsReader, context: RemoteStorageContext) -> ObjectStore:
    from storage.tiered.loading.s3_keys import s3_settings
    from storage.tiered.stores.s3 import S3Store

    return S3Store(s3_settings(reader), context.fs, statistics=context.statistics.store)


# -- caches, keys and limits -------------------------------------------------------------------------------------------


def _chunk_reader(settings: SegmentStoreSettings, context: RemoteStorageContext, prefix: str) -> ChunkReader:
    cache = settings.chunk_cache
    if cache.kind is ChunkCacheKind.NONE:
        return UncachedChunkReader()
    size = cache.limits.size
    return ChunkCache(
        _chunk_storage(settings, context, prefix),
        DownloadPool(cache.downloads, _MAX_WAITING_DOWNLOADS),
        wait_ms=cache.limits.wait_ms,
        prefetch_bytes=cache.prefetch_bytes,
        max_prefetch_bytes=None if size is None else size // _PREFETCH_PART,
        now_ms=_monotonic_ms,
        statistics=context.statistics.chunks,
    )


def _chunk_storage(settings: SegmentStoreSettings, context: RemoteStorageContext, prefix: str) -> ChunkStorage:
    cache = settings.chunk_cache
    if cache.kind is ChunkCacheKind.MEMORY:
        return MemoryChunkStorage(cache.limits, _monotonic_ms, context.statistics.chunks)
    place = cache.path or join(context.cache_directory, "chunks")
    try:
        return DiskChunkStorage(context.fs, place, cache.limits, _monotonic_ms, context.statistics.chunks)
    except OSError as error:
        raise ValueError(
            f"{prefix}fetch.chunk.cache.path must be a writable directory, not {place}: {error.strerror}."
        ) from error


def _key_ring(settings: SegmentStoreSettings, context: RemoteStorageContext) -> KeyRing | None:
    if not settings.key_pairs:
        return None
    from storage.tiered.segments.data_keys import load_data_keys

    active = settings.active_key_pair or next(iter(settings.key_pairs))
    return load_data_keys(context.fs, active, settings.key_pairs)


def _upload_rate(settings: SegmentStoreSettings) -> ByteRate | None:
    rate = settings.upload_bytes_per_second
    return None if rate is None else ByteRate(rate, _UPLOAD_WINDOW_MS, _monotonic_ms)

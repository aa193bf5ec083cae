"""Settings of segments in an object store: `rsm.config.*`, with the names of Aiven's plugin.

Values are checked here once; the rest of the code knows none of the names. Settings of the object store itself
(`storage.*`) are only separated; `loading/` passes them on.

Four defaults differ from the plugin's: `chunk.size` and the size of a cache have defaults; chunks are cached in memory
unless `fetch.chunk.cache.class` says otherwise, because a reader whose patience is shorter than a download would make
no progress; and chunks are prefetched for sequential readers.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeVar

from protocol.lazy_dataclass import lazy_dataclass
from storage.tiered.format.custom_metadata import CustomField

E = TypeVar("E")

DEFAULT_PREFIX = "rsm.config."
STORAGE_PREFIX = "storage."
BACKEND_CLASS = "storage.backend.class"

_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1
_MAX_CHUNK_BYTES = _MAX_INT // 2
_DEFAULT_CHUNK_BYTES = 4 * 1024 * 1024
_UPLOAD_RATES = range(1024 * 1024, 10**9 + 1)

_DEFAULT_MANIFESTS = 1000
_DEFAULT_MANIFEST_IDLE_MS = 3_600_000
_DEFAULT_INDEX_BYTES = 10 * 1024 * 1024
_DEFAULT_IDLE_MS = 600_000
_DEFAULT_WAIT_MS = 10_000
_DEFAULT_MEMORY_CACHE_BYTES = 64 * 1024 * 1024
_DEFAULT_DISK_CACHE_BYTES = 1024 * 1024 * 1024
_DEFAULT_PREFETCH_BYTES = 16 * 1024 * 1024
_DEFAULT_DOWNLOADS = 8
"""Number of download threads if `thread.pool.size` is 0: they wait for the network more than they compute."""
_MAX_THREADS = 1024

_WITHOUT_EFFECT = {
    "fetch.manifest.cache.thread.pool.size": "readers load manifests themselves",
    "fetch.indexes.cache.thread.pool.size": "readers load indexes themselves",
    "metrics.num.samples": "metrics are those of the node",
    "metrics.sample.window.ms": "metrics are those of the node",
    "metrics.recording.level": "metrics are those of the node",
}
_ALIASES = {
    "segment.manifest.cache.size": "fetch.manifest.cache.size",
    "segment.manifest.cache.retention.ms": "fetch.manifest.cache.retention.ms",
}
"""Names of older releases of the plugin."""


class ChunkCacheKind(Enum):
    NONE = "none"
    MEMORY = "memory"
    DISK = "disk"


_CHUNK_CACHES = {
    "none": ChunkCacheKind.NONE,
    "memory": ChunkCacheKind.MEMORY,
    "disk": ChunkCacheKind.DISK,
    "io.aiven.kafka.tieredstorage.fetch.cache.MemoryChunkCache": ChunkCacheKind.MEMORY,
    "io.aiven.kafka.tieredstorage.fetch.cache.DiskChunkCache": ChunkCacheKind.DISK,
}


class CacheSettings(NamedTuple):
    """Limits of a cache. `size` counts bytes, or manifests; None is unbounded. `wait_ms` bounds the wait for a load."""

    size: int | None
    idle_ms: int | None
    wait_ms: int


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCacheSettings:
    """Settings of the chunk cache. `path` is the directory of a disk cache; None selects the default."""

    kind: ChunkCacheKind
    limits: CacheSettings
    path: str | None
    prefetch_bytes: int
    downloads: int


class KeyPairFiles(NamedTuple):
    """Files of a key pair, and the names of their settings."""

    public_key: str
    public_path: str
    private_key: str
    private_path: str


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStoreSettings:
    """All settings. `key_pairs` without `encrypts` still decrypt older segments."""

    chunk_bytes: int
    key_prefix: str
    masks_key_prefix: bool
    compresses: bool
    compresses_only_uncompressed: bool
    encrypts: bool
    active_key_pair: str | None
    key_pairs: Mapping[str, KeyPairFiles]
    upload_bytes_per_second: int | None
    custom_metadata_fields: tuple[CustomField, ...]
    manifest_cache: CacheSettings
    index_cache: CacheSettings
    chunk_cache: ChunkCacheSettings


class ParsedSettings(NamedTuple):
    """Parsed settings. `storage` holds the object store's settings with full names; `warnings` are sentences to log."""

    settings: SegmentStoreSettings
    storage: Mapping[str, str]
    warnings: tuple[str, ...]


class SettingsReader:
    """Typed access to settings that records the names used. Methods raise ValueError, one sentence with the name."""

    def __init__(self, settings: Mapping[str, str], prefix: str = DEFAULT_PREFIX) -> None:
        self._settings = settings
        self._prefix = prefix
        self.known: set[str] = set()

    def full(self, name: str) -> str:
        """Return the name as it stands in the configuration."""
        return self._prefix + name

    def is_set(self, name: str) -> bool:
        return self._settings.get(name, "").strip() != ""

    def text(self, name: str) -> str | None:
        """Return the value, None if it is missing or empty."""
        self.known.add(name)
        return self._settings.get(name, "").strip() or None

    def needed(self, name: str, because: str) -> str:
        value = self.text(name)
        if value is None:
            raise ValueError(f"{self.full(name)} must be set {because}.")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        match self.text(name):
            case None:
                return default
            case "true" | "TRUE" | "True":
                return True
            case "false" | "FALSE" | "False":
                return False
            case other:
                raise ValueError(f"{self.full(name)} must be true or false, not {other!r}.")

    def integer(self, name: str, default: E, *, least: int, most: int = _MAX_LONG) -> int | E:
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{self.full(name)} must be an integer, not {text!r}.") from None
        if not least <= value <= most:
            raise ValueError(f"{self.full(name)} must be from {least} to {most}, not {value}.")
        return value

    def several(self, name: str) -> tuple[str, ...]:
        """Return the values of a comma-separated list."""
        return tuple(each for part in (self.text(name) or "").split(",") if (each := part.strip()))

    def wrong(self, name: str, expected: str) -> ValueError:
        return ValueError(f"{self.full(name)} must be {expected}, not {self._settings.get(name)!r}.")

    def unknown(self) -> list[str]:
        """Return the names that were never read."""
        return sorted(self._settings.keys() - self.known)


def parse_settings(settings: Mapping[str, str], prefix: str = DEFAULT_PREFIX) -> ParsedSettings:
    """Parse `settings`, which are without `prefix`; messages contain it. Raises ValueError."""
    reader = SettingsReader(_with_new_names(settings), prefix)
    parsed = _parse(reader)
    storage = {name: value for name, value in settings.items() if name.startswith(STORAGE_PREFIX)}
    warnings = [_warning(reader, name) for name in reader.unknown() if name not in storage]
    return ParsedSettings(parsed, storage, tuple(warnings))


def _with_new_names(settings: Mapping[str, str]) -> dict[str, str]:
    renamed = {_ALIASES.get(name, name): value for name, value in settings.items()}
    return renamed | {name: value for name, value in settings.items() if name not in _ALIASES}


def _warning(reader: SettingsReader, name: str) -> str:
    if name in _WITHOUT_EFFECT:
        return f"{reader.full(name)} has no effect: {_WITHOUT_EFFECT[name]}."
    return unknown_key(reader, name)


def unknown_key(reader: SettingsReader, name: str) -> str:
    """Return a sentence that suggests the most similar name."""
    import difflib  # needed for a misspelled name only

    nearest = difflib.get_close_matches(name, sorted(reader.known), n=1)
    suggestion = f"; did you mean {reader.full(nearest[0])}?" if nearest else "."
    return f"{reader.full(name)} is not known{suggestion}"


def _parse(reader: SettingsReader) -> SegmentStoreSettings:
    _check_format(reader)
    compresses = reader.boolean("compression.enabled", False)
    only_uncompressed = reader.boolean("compression.heuristic.enabled", False)
    if only_uncompressed and not compresses:
        heuristic = reader.full("compression.heuristic.enabled")
        raise ValueError(f"{reader.full('compression.enabled')} must be true where {heuristic} is.")
    encrypts = reader.boolean("encryption.enabled", False)
    key_pairs = _key_pairs(reader, encrypts)
    return SegmentStoreSettings(
        chunk_bytes=reader.integer("chunk.size", _DEFAULT_CHUNK_BYTES, least=1, most=_MAX_CHUNK_BYTES),
        key_prefix=reader.text("key.prefix") or "",
        masks_key_prefix=reader.boolean("key.prefix.mask", False),
        compresses=compresses,
        compresses_only_uncompressed=only_uncompressed,
        encrypts=encrypts,
        active_key_pair=_active_key_pair(reader, encrypts, key_pairs),
        key_pairs=key_pairs,
        upload_bytes_per_second=reader.integer(
            "upload.rate.limit.bytes.per.second", None, least=_UPLOAD_RATES[0], most=_UPLOAD_RATES[-1]
        ),
        custom_metadata_fields=_custom_fields(reader),
        manifest_cache=_cache(reader, "fetch.manifest.cache.", _DEFAULT_MANIFESTS, _DEFAULT_MANIFEST_IDLE_MS),
        index_cache=_cache(reader, "fetch.indexes.cache.", _DEFAULT_INDEX_BYTES, _DEFAULT_IDLE_MS),
        chunk_cache=_chunk_cache(reader),
    )


def _check_format(reader: SettingsReader) -> None:
    if (reader.text("segment.format") or "kafka").lower() != "kafka":
        raise reader.wrong("segment.format", "kafka, the only segment format that Ottla supports")


def _key_pairs(reader: SettingsReader, encrypts: bool) -> dict[str, KeyPairFiles]:
    name = "encryption.key.pairs"
    if encrypts:
        reader.needed(name, f"where {reader.full('encryption.enabled')} is true")
    return {pair_id: _key_pair(reader, f"{name}.{pair_id}") for pair_id in reader.several(name)}


def _key_pair(reader: SettingsReader, name: str) -> KeyPairFiles:
    public, private = f"{name}.public.key.file", f"{name}.private.key.file"
    because = f"for a pair that {reader.full('encryption.key.pairs')} names"
    return KeyPairFiles(
        reader.full(public), reader.needed(public, because), reader.full(private), reader.needed(private, because)
    )


def _active_key_pair(reader: SettingsReader, encrypts: bool, pairs: Mapping[str, KeyPairFiles]) -> str | None:
    name = "encryption.key.pair.id"
    if encrypts:
        reader.needed(name, f"where {reader.full('encryption.enabled')} is true")
    active = reader.text(name)
    if active is not None and active not in pairs:
        raise reader.wrong(name, f"one of those that {reader.full('encryption.key.pairs')} names")
    return active


def _custom_fields(reader: SettingsReader) -> tuple[CustomField, ...]:
    name = "custom.metadata.fields.include"
    names = reader.several(name)
    if not {field.name for field in CustomField}.issuperset(names):
        raise reader.wrong(name, f"a list of {', '.join(field.name for field in CustomField)}")
    return tuple(sorted(CustomField[each] for each in set(names)))


def _cache(reader: SettingsReader, prefix: str, size: int, idle_ms: int) -> CacheSettings:
    return CacheSettings(
        _or_unbounded(reader.integer(f"{prefix}size", size, least=-1)),
        _or_unbounded(reader.integer(f"{prefix}retention.ms", idle_ms, least=-1)),
        reader.integer(f"{prefix}get.timeout.ms", _DEFAULT_WAIT_MS, least=1),
    )


def _or_unbounded(value: int) -> int | None:
    return None if value == -1 else value


def _chunk_cache(reader: SettingsReader) -> ChunkCacheSettings:
    prefix = "fetch.chunk.cache."
    kind = _chunk_cache_kind(reader, f"{prefix}class")
    size = _DEFAULT_DISK_CACHE_BYTES if kind is ChunkCacheKind.DISK else _DEFAULT_MEMORY_CACHE_BYTES
    limits = _cache(reader, prefix, size, _DEFAULT_IDLE_MS)
    return ChunkCacheSettings(
        kind=ChunkCacheKind.NONE if limits.size == 0 else kind,
        limits=limits,
        path=reader.text(f"{prefix}path"),
        prefetch_bytes=reader.integer(f"{prefix}prefetch.max.size", _DEFAULT_PREFETCH_BYTES, least=0, most=_MAX_INT),
        downloads=reader.integer(f"{prefix}thread.pool.size", 0, least=0, most=_MAX_THREADS) or _DEFAULT_DOWNLOADS,
    )


def _chunk_cache_kind(reader: SettingsReader, name: str) -> ChunkCacheKind:
    text = reader.text(name)
    if text is None:
        return ChunkCacheKind.MEMORY
    kind = _CHUNK_CACHES.get(text)
    if kind is None:
        raise reader.wrong(name, "memory, disk or none")
    return kind

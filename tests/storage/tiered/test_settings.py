import pytest

from storage.tiered.format.custom_metadata import CustomField
from storage.tiered.settings import (
    CacheSettings,
    ChunkCacheKind,
    ChunkCacheSettings,
    KeyPairFiles,
    SegmentStoreSettings,
    parse_settings,
)

ENCRYPTED = {
    "encryption.enabled": "true",
    "encryption.key.pair.id": "new",
    "encryption.key.pairs": "old, new",
    "encryption.key.pairs.old.public.key.file": "/keys/old.pub",
    "encryption.key.pairs.old.private.key.file": "/keys/old.key",
    "encryption.key.pairs.new.public.key.file": "/keys/new.pub",
    "encryption.key.pairs.new.private.key.file": "/keys/new.key",
}


def parsed(**settings: str) -> SegmentStoreSettings:
    return parse_settings({name.replace("_", "."): value for name, value in settings.items()}).settings


def test_defaults_apply_without_settings() -> None:
    assert parse_settings({}) == (
        SegmentStoreSettings(
            chunk_bytes=4 * 1024 * 1024,
            key_prefix="",
            masks_key_prefix=False,
            compresses=False,
            compresses_only_uncompressed=False,
            encrypts=False,
            active_key_pair=None,
            key_pairs={},
            upload_bytes_per_second=None,
            custom_metadata_fields=(),
            manifest_cache=CacheSettings(1000, 3_600_000, 10_000),
            index_cache=CacheSettings(10 * 1024 * 1024, 600_000, 10_000),
            chunk_cache=ChunkCacheSettings(
                kind=ChunkCacheKind.MEMORY,
                limits=CacheSettings(64 * 1024 * 1024, 600_000, 10_000),
                path=None,
                prefetch_bytes=16 * 1024 * 1024,
                downloads=8,
            ),
        ),
        {},
        (),
    )


def test_every_setting_is_parsed() -> None:
    settings = {
        "chunk.size": "1024",
        "key.prefix": "kafka/",
        "key.prefix.mask": "true",
        "segment.format": "KAFKA",
        "compression.enabled": "true",
        "compression.heuristic.enabled": "true",
        "upload.rate.limit.bytes.per.second": "1048576",
        "custom.metadata.fields.include": "OBJECT_KEY,REMOTE_SIZE",
        "fetch.manifest.cache.size": "-1",
        "fetch.manifest.cache.retention.ms": "-1",
        "fetch.manifest.cache.get.timeout.ms": "1",
        "fetch.indexes.cache.size": "2",
        "fetch.indexes.cache.retention.ms": "3",
        "fetch.indexes.cache.get.timeout.ms": "4",
        "fetch.chunk.cache.class": "io.aiven.kafka.tieredstorage.fetch.cache.DiskChunkCache",
        "fetch.chunk.cache.size": "5",
        "fetch.chunk.cache.retention.ms": "6",
        "fetch.chunk.cache.get.timeout.ms": "7",
        "fetch.chunk.cache.prefetch.max.size": "8",
        "fetch.chunk.cache.thread.pool.size": "9",
        "fetch.chunk.cache.path": "/cache",
    }
    assert parse_settings(ENCRYPTED | settings) == (
        SegmentStoreSettings(
            chunk_bytes=1024,
            key_prefix="kafka/",
            masks_key_prefix=True,
            compresses=True,
            compresses_only_uncompressed=True,
            encrypts=True,
            active_key_pair="new",
            key_pairs={
                "old": KeyPairFiles(
                    "rsm.config.encryption.key.pairs.old.public.key.file",
                    "/keys/old.pub",
                    "rsm.config.encryption.key.pairs.old.private.key.file",
                    "/keys/old.key",
                ),
                "new": KeyPairFiles(
                    "rsm.config.encryption.key.pairs.new.public.key.file",
                    "/keys/new.pub",
                    "rsm.config.encryption.key.pairs.new.private.key.file",
                    "/keys/new.key",
                ),
            },
            upload_bytes_per_second=1048576,
            custom_metadata_fields=(CustomField.REMOTE_SIZE, CustomField.OBJECT_KEY),
            manifest_cache=CacheSettings(None, None, 1),
            index_cache=CacheSettings(2, 3, 4),
            chunk_cache=ChunkCacheSettings(
                kind=ChunkCacheKind.DISK,
                limits=CacheSettings(5, 6, 7),
                path="/cache",
                prefetch_bytes=8,
                downloads=9,
            ),
        ),
        {},
        (),
    )


def test_key_pairs_without_encryption_read_old_segments() -> None:
    settings = parse_settings(ENCRYPTED | {"encryption.enabled": "false"}).settings
    assert not settings.encrypts
    assert settings.key_pairs.keys() == {"old", "new"}


def test_cache_of_0_bytes_is_disabled() -> None:
    assert parsed(fetch_chunk_cache_size="0").chunk_cache.kind is ChunkCacheKind.NONE
    assert parsed(fetch_chunk_cache_class="none").chunk_cache.kind is ChunkCacheKind.NONE


def test_disk_cache_is_larger_by_default() -> None:
    assert parsed(fetch_chunk_cache_class="disk").chunk_cache.limits.size == 1024 * 1024 * 1024


def test_former_setting_names_are_accepted_below_present_ones() -> None:
    old = {"segment.manifest.cache.size": "7", "segment.manifest.cache.retention.ms": "8"}
    assert parse_settings(old).settings.manifest_cache == CacheSettings(7, 8, 10_000)
    assert parse_settings(old | {"fetch.manifest.cache.size": "9"}).settings.manifest_cache.size == 9
    assert parse_settings(old).warnings == ()


def test_object_store_settings_are_separated() -> None:
    parsed = parse_settings({"storage.s3.bucket.name": "b", "storage.anything": "x", "chunk.size": "1"})
    assert parsed.storage == {"storage.s3.bucket.name": "b", "storage.anything": "x"}
    assert parsed.warnings == ()


def test_keys_without_effect_are_reported() -> None:
    assert parse_settings({"chunk.sise": "1", "zzz": "1", "metrics.num.samples": "2"}).warnings == (
        "rsm.config.chunk.sise is not known; did you mean rsm.config.chunk.size?",
        "rsm.config.metrics.num.samples has no effect: metrics are those of the node.",
        "rsm.config.zzz is not known.",
    )


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("chunk.size", "0", "rsm.config.chunk.size must be from 1 to 1073741823, not 0."),
        ("chunk.size", "1073741824", "rsm.config.chunk.size must be from 1 to 1073741823, not 1073741824."),
        ("chunk.size", "4MiB", "rsm.config.chunk.size must be an integer, not '4MiB'."),
        ("key.prefix.mask", "yes", "rsm.config.key.prefix.mask must be true or false, not 'yes'."),
        ("segment.format", "iceberg", "rsm.config.segment.format must be kafka, the only segment format"),
        (
            "compression.heuristic.enabled",
            "true",
            "rsm.config.compression.enabled must be true where rsm.config.compression.heuristic.enabled is.",
        ),
        ("upload.rate.limit.bytes.per.second", "1048575", "must be from 1048576 to 1000000000, not 1048575."),
        ("custom.metadata.fields.include", "SIZE", "must be a list of REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY, not"),
        ("fetch.chunk.cache.size", "-2", "rsm.config.fetch.chunk.cache.size must be from -1 to"),
        ("fetch.chunk.cache.class", "caffeine", "rsm.config.fetch.chunk.cache.class must be memory, disk or none, not"),
        ("fetch.indexes.cache.get.timeout.ms", "0", "rsm.config.fetch.indexes.cache.get.timeout.ms must be from 1"),
        ("encryption.key.pair.id", "older", "rsm.config.encryption.key.pair.id must be one of those that"),
        ("encryption.key.pair.id", "", "rsm.config.encryption.key.pair.id must be set where"),
        ("encryption.key.pairs", "", "rsm.config.encryption.key.pairs must be set where rsm.config.encryption.enabled"),
        (
            "encryption.key.pairs.old.public.key.file",
            " ",
            "rsm.config.encryption.key.pairs.old.public.key.file must be",
        ),
    ],
)
def test_bad_value_is_refused_with_full_key(name: str, value: str, complaint: str) -> None:
    settings = ENCRYPTED | {name: value} if name.startswith("encryption") else {name: value}
    with pytest.raises(ValueError) as caught:
        parse_settings(settings)
    message = str(caught.value)
    assert complaint in message
    assert message.endswith(".")
    assert "\n" not in message


def test_errors_use_the_configured_prefix() -> None:
    with pytest.raises(ValueError, match=r"^mine.chunk.size must be"):
        parse_settings({"chunk.size": "x"}, "mine.")

from collections.abc import Mapping

import pytest

from storage.files import write_file
from storage.tiered.loading.remote_storage import load_remote_storage, open_object_store
from storage.tiered.loading.s3_keys import s3_settings
from storage.tiered.remote_storage import RemoteStorageContext, RemoteStorageManager
from storage.tiered.settings import SettingsReader
from storage.tiered.stores.s3 import S3Settings
from tests.storage.tiered.format.key_pairs import write_key_pair
from tests.storage.tiered.sample_segments import Contents
from tests.storage.tiered.segments.remote_storage_contract import LOG, copied, read_all
from tests.support.fakes.memory_files import MemoryFileSystem

PLUGIN = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
BACKENDS = "io.aiven.kafka.tieredstorage.storage"
BUCKET = {"storage.s3.bucket.name": "b", "storage.s3.region": "eu"}


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def context(fs: MemoryFileSystem) -> RemoteStorageContext:
    return RemoteStorageContext(fs=fs, cache_directory="cache", broker_id=1, cluster_id="c")


def load(fs: MemoryFileSystem, name: str, settings: Mapping[str, str] | None = None) -> RemoteStorageManager:
    return load_remote_storage(name, settings or {}, context(fs), local_root="remote").manager


class ForeignStorage:
    """A foreign RemoteStorageFactory."""

    def __init__(self, settings: Mapping[str, str], context: RemoteStorageContext) -> None:
        self.settings = settings
        self.context = context


NOT_A_FACTORY = 1


def test_local_keeps_objects_in_a_directory(fs: MemoryFileSystem) -> None:
    storage = load(fs, "local")
    assert read_all(storage, copied(storage, Contents(LOG))) == LOG
    assert fs.list("remote") == ["topic1-lZ6vvmajTWKDBUTV6SQAtQ"]
    storage.close()


@pytest.mark.parametrize("name", ["local", PLUGIN])
@pytest.mark.parametrize("backend", ["local", f"{BACKENDS}.filesystem.FileSystemStorage"])
def test_plugin_class_names_are_accepted(fs: MemoryFileSystem, name: str, backend: str) -> None:
    settings = {"storage.backend.class": backend, "storage.root": "there", "storage.overwrite.enabled": "true"}
    loaded = load_remote_storage(name, settings, context(fs), local_root="remote")
    copied(loaded.manager, Contents(LOG))
    assert fs.list("there") == ["topic1-lZ6vvmajTWKDBUTV6SQAtQ"]
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("name", "settings"),
    [("s3", BUCKET), (PLUGIN, BUCKET | {"storage.backend.class": f"{BACKENDS}.s3.S3Storage"})],
)
def test_s3_needs_no_connection_to_be_loaded(fs: MemoryFileSystem, name: str, settings: Mapping[str, str]) -> None:
    load(fs, name, settings).close()


@pytest.mark.parametrize("separator", [":", "."])
def test_import_path_selects_factory(fs: MemoryFileSystem, separator: str) -> None:
    storage = load(fs, f"tests.storage.tiered.loading.test_remote_storage{separator}ForeignStorage", {"a": "b"})
    assert isinstance(storage, ForeignStorage)
    assert storage.settings == {"a": "b"}
    assert storage.context.broker_id == 1


def test_object_store_is_the_segments_store(fs: MemoryFileSystem) -> None:
    settings = {"key.prefix": "here/"}
    remote = copied(load(fs, "local", settings), Contents(LOG))
    opened = open_object_store("local", settings, context(fs), local_root="remote")
    found = [opened.keys.parse(info.key) for info in opened.store.list("here/")]
    assert [parsed.id for parsed in found if parsed is not None] == [remote.id] * 3


def test_settings_reach_their_components(fs: MemoryFileSystem) -> None:
    pair = write_key_pair(fs, "keys", "written")
    storage = load(
        fs,
        "local",
        {
            "chunk.size": "1000",
            "compression.enabled": "true",
            "encryption.enabled": "true",
            "encryption.key.pair.id": "a",
            "encryption.key.pairs": "a",
            "encryption.key.pairs.a.public.key.file": pair.public_path,
            "encryption.key.pairs.a.private.key.file": pair.private_path,
            "fetch.chunk.cache.class": "disk",
            "fetch.chunk.cache.prefetch.max.size": "1000",
            "upload.rate.limit.bytes.per.second": "1000000000",
        },
    )
    assert read_all(storage, copied(storage, Contents(LOG))) == LOG
    assert len(fs.list("cache/chunks/cache")) == -(-len(LOG) // 1000)
    storage.close()


@pytest.mark.parametrize("settings", [{"fetch.chunk.cache.class": "none"}, {"fetch.chunk.cache.size": "-1"}])
def test_caches_may_be_disabled_or_unbounded(fs: MemoryFileSystem, settings: Mapping[str, str]) -> None:
    storage = load(fs, "local", settings)
    assert read_all(storage, copied(storage, Contents(LOG))) == LOG
    storage.close()


def test_disabled_overwriting_is_reported_as_without_effect(fs: MemoryFileSystem) -> None:
    loaded = load_remote_storage("local", {"storage.overwrite.enabled": "false"}, context(fs), local_root="remote")
    assert loaded.warnings == (
        "rsm.config.storage.overwrite.enabled has no effect: a write always replaces the whole object.",
    )


def test_keys_without_effect_are_reported(fs: MemoryFileSystem) -> None:
    settings = BUCKET | {"chunk.sise": "1", "storage.s3.buket.name": "x", "storage.zzzzzz": "y"}
    assert load_remote_storage("s3", settings, context(fs), local_root="remote").warnings == (
        "rsm.config.chunk.sise is not known; did you mean rsm.config.chunk.size?",
        "rsm.config.storage.s3.buket.name is not known; did you mean rsm.config.storage.s3.bucket.name?",
        "rsm.config.storage.zzzzzz is not known.",
    )


def test_every_bucket_setting_has_a_key() -> None:
    reader = SettingsReader(
        {
            "storage.s3.bucket.name": "b",
            "storage.s3.region": "r",
            "storage.s3.endpoint.url": "http://localhost:1",
            "storage.s3.path.style.access.enabled": "true",
            "storage.s3.multipart.upload.part.size": "5242880",
            "storage.s3.storage.class": "STANDARD_IA",
            "storage.s3.api.call.timeout": "1",
            "storage.s3.api.call.attempt.timeout": "2",
            "storage.s3.legacy.md5.plugin.enabled": "true",
            "storage.aws.access.key.id": "id",
            "storage.aws.secret.access.key": "secret",
            "storage.aws.session.token": "token",
            "storage.aws.checksum.check.enabled": "true",
            "storage.aws.certificate.check.enabled": "false",
        }
    )
    assert s3_settings(reader) == S3Settings(
        bucket_name="b",
        region="r",
        endpoint_url="http://localhost:1",
        path_style_access_enabled=True,
        multipart_upload_part_size=5242880,
        storage_class="STANDARD_IA",
        api_call_timeout=1,
        api_call_attempt_timeout=2,
        legacy_md5_plugin_enabled=True,
        access_key_id="id",
        secret_access_key="secret",
        session_token="token",
        checksum_check_enabled=True,
        certificate_check_enabled=False,
    )
    assert reader.unknown() == []


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gcs", {}, "remote.log.storage.manager.class.name must be s3, local or an import path such as module:Name"),
        ("no.such.Thing", {}, "remote.log.storage.manager.class.name names no.such.Thing, which cannot be imported"),
        (
            "storage.tiered.loading.remote_storage:Nothing",
            {},
            "names storage.tiered.loading.remote_storage:Nothing, which cannot be imported",
        ),
        ("tests.storage.tiered.loading.test_remote_storage:NOT_A_FACTORY", {}, "NOT_A_FACTORY, which is not callable."),
        (PLUGIN, {}, "rsm.config.storage.backend.class must be set where"),
        (PLUGIN, {"storage.backend.class": f"{BACKENDS}.gcs.GcsStorage"}, "must be s3 or local: Ottla has no other"),
        ("s3", BUCKET | {"storage.backend.class": "local"}, "rsm.config.storage.backend.class must be left out where"),
        ("s3", {}, "rsm.config.storage.s3.bucket.name must be set for segments to be kept in S3."),
        ("s3", {"storage.s3.bucket.name": "b"}, "rsm.config.storage.s3.region must be set"),
        (
            "s3",
            BUCKET | {"storage.s3.api.call.timeout": "x"},
            "storage.s3.api.call.timeout must be an integer, not 'x'.",
        ),
        (
            "s3",
            BUCKET | {"storage.aws.session.token": "t"},
            "rsm.config.storage.aws.session.token needs rsm.config.storage.aws.access.key.id.",
        ),
        ("local", {"storage.root": "file/below"}, "rsm.config.storage.root must be a writable directory"),
        (
            "local",
            {"fetch.chunk.cache.class": "disk", "fetch.chunk.cache.path": "file"},
            "rsm.config.fetch.chunk.cache.path must be a writable directory, not file",
        ),
        ("local", {"chunk.size": "-1"}, "rsm.config.chunk.size must be from 1"),
    ],
)
def test_invalid_settings_are_refused_with_one_sentence(
    fs: MemoryFileSystem, name: str, settings: Mapping[str, str], message: str
) -> None:
    write_file(fs, "file", b"", sync=False)
    with pytest.raises(ValueError) as caught:
        load(fs, name, settings)
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")


def test_foreign_storage_has_no_known_object_store(fs: MemoryFileSystem) -> None:
    with pytest.raises(ValueError, match="does not keep segments in an object store"):
        open_object_store(
            "tests.storage.tiered.loading.test_remote_storage:ForeignStorage", {}, context(fs), local_root="remote"
        )

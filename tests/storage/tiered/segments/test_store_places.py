"""Remote storage as a node loads it, in a directory and in S3, against one contract."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from storage.files import OsFileSystem
from storage.tiered.loading.remote_storage import load_remote_storage, open_object_store
from storage.tiered.remote_storage import RemoteStorageContext, RemoteStorageManager
from tests.storage.tiered.segments.remote_storage_contract import RemoteStorageContract
from tests.support.processes.s3_server import S3Server, unavailable_reason

PLAIN = {"chunk.size": "1000"}
COMPRESSED_ON_DISK = {
    "chunk.size": "1000",
    "compression.enabled": "true",
    "fetch.chunk.cache.class": "disk",
    "fetch.chunk.cache.prefetch.max.size": "2000",
}


def context(directory: Path) -> RemoteStorageContext:
    return RemoteStorageContext(fs=OsFileSystem(), cache_directory=str(directory), broker_id=1, cluster_id="c")


@pytest.mark.parametrize("settings", [PLAIN, COMPRESSED_ON_DISK], ids=["plain", "compressed, cached on disk"])
class TestDirectory(RemoteStorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path, settings: Mapping[str, str]) -> Iterator[RemoteStorageManager]:
        loaded = load_remote_storage(
            "local", settings, context(tmp_path / "cache"), local_root=str(tmp_path / "remote")
        )
        yield loaded.manager
        loaded.manager.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if reason := unavailable_reason():
        pytest.skip(reason)
    with S3Server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.mark.integration
@pytest.mark.parametrize("settings", [PLAIN, COMPRESSED_ON_DISK], ids=["plain", "compressed, cached on disk"])
class TestS3(RemoteStorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path, server: S3Server, settings: Mapping[str, str]) -> Iterator[RemoteStorageManager]:
        mine = {**server.node_settings(""), **settings, "key.prefix": f"{tmp_path.name}/"}
        loaded = load_remote_storage("s3", mine, context(tmp_path), local_root="")
        assert loaded.warnings == ()
        yield loaded.manager
        loaded.manager.close()
        left = open_object_store("s3", mine, context(tmp_path), local_root="")
        assert all(left.keys.parse(info.key) for info in left.store.list(left.keys.prefix))
        left.store.close()

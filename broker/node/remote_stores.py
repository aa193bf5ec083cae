"""Remote storage as the configuration names it, opened."""

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.logs import EventLog
from broker.node.directories import NodeDirectories
from broker.runtime.remote_log.leader_starts import ReadLogStart
from broker.runtime.remote_log.log_starts import LogStarts, NoLogStarts
from protocol.lazy_dataclass import lazy_dataclass
from storage.files import FileSystem, join
from storage.tiered.bucket.partition_objects import PartitionObjects
from storage.tiered.format.log_start_object import read_log_start
from storage.tiered.loading.remote_storage import is_object_store, load_remote_storage, open_object_store
from storage.tiered.object_store import ObjectStore
from storage.tiered.remote_storage import RemoteStorageContext, RemoteStorageManager
from storage.tiered.statistics import RemoteStorageStatistics

CACHE_DIRECTORY = "remote-log-cache"
"""Directory, in the first log directory, for the remote storage's own local files."""

_log = EventLog("broker.tiered")


@lazy_dataclass(frozen=True, slots=True)
class RemoteStores:
    """Remote storage, open. `objects`, `beside` and `read_log_start` are for storages over an object store."""

    storage: RemoteStorageManager
    objects: ObjectStore | None
    beside: PartitionObjects | None
    cluster_id: str
    read_log_start: ReadLogStart
    statistics: RemoteStorageStatistics

    @property
    def log_starts(self) -> LogStarts:
        return NoLogStarts() if self.beside is None else self.beside


def open_remote_stores(fs: FileSystem, config: BrokerConfig, directories: NodeDirectories) -> RemoteStores:
    """Open the configured remote storage. Blocks. Raise ConfigError."""
    name, prefix = config.remote_log_storage_manager_class_name, config.remote_log_storage_manager_impl_prefix
    assert name is not None, "checked with the configuration"
    first = config.log_dirs[0]
    context = RemoteStorageContext(
        fs=fs,
        cache_directory=join(first, CACHE_DIRECTORY),
        broker_id=config.node_id,
        cluster_id=directories.cluster_id,
    )
    settings = config.settings_below(prefix)
    try:
        class_path = config.remote_log_storage_manager_class_path
        loaded = load_remote_storage(name, settings, context, local_root="", prefix=prefix, class_path=class_path)
        for warning in loaded.warnings:
            _log.warning(warning)
        if not is_object_store(name):
            return RemoteStores(loaded.manager, None, None, directories.cluster_id, lambda _: None, context.statistics)
        opened = open_object_store(name, settings, context, local_root="", prefix=prefix)
    except ValueError as error:
        raise ConfigError("remote.log.storage.manager.class.name", str(error)) from error
    kept = PartitionObjects(opened.store, opened.keys, cluster_id=directories.cluster_id, broker_id=config.node_id)
    store, keys = opened.store, opened.keys
    return RemoteStores(
        loaded.manager,
        store,
        kept,
        directories.cluster_id,
        lambda partition: read_log_start(store, keys.partition(partition)),
        context.statistics,
    )

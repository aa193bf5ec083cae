"""A node's directories at start: locked, checked, and formatted where the node may format them.

Only a node that is a cluster of its own (`BrokerConfig.lone`), or that has a cluster id from the environment, formats
its directories. Any other node refuses to start on unformatted directories and names the command to run.
"""

import time

from broker.config.broker_config import BrokerConfig
from broker.metadata.image.features import bootstrap_records
from broker.metadata.image.records import VersionedRecord
from broker.metadata.snapshot.codec import InvalidSnapshot, bootstrap_checkpoint, read_snapshot
from broker.runtime.partitions.log_store import OnDirectoryFailure
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid, uuid_to_text
from storage.directories.formatting import BOOTSTRAP_CHECKPOINT_FILE, is_cluster_id, random_id
from storage.directories.log_dir import lock_directory
from storage.directories.log_dirs import LogDirs
from storage.directories.meta_properties import (
    MetaProperties,
    check_together,
    read_meta_properties,
    write_meta_properties,
)
from storage.errors import StorageError
from storage.files import FileLock, FileSystem, join, read_file, replace_file


class NotFormatted(StorageError):
    """A directory must be formatted by a command first."""


class UnusableBootstrap(StorageError):
    """`bootstrap.checkpoint` cannot be read."""


@lazy_dataclass(slots=True)
class NodeDirectories:
    """The directories, open and locked. `metadata_lock` locks a metadata directory outside of `log.dirs`."""

    log_dirs: LogDirs
    metadata_directory: str
    metadata_directory_id: Uuid
    metadata_lock: FileLock | None
    cluster_id: str

    def unlock(self) -> None:
        """Release all locks. Call last: another process may own the directories afterwards."""
        self.log_dirs.unlock()
        if self.metadata_lock is not None:
            self.metadata_lock.release()
            self.metadata_lock = None


def open_directories(fs: FileSystem, config: BrokerConfig, on_failure: OnDirectoryFailure) -> NodeDirectories:
    """Lock and check all directories, and format them if this node may. Blocks.

    Raise StorageError (in use, not formatted, of another node or cluster, corrupt) or OSError.
    """
    log_dirs = LogDirs.open(fs, config.log_dirs, on_failure)
    metadata_directory = config.metadata_log_dir
    lock = None if metadata_directory in config.log_dirs else lock_directory(fs, metadata_directory)
    identity = read_meta_properties(fs, metadata_directory) or log_dirs.identity
    cluster_id = None if identity is None else identity.cluster_id
    if cluster_id is None:
        cluster_id = _format(fs, config, metadata_directory)
    log_dirs.adopt(cluster_id, config.node_id, random_id)
    own_id = _own_id(fs, metadata_directory, cluster_id, config.node_id)
    return NodeDirectories(log_dirs, metadata_directory, own_id, lock, cluster_id)


def _format(fs: FileSystem, config: BrokerConfig, metadata_directory: str) -> str:
    """Write the bootstrap records of a new cluster, before the identity that marks the directory as formatted."""
    _check_may_format(config, metadata_directory)
    cluster_id = config.cluster_id or uuid_to_text(random_id())
    if not is_cluster_id(cluster_id):
        raise NotFormatted(
            f"CLUSTER_ID is {cluster_id!r} but must be a cluster id; `ottla storage random-uuid` prints a new one."
        )
    checkpoint = bootstrap_checkpoint(bootstrap_records(), int(time.time() * 1000))
    replace_file(fs, join(metadata_directory, BOOTSTRAP_CHECKPOINT_FILE), checkpoint)
    return cluster_id


def _check_may_format(config: BrokerConfig, metadata_directory: str) -> None:
    """Raise NotFormatted, with the command to run, unless this node may format its directories.

    The configuration of a controller without static voters does not say whether the controller starts a quorum or joins
    one, and a second quorum under the same cluster id would destroy both. The apache/kafka image refuses as well.
    """
    if config.is_controller and not config.voters:
        ways = "--standalone, --initial-controllers or --no-initial-controllers"
    elif config.cluster_id is None and not config.lone:
        ways = "" if config.voters else "--no-initial-controllers"
    else:
        return
    cluster_id = config.cluster_id or uuid_to_text(random_id())
    command = f"ottla storage format --cluster-id {cluster_id} --config FILE"
    with_ways = f" with {ways}" if ways else ""
    raise NotFormatted(f"The directory {metadata_directory} is not formatted: run `{command}`{with_ways} first.")


def _own_id(fs: FileSystem, directory: str, cluster_id: str, node_id: int) -> Uuid:
    """Return the metadata directory's id. `LogDirs.adopt` has set it unless the directory is outside of `log.dirs`."""
    found = read_meta_properties(fs, directory)
    if found is not None:
        check_together({directory: found}, cluster_id=cluster_id, node_id=node_id)
        if found.directory_id is not None:
            return found.directory_id
    own_id = random_id()
    write_meta_properties(fs, directory, MetaProperties(cluster_id, node_id, own_id))
    return own_id


def read_bootstrap(fs: FileSystem, metadata_directory: str) -> list[VersionedRecord]:
    """Return the first records of an empty metadata log: `bootstrap.checkpoint`, else those of the latest metadata
    version.
    """
    path = join(metadata_directory, BOOTSTRAP_CHECKPOINT_FILE)
    if not fs.exists(path):
        return bootstrap_records()
    try:
        return [VersionedRecord(record, 0) for record in read_snapshot(read_file(fs, path)).records]
    except InvalidSnapshot as error:
        raise UnusableBootstrap(f"{path} cannot be read: {error}.") from error

"""Formatting of one node's directories, for `ottla storage format` and the supervisor of a local cluster."""

import time
from collections.abc import Sequence
from itertools import chain

from broker.cli.node.initial_controllers import DYNAMIC_QUORUM, InitialController, voters_record
from broker.cli.shared.failure import CommandFailed
from broker.config.broker_config import BrokerConfig
from broker.metadata.image.records import VersionedRecord
from broker.metadata.snapshot.codec import bootstrap_checkpoint, voters_checkpoint
from protocol.primitives import Uuid
from protocol.records.quorum_control import ControlState
from storage.directories.formatting import BOOTSTRAP_CHECKPOINT_FILE, Formatted, format_directories, random_id
from storage.errors import StorageError
from storage.files import OsFileSystem

VOTERS_CHECKPOINT_FILE = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
NOTHING_WRITTEN_YET_MS = 0
"""Timestamp of the initial voters snapshot: it replaces no record, and must have the same bytes on every node."""


def format_node(
    config: BrokerConfig,
    cluster_id: str,
    records: Sequence[VersionedRecord],
    *,
    voters: Sequence[InitialController] = (),
    ignore_formatted: bool = False,
) -> Formatted:
    """Format the log directories; `records` are the initial records of the metadata log.

    `voters` start a dynamic quorum; if this node is a voter, its metadata directory gets the id in `voters`. Without
    voters the quorum is static, or the node joins an existing one. Raises CommandFailed.
    """
    now_ms = int(time.time() * 1000)
    initial_files = {}
    if voters:
        record = voters_record(voters, config.controller_listener_names[0])
        initial_files[VOTERS_CHECKPOINT_FILE] = voters_checkpoint(
            ControlState(DYNAMIC_QUORUM, record), NOTHING_WRITTEN_YET_MS
        )
    ids = chain([_own_directory_id(config.node_id, voters)], iter(random_id, None))
    try:
        return format_directories(
            OsFileSystem(),
            config.log_dirs,
            config.metadata_log_dir,
            cluster_id=cluster_id,
            node_id=config.node_id,
            initial_files=initial_files,
            common_files={BOOTSTRAP_CHECKPOINT_FILE: bootstrap_checkpoint(records, now_ms)},
            ignore_formatted=ignore_formatted,
            new_id=ids.__next__,
        )
    except StorageError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"cannot format {error.filename}: {error.strerror}.") from error


def _own_directory_id(node_id: int, voters: Sequence[InitialController]) -> Uuid:
    return next((each.directory_id for each in voters if each.id == node_id), None) or random_id()

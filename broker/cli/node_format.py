"""Formats the directories of one node, for `ottla storage format` and for the supervisor of a local cluster."""

import time
from collections.abc import Sequence
from itertools import chain

from broker.cli.failure import CommandFailed
from broker.config.broker_config import BrokerConfig
from broker.metadata.records import VersionedRecord
from broker.metadata.snapshot_codec import bootstrap_checkpoint, voters_checkpoint
from protocol.messages.common_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from protocol.primitives import Uuid
from protocol.records.quorum_control import ControlState
from storage.errors import StorageError
from storage.files import OsFileSystem
from storage.formatting import BOOTSTRAP_CHECKPOINT_FILE, Formatted, format_directories, random_id

STATIC_QUORUM = 0
DYNAMIC_QUORUM = 1
"""Levels of kraft.version (KIP-853)."""

VOTERS_CHECKPOINT_FILE = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def format_node(
    config: BrokerConfig,
    cluster_id: str,
    records: Sequence[VersionedRecord],
    *,
    standalone: bool,
    ignore_formatted: bool = False,
) -> Formatted:
    """Formats the log directories; `records` are those an empty metadata log begins with.

    `standalone` makes the node the only voter of a dynamic quorum. Raises CommandFailed.
    """
    now_ms = int(time.time() * 1000)
    initial_files = {BOOTSTRAP_CHECKPOINT_FILE: bootstrap_checkpoint(records, now_ms)}
    metadata_directory_id = random_id()
    if standalone:
        state = ControlState(DYNAMIC_QUORUM, _sole_voter(config, metadata_directory_id))
        initial_files[VOTERS_CHECKPOINT_FILE] = voters_checkpoint(state, now_ms)
    ids = chain([metadata_directory_id], iter(random_id, None))
    try:
        return format_directories(
            OsFileSystem(),
            config.log_dirs,
            config.metadata_log_dir,
            cluster_id=cluster_id,
            node_id=config.node_id,
            initial_files=initial_files,
            ignore_formatted=ignore_formatted,
            new_id=ids.__next__,
        )
    except StorageError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(f"cannot format {error.filename}: {error.strerror}.") from error


def _sole_voter(config: BrokerConfig, directory_id: Uuid) -> VotersRecord:
    """This node as the only voter, reachable at its controller listeners."""
    return VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=config.node_id,
                voter_directory_id=directory_id,
                endpoints=[
                    Endpoint(listener.name, listener.host or "localhost", listener.port)
                    for listener in config.controller_listeners
                ],
                kraft_version_feature=KRaftVersionFeature(STATIC_QUORUM, DYNAMIC_QUORUM),
            )
        ]
    )

"""Formatting of a local cluster: all nodes together at its first start, single nodes when their data is lost.

The nodes of a new cluster are its initial controllers. Their directory ids are chosen before the first node is
formatted and kept in a file until the last one is formatted, so that an interrupted first start continues with the same
voters. Afterwards the nodes' meta.properties hold the cluster id. A node that lost its data while other nodes kept
theirs is formatted with a new directory id and joins the quorum as an observer.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from broker.cli.node.format import format_node
from broker.cli.node.initial_controllers import InitialController, own_controller, parse_initial_controllers
from broker.cli.shared.failure import CommandFailed
from broker.config.broker_config import BrokerConfig
from broker.metadata.image.features import bootstrap_records
from broker.metadata.image.records import VersionedRecord
from broker.supervisor.layout import LocalNode
from broker.supervisor.node_supervisor import NotPrepared
from protocol.primitives import uuid_to_text
from storage.directories.formatting import is_cluster_id, is_formatted, random_id
from storage.directories.meta_properties import read_meta_properties
from storage.errors import StorageError
from storage.files import FileSystem, read_file, replace_file

PLAN_FILE = ".forming"
"""File in the cluster's directory while it is being formatted: the cluster id and one initial controller per line."""


class LocalCluster:
    """Formats the nodes of a cluster below `directory`, by node id. Blocking, but fast."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        nodes: Mapping[int, BrokerConfig],
        records: Sequence[VersionedRecord] = (),
    ) -> None:
        """`records` come after the usual ones into the metadata of a new cluster."""
        self._fs = fs
        self._records = records
        self._plan_file = str(directory / PLAN_FILE)
        self._nodes = nodes

    def prepare(self, node: LocalNode) -> None:
        """Format the nodes that need it. Raises NotPrepared."""
        try:
            node.directory.mkdir(parents=True, exist_ok=True)
            self._format(node.id)
        except CommandFailed as error:
            raise NotPrepared(error.message) from error
        except (OSError, StorageError) as error:
            reason = f"cannot use {error.filename}: {error.strerror}." if isinstance(error, OSError) else str(error)
            raise NotPrepared(reason) from error

    def _format(self, node_id: int) -> None:
        """Format all nodes as initial controllers of a new cluster, or this node, if it lacks data, to join the quorum.

        Raises CommandFailed, StorageError or OSError.
        """
        missing = [config for config in self._nodes.values() if not self._is_formatted(config)]
        if self._fs.exists(self._plan_file):
            self._format_all(missing, *self._read_plan())
        elif len(missing) == len(self._nodes):
            self._format_all(missing, *self._make_plan())
        elif self._nodes[node_id] in missing:
            self._format_to_join(self._nodes[node_id])

    def _is_formatted(self, config: BrokerConfig) -> bool:
        return is_formatted(self._fs, config.metadata_log_dir)

    def _format_all(
        self, missing: Sequence[BrokerConfig], cluster_id: str, voters: Sequence[InitialController]
    ) -> None:
        for config in missing:
            format_node(
                config, cluster_id, [*bootstrap_records(), *self._records], voters=voters, ignore_formatted=True
            )
        self._fs.remove(self._plan_file)

    def _format_to_join(self, config: BrokerConfig) -> None:
        format_node(config, self._known_cluster_id(), bootstrap_records(), ignore_formatted=True)

    def _known_cluster_id(self) -> str:
        """Return the cluster id of any formatted node. Raises NotPrepared if no node has one."""
        found = (read_meta_properties(self._fs, config.metadata_log_dir) for config in self._nodes.values())
        known = next((meta.cluster_id for meta in found if meta is not None and meta.cluster_id is not None), None)
        if known is None:
            raise NotPrepared("no meta.properties of this cluster's nodes has a cluster.id.")
        return known

    def _make_plan(self) -> tuple[str, tuple[InitialController, ...]]:
        """Choose the ids of a new cluster and write the plan file. Raises CommandFailed."""
        configs = list(self._nodes.values())
        cluster_id = configs[0].cluster_id or uuid_to_text(random_id())
        if not is_cluster_id(cluster_id):
            raise CommandFailed(f"CLUSTER_ID is {cluster_id!r}, not a valid id; use `ottla storage random-uuid`.")
        voters = tuple(own_controller(config, random_id()) for config in configs)
        plan = "\n".join([cluster_id, *map(str, voters)])
        replace_file(self._fs, self._plan_file, plan.encode())
        return cluster_id, voters

    def _read_plan(self) -> tuple[str, tuple[InitialController, ...]]:
        cluster_id, *voters = bytes(read_file(self._fs, self._plan_file)).decode().splitlines()
        return cluster_id, parse_initial_controllers(",".join(voters))

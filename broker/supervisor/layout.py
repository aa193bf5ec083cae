"""Layout of a local cluster: directory, ports, settings and command line of each node."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from protocol.lazy_dataclass import lazy_dataclass

HOST = "127.0.0.1"
PORT_STEP = 10
"""Distance between the client ports of two nodes. A node's controller listener uses the port after its client port."""


SHARED_REMOTE_DIRECTORY = "remote"
"""Directory, in the cluster's directory, that serves all nodes as remote storage, in place of a bucket."""


@lazy_dataclass(frozen=True, slots=True)
class NodeLayout:
    """The settings in which one node differs. `index` counts from 0, ids from 1; `http_port` 0 picks a free port.

    `controllers` are the controller listeners of all nodes, host:port.
    """

    index: int
    directory: Path
    port: int
    http_port: int
    controllers: tuple[str, ...]

    def settings(self, overrides: Iterable[str] = ()) -> list[str]:
        """Return the node's configuration as KEY=VALUE; the user's `overrides` come last and take precedence."""
        return [
            "process.roles=broker,controller",
            f"node.id={self.index + 1}",
            f"listeners=PLAINTEXT://{HOST}:{self.port},CONTROLLER://{self.controllers[self.index]}",
            "controller.listener.names=CONTROLLER",
            f"controller.quorum.bootstrap.servers={','.join(self.controllers)}",
            *(["controller.quorum.auto.join.enable=true"] if len(self.controllers) > 1 else []),
            f"log.dirs={self.directory / 'data'}",
            "remote.log.storage.system.enable=true",
            "remote.log.storage.manager.class.name=local",
            f"rsm.config.storage.root={self.directory.parent / SHARED_REMOTE_DIRECTORY}",
            f"ottla.http.listener={HOST}:{self.http_port}",
            "ottla.scheduling.policy=batch",
            *overrides,
        ]


def node_layout(index: int, root: Path, first_port: int, http_ports: Mapping[int, int]) -> NodeLayout:
    """Return the layout of node `index` below `root`; `http_ports` has one entry for every node."""
    ports = [first_port + PORT_STEP * each for each in range(len(http_ports))]
    controllers = tuple(f"{HOST}:{port + 1}" for port in ports)
    return NodeLayout(index, root / f"node-{index}", ports[index], http_ports[index], controllers)


@lazy_dataclass(frozen=True, slots=True)
class LocalNode:
    """A node as its supervisor sees it. Addresses are those of the effective configuration.

    `http_url` is None without HTTP, and where the node picks a port at each start.
    """

    id: int
    directory: Path
    address: str
    http_url: str | None
    command: tuple[str, ...]

    @property
    def pid_file(self) -> Path:
        return self.directory / "ottla.pid"

    @property
    def log_file(self) -> Path:
        return self.directory / "ottla.log"


def start_command(settings: Iterable[str], secrets_file: Path | None = None) -> tuple[str, ...]:
    """Return the command that runs a node. The node stops when its standard input ends, however the supervisor ended.

    `secrets_file` holds settings that the process title must not show. `-P` prevents the import of a directory named
    `storage` or `protocol` in the user's working directory.
    """
    overrides = [part for setting in settings for part in ("--override", setting)]
    if secrets_file is not None:
        overrides += ["--overrides-file", str(secrets_file)]
    return (sys.executable, "-P", "-m", "broker", "start", "--until-stdin-ends", *overrides)

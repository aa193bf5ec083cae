"""Where each node of a local cluster lives: its directory, its ports, its settings, its command line."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
PORT_STEP = 10
"""Between the client listeners of neighbours; the controller listener is the port after the client's."""


REMOTE = "remote"
"""In the cluster's directory: what its nodes together keep of tiered topics, as a bucket would."""


@dataclass(frozen=True, slots=True)
class Place:
    """What sets one node apart. `index` counts from 0, ids from 1; `http_port` is the node's own, 0 if it picks one.

    `controllers` are the controller listeners of all nodes, host:port.
    """

    index: int
    directory: Path
    port: int
    http_port: int
    controllers: tuple[str, ...]

    def settings(self, overrides: Iterable[str] = ()) -> list[str]:
        """The node's configuration as KEY=VALUE; the user's `overrides` come last and win."""
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
            f"rsm.config.storage.root={self.directory.parent / REMOTE}",
            f"ottla.http.listener={HOST}:{self.http_port}",
            *overrides,
        ]


def place(index: int, root: Path, first_port: int, http_ports: Mapping[int, int]) -> Place:
    """The place of node `index` below `root`; `http_ports` has one for every node there is."""
    ports = [first_port + PORT_STEP * each for each in range(len(http_ports))]
    controllers = tuple(f"{HOST}:{port + 1}" for port in ports)
    return Place(index, root / f"node-{index}", ports[index], http_ports[index], controllers)


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node as its keeper sees it. Addresses are what the configuration came to in the end; `http_url` is None
    without HTTP, and where the node picks a port in each of its lives."""

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


def start_command(settings: Iterable[str]) -> tuple[str, ...]:
    """Runs a node that stops when its standard input ends, which it does when we are gone, however that came.

    `-P` keeps a directory named `storage` or `protocol`, where the user happens to stand, from being imported.
    """
    overrides = (part for setting in settings for part in ("--override", setting))
    return (sys.executable, "-P", "-m", "broker", "start", "--until-stdin-ends", *overrides)
